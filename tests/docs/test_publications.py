"""The table of publications in docs/encodings.md: it names every encoding that there is, and none that is not."""

import re
import sys

import roformer_cpp
from docs_pages import DOCS, ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from encodings_page import words_in_code

NAMES = {info["name"] for info in roformer_cpp.encodings()}
# What else the table has in code: keys and their values, terms, and where they come from.
OTHER_WORDS = {
    "training_positions", "shifted", "randomized", "rope_type", "rope_theta", "log_n", "partial_rotary_factor",
    "augmented", "longrope", "proportional", "hope", "clipped", "core", "shared", "scaling_factor", "rule",
}  # fmt: skip


def rows():
    """[publication, year, what is here] of each line."""
    page = (DOCS / "encodings.md").read_text(encoding="utf-8")
    section = page[page.index("## Publications") : page.index("## Using one")]
    found = re.findall(r"^\| (.*?) \| ([\d, ]+) \| (.*) \|$", section, re.MULTILINE)
    assert len(found) == len(re.findall(r"^\| ", section, re.MULTILINE)) - 1  # the head
    return found


def test_every_encoding_has_its_publication():
    named = set().union(*(words_in_code(here) for _, _, here in rows()))
    assert named >= NAMES and named - NAMES <= OTHER_WORDS


def test_lines_are_complete_and_in_order():
    """Each has a source and a year, and says what is here or what it would take."""
    years = []
    for publication, year, here in rows():
        assert re.search(r"arXiv \d{4}\.\d{4,5}|kexue\.fm/archives/\d+|blog\.", publication), publication
        years.append(int(year.split(",")[0]))
        assert words_in_code(here) & (NAMES | {"training_positions"}) or re.match(r"(no|not yet): .{40}", here), here
    assert years == sorted(years)
