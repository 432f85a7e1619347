"""docs/reference and the tables of docs/encodings.md are what scripts write from the sources of today."""

import re
import subprocess
import sys

import pytest

from cli_support import PROGRAM
from docs_pages import DOCS, ROOT

REFERENCE = [f"reference_pages --pages {name}" for name in ("python", "c", "command-line")]


@pytest.mark.parametrize("script", ["encodings_page", *REFERENCE])
def test_pages_are_up_to_date(script):
    name, *options = script.split()
    command = [sys.executable, ROOT / "scripts" / f"{name}.py", "--check", *options, "--program", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_exported_c_function_is_described():
    headers = [path for module in ("core", "engine") for path in (ROOT / module / "include" / "rf").glob("*.h")]
    functions = set()
    for path in headers:
        text = re.sub(r"/\*.*?\*/|^#[^\n]*$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        functions |= set(re.findall(r"RF_API[^;(]*?\b(rf_\w+)\(", text))
    page = (DOCS / "reference" / "c.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"`(rf_\w+)`", "\n".join(re.findall(r"^### .*$", page, re.MULTILINE))))
    assert len(functions) > 40 and functions - titles == set()
