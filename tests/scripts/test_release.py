"""scripts/release.sh refuses what must not be released, before it builds; the versions that a release states agree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import roformer_cpp

ROOT = Path(__file__).resolve().parents[2]
FILES = ["scripts/release.sh", "pyproject.toml", "CITATION.cff", "CMakeLists.txt", "CHANGELOG.md"]
# Where a version is stated; of the changelog, the newest.
STATED = {
    "pyproject.toml": r'^version = "(.*)"$',
    "CITATION.cff": r"^version: (.*)$",
    "CMakeLists.txt": r"^project\(roformer VERSION (\S+)",
    "CHANGELOG.md": r"^## \[(\d.*)\]",
}
VERSION = "9.8.7"


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def replace(path, old, new):
    text, count = re.subn(old, new, path.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
    assert count == 1
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def tree(tmp_path):
    """A repository that may be released as VERSION."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, line in STATED.items():
        replace(tmp_path / name, line, lambda match: match[0].replace(match[1], VERSION))
    replace(tmp_path / "CHANGELOG.md", rf"^(## \[{VERSION}\]).*", r"\1 - 2026-12-01")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def commit(tree):
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "A commit")


def release(tree, *arguments):
    command, environment = [tree / "scripts" / "release.sh", *arguments], dict(os.environ, PYTHONS=sys.executable)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_help():
    code, text = release(ROOT, "--help")
    assert code == 0 and "scripts/release.sh --dry-run VERSION" in text
    assert release(ROOT)[0] == 2 and release(ROOT, "--publish", VERSION)[0] == 2


def test_missing_interpreters_are_named(tree):
    code, text = release(tree, "--dry-run", VERSION)
    here = "{}.{}".format(*sys.version_info)
    missing = [version for version in ("3.10", "3.11", "3.12", "3.13", "3.14") if version != here]
    assert code == 1 and f"but CPython {' '.join(missing)} must be installed first" in text
    assert all(f"CPython {version}: not installed" in text for version in missing)
    code, text = release(tree, VERSION)
    assert code == 1 and "Hint: --allow-missing" in text and not (tree / "dist").exists()


def test_a_tree_with_changes_is_refused(tree):
    (tree / "new.txt").write_text("new")
    code, text = release(tree, "--dry-run", VERSION)
    assert code == 1 and "the tree must have no changes, got:\n?? new.txt" in text


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("pyproject.toml", VERSION, "0.0.1", f"pyproject.toml must have the version {VERSION}, got 0.0.1"),
        ("CITATION.cff", f"^version: {VERSION}$", "", f"CITATION.cff must have the version {VERSION}, got none"),
        ("CMakeLists.txt", VERSION, "0.0.1", f"CMakeLists.txt must have the version {VERSION}, got 0.0.1"),
        ("CHANGELOG.md", "2026-12-01", "not released", f'YYYY-MM-DD", got ## [{VERSION}] - not released'),
        ("CHANGELOG.md", "2026-12-01$", "2026-12-01\n\n## [0]", f"section {VERSION} of CHANGELOG.md must have text"),
    ],
)
def test_a_version_that_is_not_stated_everywhere_is_refused(tree, file, old, new, message):
    replace(tree / file, old, new)
    commit(tree)
    code, text = release(tree, "--dry-run", VERSION)
    assert code == 1 and message in text


def test_versions_and_licences_agree():
    found = {re.search(line, (ROOT / file).read_text(encoding="utf-8"), re.M)[1] for file, line in STATED.items()}
    assert found == {roformer_cpp.__version__}
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (licence,) = re.findall('^license = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert f"\nlicense: {licence}\n" in citation and "arXiv:2104.09864" in citation
