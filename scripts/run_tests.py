"""Runs the built tests and prints one line of totals: C++ test programs, pytest, format checks.

Called by scripts/test.sh. Each program's own report is shown as it runs; the counts come from the machine-readable
reports (GoogleTest JSON, JUnit XML). A program that crashes, or a report that does not appear, counts as one failure.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["core", "io", "model", "text", "data", "ops", "nn", "train", "cli", "tests", "bench"]


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def add(self, name, passed, failed, skipped):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        if failed:
            self.failures.append(f"{name}: {failed}")


def run_gtest(binary, totals):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        code = subprocess.call([binary, "--gtest_brief=1", f"--gtest_output=json:{report}"], cwd=ROOT)
        name = str(binary.relative_to(ROOT))
        try:
            cases = [case for suite in json.loads(report.read_text())["testsuites"] for case in suite["testsuite"]]
        except (OSError, ValueError):
            print(f"{name}: exit code {code} and no report", flush=True)
            return totals.add(name, 0, 1, 0)
        failed = sum("failures" in case for case in cases)
        skipped = sum(case["result"] == "SKIPPED" for case in cases)
        totals.add(name, len(cases) - failed - skipped, max(failed, int(code != 0)), skipped)


def run_pytest(totals):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"), TOKENIZERS_PARALLELISM="false")
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "--durations=10", "-p", "no:cacheprovider"]
        code = subprocess.call([*command, f"--junitxml={report}", "tests"], cwd=ROOT, env=environment)
        try:
            suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
        except (OSError, ElementTree.ParseError):
            return totals.add("pytest", 0, 1, 0)
        count = {
            key: sum(int(suite.get(key)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
        }
        failed = count["failures"] + count["errors"]
        passed = count["tests"] - failed - count["skipped"]
        totals.add("pytest", passed, max(failed, int(code != 0)), count["skipped"])


def run_check(name, command, totals):
    try:
        code = subprocess.call(command, cwd=ROOT)
    except OSError as error:
        print(f"{name}: {error}", flush=True)
        code = 1
    totals.add(name, int(code == 0), int(code != 0), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the sanitizer build's tests")
    arguments = parser.parse_args()
    totals = Totals()

    builds = ["release"] if arguments.quick else ["sanitize", "release"]
    for build in builds:
        binaries = sorted((ROOT / "build" / build / "tests").glob("*_test"))
        if not binaries:
            print(f"build/{build}/tests: no test program", flush=True)
            totals.add(f"build/{build}/tests", 0, 1, 0)
        for binary in binaries:
            start = time.monotonic()
            print(f"--- {binary.relative_to(ROOT)}", flush=True)
            run_gtest(binary, totals)
            print(f"    {time.monotonic() - start:.1f} s", flush=True)
    print("--- pytest", flush=True)
    run_pytest(totals)
    print("--- format", flush=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clang_format = shutil.which("clang-format", path=path) or "clang-format"
    sources = [path for room in ROOMS for suffix in ("h", "cpp") for path in sorted((ROOT / room).rglob(f"*.{suffix}"))]
    run_check("clang-format", [clang_format, "--dry-run", "-Werror", *sources], totals)
    run_check("ruff check", [sys.executable, "-m", "ruff", "check", "--no-cache", "-q", "."], totals)
    run_check("ruff format", [sys.executable, "-m", "ruff", "format", "--no-cache", "-q", "--check", "."], totals)

    if totals.failures:
        print("failed: " + ", ".join(totals.failures), flush=True)
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped", flush=True)
    return int(totals.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
