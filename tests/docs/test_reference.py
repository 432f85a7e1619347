"""docs/reference is what scripts/reference_pages.py writes from the sources of today, and has every exported name."""

import ast
import re
import subprocess
import sys

import pytest

import roformer_cpp
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


def test_every_public_name_of_the_package_is_described():
    tree = ast.parse((ROOT / "python" / "roformer_cpp" / "__init__.py").read_text(encoding="utf-8"))
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AugAssign)]
    lists = [node.value for node in assigned if "__all__" in ast.unparse(node).split("=")[0]]
    names = {item.value for value in lists for item in ast.walk(value) if isinstance(item, ast.Constant)}
    titles = set(re.findall(r"^### (?:Class )?`(\w+)`$", page("python"), re.MULTILINE))
    assert len(names) > 15 and names - titles == set()


def test_names_are_described_where_the_package_imports_them_from():
    described = {}
    for section in page("python").split("\n## ")[1:]:
        module = re.search(r"^Source: \[(\w+)\.py\]", section, re.MULTILINE)
        described |= dict.fromkeys(re.findall(r"^### (?:Class )?`(\w+)`$", section, re.MULTILINE), module[1])
    assert all(described[name] == module for name, module in roformer_cpp._MODULE_OF.items())


def test_sections_of_docstrings_are_read():
    text = page("python")
    assert "- `x`: `[.., T, H, D]`, or" in text and "**Returns:** A new contiguous tensor" in text
    assert "- `NotImplementedError`: `positions` require grad" in text


def test_no_path_of_a_machine_is_written():
    for name in ("python", "c", "command-line"):
        assert not re.search(r"(?<![\w.])/(home|root|opt|usr|work|tmp)/", page(name)), name
