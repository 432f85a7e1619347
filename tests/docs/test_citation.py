"""CITATION.cff and CHANGELOG.md name the version and the licence of the package."""

import re

from docs_pages import ROOT


def value(file, key):
    """A top-level value of a file in YAML or TOML, as text."""
    (found,) = re.findall(rf'^{key} ?[:=] "?([^"\n]+)"?$', (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return found


def test_version_and_licence_are_those_of_the_package():
    for key in ("version", "license"):
        assert value("CITATION.cff", key) == value("pyproject.toml", key)


def test_the_changelog_has_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[Unreleased\]$", text, re.MULTILINE)
    assert value("pyproject.toml", "version") in text


def test_the_paper_is_cited():
    assert "arXiv:2104.09864" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
