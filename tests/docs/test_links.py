"""Every relative link and anchor of README.md, the other pages at the top, and docs/**/*.md resolves."""

import os
import re

import pytest

from docs_pages import ROOT, anchors, pages, without_code

LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^)\s]+)\)")


def links(text):
    """[(line, target)] of the links and pictures of a page, those within the page too."""
    plain = without_code(text)
    return [(plain.count("\n", 0, match.start()) + 1, match[2]) for match in LINK.finditer(plain)]


def problems(path, text):
    found = []
    for line, target in links(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path if not name else path.parent / name
        resolved = os.path.normpath(file)
        if name.startswith("/") or not resolved.startswith(str(ROOT)) or not file.exists():
            found.append(f"{path.relative_to(ROOT)}:{line}: {target} leads to no file")
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text(encoding="utf-8"))):
            found.append(f"{path.relative_to(ROOT)}:{line}: {target} leads to no heading, or to two")
    return found


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path):
    assert problems(path, path.read_text(encoding="utf-8")) == []


def test_every_page_is_in_the_navigation():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = [str(path.relative_to(ROOT / "docs")) for path in pages() if path.is_relative_to(ROOT / "docs")]
    assert [name for name in names if f": {name}\n" not in config] == []
