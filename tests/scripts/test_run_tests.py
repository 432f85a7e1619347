"""scripts/run_tests.py: what is missing, crashes or hangs is a failure. Test programs are shell scripts here."""

import os
import sys
import time

import pytest

from cli_support import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import run_tests

REPORT = """{"testsuites": [{"testsuite": [%s]}]}"""
PASSED, FAILED, SKIPPED = '{"result": "COMPLETED"}', '{"result": "COMPLETED", "failures": [1]}', '{"result": "SKIPPED"}'
NEVER_S = 600


def report(*cases):
    """Lines of a test program that writes this report, where --gtest_output says."""
    return f"cat > ${{1#--gtest_output=json:}} <<END\n{REPORT % ', '.join(cases)}\nEND"


@pytest.fixture
def build(tmp_path):
    (tmp_path / "release" / "tests").mkdir(parents=True)
    return tmp_path / "release"


def write_program(path, lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def totals_of(build, limit=NEVER_S, **programs):
    for name, lines in programs.items():
        if lines is not None:
            write_program(build / "tests" / name, lines)
    if programs:  # or the build declares none
        (build / "tests" / "programs.txt").write_text("".join(f"{name}\n" for name in programs))
    totals = run_tests.Totals()
    run_tests.run_programs([build], totals, limit)
    return totals


def numbers(totals):
    return totals.passed, totals.failed, totals.skipped


@pytest.mark.parametrize(
    ("programs", "counts", "failures", "shown"),
    [
        ({"a": report(PASSED, PASSED), "b": report(PASSED, SKIPPED)}, (3, 0, 1), [], ""),
        ({"a": f"echo what was wrong\n{report(PASSED, FAILED)}\nexit 1"}, (1, 1, 0), ["a: 1"], "what was wrong"),
        ({"a": "echo the last words\nkill -SEGV $$"}, (0, 1, 0), ["a: 1"], "the last words"),
        ({"a": f"{report(PASSED)}\nexit 3"}, (1, 1, 0), ["a: 1"], ""),
        ({"a": report(PASSED), "b": None}, (1, 1, 0), ["b: 1"], ""),  # CMake declares it, and it is not there
        ({}, (0, 1, 0), ["test programs of release: 1"], ""),
    ],
)
def test_counts_come_from_the_reports(build, capsys, programs, counts, failures, shown):
    totals = totals_of(build, **programs)
    assert numbers(totals) == counts and totals.failures == failures and shown in capsys.readouterr().out


def test_a_program_that_hangs_is_one_failure_and_its_output_is_kept(build, capsys):
    lines = f"echo '[ RUN      ] It.Hangs'\nsleep {NEVER_S} & echo $! >$0.child\nwait"
    totals = totals_of(build, limit=1, a_test=lines, b_test=report(PASSED))
    assert numbers(totals) == (1, 1, 0) and totals.failures == ["a_test: 1"]
    shown = capsys.readouterr().out
    assert "[ RUN      ] It.Hangs" in shown and "a_test: still running after 1 s" in shown
    assert "It.Hangs" in (build / "tests" / "a_test.log").read_text()
    child = int((build / "tests" / "a_test.child").read_text())
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # the system takes a moment to collect it
            os.kill(child, 0)
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("body", "counts", "limits"),
    [
        ("def test_a(): pass\ndef test_b(): assert 0\n", (1, 1, 0), {}),
        (f"import time\ndef test_a(): time.sleep({NEVER_S})\n", (0, 1, 0), {"test_limit": 1}),  # it hangs
    ],
)
def test_pytest_is_counted(body, counts, limits, tmp_path, monkeypatch):
    """Without the plugins of other packages, which its three processes would import."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(body)
    totals = run_tests.Totals()
    run_tests.run_pytest(totals, tmp_path, **limits)
    assert numbers(totals) == counts and totals.failures == ["pytest: 1"]


def test_a_package_that_is_missing_is_a_failure(tmp_path, capsys):
    requirements = tmp_path / "requirements-dev.txt"
    requirements.write_text("# a comment\npytest==0.1\nno-such-package_1==2.3  # why\n")
    totals = run_tests.Totals()
    run_tests.check_packages(requirements, totals)
    assert totals.failures == ["package no-such-package_1: 1"]
    assert "no-such-package_1 is not installed" in capsys.readouterr().out
