"""docs/reference is what scripts/reference_pages.py writes from the sources of today, and has every exported name."""

import re
import subprocess
import sys

import pytest

from cli_support import PROGRAM
from docs_pages import DOCS, ROOT

SCRIPT = ROOT / "scripts" / "reference_pages.py"


def page(name):
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["python", "c", "command-line"])
def test_pages_are_up_to_date(name):
    command = [sys.executable, SCRIPT, "--check", "--pages", name, "--program", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_exported_c_function_is_described():
    headers = [path for module in ("core", "engine") for path in (ROOT / module / "include" / "rf").glob("*.h")]
    functions = set()
    for path in headers:
        text = re.sub(r"/\*.*?\*/|^#[^\n]*$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        functions |= set(re.findall(r"RF_API[^;(]*?\b(rf_\w+)\(", text))
    titles = set(re.findall(r"`(rf_\w+)`", "\n".join(re.findall(r"^### .*$", page("c"), re.MULTILINE))))
    assert len(functions) > 40 and functions - titles == set()


def test_sections_of_docstrings_are_read():
    text = page("python")
    assert "- `x`: `[.., T, H, D]`, or" in text and "**Returns:** A new contiguous tensor" in text
    assert "- `NotImplementedError`: `positions` require grad" in text


def test_no_path_of_a_machine_is_written():
    for name in ("python", "c", "command-line"):
        assert not re.search(r"(?<![\w.])/(home|root|opt|usr|work|tmp)/", page(name)), name
