"""What the tests of the documentation share: the pages, their blocks of code, and the anchors of their headings."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>[\w-]*)\n(?P<code>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)


def pages():
    """Every page that people write or read: those at the top of the repository, and docs."""
    return sorted(ROOT.glob("*.md")) + sorted(DOCS.rglob("*.md"))


def without_code(text):
    """The text of a page without fences and without code in lines; lines keep their numbers."""
    text = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    text = re.sub(r"^ {4,}(?![-*|\d]).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<!\\)(`+)(?!`).+?(?<!`)\1(?!`)", lambda match: "`" * len(match.group()), text)


def anchors(text):
    """The anchors that code hosts, and the site, give the headings of a page, without those that occur twice."""
    found = []
    for title in re.findall(r"^#{1,6} (.+)$", FENCE.sub("", text), re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)  # a link is its text
        title = re.sub(r"\\([_*|])", r"\1", title).replace("`", "").strip().lower()
        found.append(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return {anchor for anchor in found if found.count(anchor) == 1}
