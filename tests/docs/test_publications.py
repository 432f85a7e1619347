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


def test_every_encoding_has_its_publication():
    page = (DOCS / "encodings.md").read_text(encoding="utf-8")
    section = page[page.index("## Publications") : page.index("## Using one")]
    cells = re.findall(r"^\| .*? \| [\d, ]+ \| (.*) \|$", section, re.MULTILINE)
    assert len(cells) == len(re.findall(r"^\| ", section, re.MULTILINE)) - 1  # the head
    named = set().union(*map(words_in_code, cells))
    assert named >= NAMES and named - NAMES <= OTHER_WORDS
