"""Runs the built tests and prints one line of totals: C++ test programs, pytest, format checks.

Called by scripts/test.sh. The counts come from the machine-readable reports (GoogleTest JSON, JUnit XML). One failure
is counted for each program that crashes, does not write a report, or exceeds its limit; for each program that CMake
declares and the build lacks; and for each package of requirements-dev.txt that is not installed, because its tests
cannot run.

The output of a test program is written to <program>.log next to it, and shown if it fails. A program that exceeds its
limit is ended after showing the stacks of its threads (if gdb is installed); pytest shows its own stacks.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In seconds: several times the needs of a slow machine, so a test that reaches them hangs.
PROGRAM_LIMIT, PYTEST_LIMIT, PYTHON_TEST_LIMIT, GDB_LIMIT = 900, 3600, 900, 120

# Two processes, which take the files of tests in the given order. By default, files with few tests run last, even if
# they are long.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
PYTEST += ["--no-loadscope-reorder", "--max-worker-restart", "0"]


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self._lock = threading.Lock()

    def add(self, name, passed, failed, skipped):
        with self._lock:
            self.passed += passed
            self.failed += failed
            self.skipped += skipped
            if failed:
                self.failures.append(f"{name}: {failed}")


def show_stacks(pid):
    gdb = shutil.which("gdb")
    if not gdb:
        print("no gdb here, so no stacks", flush=True)
        return
    command = [gdb, "-batch", "-p", str(pid), "-ex", "thread apply all backtrace 40"]
    try:
        subprocess.run(command, stderr=subprocess.DEVNULL, timeout=GDB_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        print(f"gdb: still running after {GDB_LIMIT} s", flush=True)


def call(command, limit, on_limit=show_stacks, **options):
    """The exit code, or None if a program reached the limit: `on_limit` is called, then its processes are ended."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        on_limit(process.pid)
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def show_failures(log):
    """The log without the lines of tests that passed; the last line says which test was running at the end."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    shown = [line for line in lines[:-1] if not re.match(r"\[( RUN      |       OK |-{10})\]", line)]
    print("\n".join([*shown, *lines[-1:]]), flush=True)


def run_gtest(binary, totals, limit=PROGRAM_LIMIT):
    log = binary.with_suffix(".log")
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
        report = Path(folder) / "report.json"
        try:
            command = [binary, f"--gtest_output=json:{report}"]
            code = call(command, limit, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        except OSError as error:
            print(f"{binary}: {error}", flush=True)
            return totals.add(binary.name, 0, 1, 0)
        try:
            cases = [case for suite in json.loads(report.read_text())["testsuites"] for case in suite["testsuite"]]
        except (OSError, ValueError):
            show_failures(log)
            end = f"still running after {limit} s" if code is None else f"exit code {code} and no report"
            print(f"{binary}: {end}", flush=True)
            return totals.add(binary.name, 0, 1, 0)
    failed = sum("failures" in case for case in cases)
    skipped = sum(case["result"] == "SKIPPED" for case in cases)
    if failed or skipped or code != 0:
        show_failures(log)
    totals.add(binary.name, len(cases) - failed - skipped, max(failed, int(code != 0)), skipped)


def run_programs(builds, totals, limit=PROGRAM_LIMIT, lists=("programs.txt",)):
    """The test programs that CMake declared for these builds."""
    programs = []
    for build in builds:
        try:
            names = [name for file in lists for name in (build / "tests" / file).read_text(encoding="utf-8").split()]
        except OSError as error:
            print(f"{build}: {error}", flush=True)
            names = []
        if not names:
            totals.add(f"test programs of {build.name}", 0, 1, 0)
        programs += [build / "tests" / name for name in names]

    def run(binary):
        start = time.monotonic()
        run_gtest(binary, totals, limit)
        print(f"--- {binary.parent.parent.name}/{binary.name} {time.monotonic() - start:.1f} s", flush=True)

    # Most programs use one core, so two at a time.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, programs))


def run_pytest(totals, root=ROOT, limit=PYTEST_LIMIT, test_limit=PYTHON_TEST_LIMIT):
    """Two processes of pytest, which take the files of tests in turn."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        environment = dict(os.environ, PYTHONPATH=str(root / "python"), TOKENIZERS_PARALLELISM="false")
        # A test that reaches its limit ends its process after showing the stacks of all threads.
        command = [*PYTEST, "-rs", "--durations=30", "-o", f"faulthandler_timeout={test_limit}"]
        command += ["-o", "faulthandler_exit_on_timeout=true"]

        def abort(pid):  # faulthandler then shows the stacks of one process at a time
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGABRT)
                time.sleep(1)

        command += [f"--junitxml={report}", "tests"]
        code = call(command, limit, abort, cwd=root, env=environment)
        try:
            suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
        except (OSError, ElementTree.ParseError):
            print(f"pytest: {'too long' if code is None else f'exit code {code}'} and no report", flush=True)
            return totals.add("pytest", 0, 1, 0)
        count = {
            key: sum(int(suite.get(key)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
        }
        failed = count["failures"] + count["errors"]
        passed = count["tests"] - failed - count["skipped"]
        totals.add("pytest", passed, max(failed, int(code != 0)), count["skipped"])


def check_packages(requirements, totals):
    for name in re.findall(r"^[\w.-]+", requirements.read_text(encoding="utf-8"), re.MULTILINE):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{requirements.name}: {name} is not installed in {sys.prefix}", flush=True)
            totals.add(f"package {name}", 0, 1, 0)


def cpp_sources(root):
    """The sources of every module, which is a directory that CMake builds."""
    modules = sorted(path.parent for path in root.glob("*/CMakeLists.txt"))
    return [path for module in modules for path in sorted(module.rglob("*")) if path.suffix in (".c", ".cpp", ".h")]


def run_check(name, command, totals):
    try:
        code = subprocess.call(command, cwd=ROOT)
    except OSError as error:
        print(f"{name}: {error}", flush=True)
        code = 1
    totals.add(name, int(code == 0), int(code != 0), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out the sanitizer build's tests")
    arguments = parser.parse_args()
    totals = Totals()

    # Two programs at a time use the cores, so a thread of OpenMP that spins takes the time of the one it waits for.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    for file in ("requirements.txt", "requirements-dev.txt"):
        check_packages(ROOT / file, totals)
    if arguments.quick:
        run_programs([ROOT / "build/release"], totals, lists=("programs.txt", "sanitized.txt"))
    else:
        run_programs([ROOT / "build" / build for build in ("sanitize", "release")], totals)
    print("--- pytest", flush=True)
    run_pytest(totals)
    print("--- format", flush=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clang_format = shutil.which("clang-format", path=path) or "clang-format"
    run_check("clang-format", [clang_format, "--dry-run", "-Werror", *cpp_sources(ROOT)], totals)
    run_check("ruff check", [sys.executable, "-m", "ruff", "check", "--no-cache", "-q", "."], totals)
    run_check("ruff format", [sys.executable, "-m", "ruff", "format", "--no-cache", "-q", "--check", "."], totals)

    if totals.failures:
        print("failed: " + ", ".join(totals.failures), flush=True)
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped", flush=True)
    return int(totals.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
