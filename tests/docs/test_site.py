"""scripts/site.sh builds the documentation site without warnings; what it must refuse, it refuses."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs_pages import ROOT

CHECK = ROOT / "scripts" / "check_site.py"


@pytest.fixture(scope="module")
def python():
    """An interpreter that has what the site needs: the one that is named, that of .venv-site, this one."""
    text = (ROOT / "requirements-site.txt").read_text(encoding="utf-8")
    required = re.findall(r"^([\w-]+)==([\w.]+)$", text, re.MULTILINE)
    code = f"from importlib.metadata import version\nassert all(version(name) == of for name, of in {required!r})"
    for python in (os.environ.get("ROFORMER_SITE_PYTHON", ""), ROOT / ".venv-site" / "bin" / "python", sys.executable):
        if Path(python).is_file() and subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
            return str(python)
    pytest.skip("THE DOCUMENTATION SITE WAS NOT BUILT: run scripts/site.sh once, or set ROFORMER_SITE_PYTHON")


def build(python, output, root=ROOT):
    command, environment = [root / "scripts" / "site.sh", output], dict(os.environ, ROFORMER_SITE_PYTHON=python)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def site(python, tmp_path_factory):
    output = tmp_path_factory.mktemp("site") / "site"
    done = build(python, output)
    assert done.returncode == 0, done.stderr
    return output


def test_every_page_is_built(site):
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").with_suffix("")
        built = site / (name.parent if name.name == "index" else name) / "index.html"
        assert built.is_file(), name
    for name in ("project/readme", "project/contributing", "source/core/include/rf/rope.h"):
        assert (site / name / "index.html").is_file()


def test_an_experiment_has_a_page_in_place_of_its_rows(site):
    page = (site / "source/experiments/results/small/translation.parquet/index.html").read_text(encoding="utf-8")
    assert "<h1" in page and "Translation with sinusoids" in page and "by Holm" in page


def test_mathematics_is_drawn_without_scripts(site):
    theory = (site / "theory" / "index.html").read_text(encoding="utf-8")
    assert theory.count("<math") >= 6 and "<mfrac>" in theory
    assert "formula0placeholder" not in theory and "```math" not in theory
    assert "\\begin" not in theory


def test_pages_have_no_path_of_the_machine(site):
    for path in site.rglob("*.html"):
        assert str(ROOT) not in path.read_text(encoding="utf-8"), path


@pytest.fixture(scope="module")
def small(python, tmp_path_factory):
    """A copy of what the site is built from, with one page beside the index."""
    root = tmp_path_factory.mktemp("small")
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "experiments", root / "experiments", ignore=shutil.ignore_patterns("results", "__pycache__"))
    for path in [*ROOT.glob("*.md"), ROOT / "mkdocs.yml", ROOT / "requirements-site.txt"]:
        shutil.copy(path, root / path.name)
    # Other links lead to files that the copy lacks.
    for path in (root / "docs").rglob("*.md"):
        if path.name != "index.md" or path.parent != root / "docs":
            path.unlink()
    pages = ("docs/theory.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
    for name in pages:
        (root / name).write_text("# A\n", encoding="utf-8")
    config = (root / "mkdocs.yml").read_text(encoding="utf-8")
    nav = ["index.md", "theory.md", *(f"project/{name[:-3].lower()}.md" for name in pages[1:])]
    lines = "".join(f"  - {name}: {name}\n" for name in nav)
    (root / "mkdocs.yml").write_text(config[: config.index("\nnav:")] + f"\nnav:\n{lines}", encoding="utf-8")
    return root


GOOD, WARNINGS = "[good](theory.md#a)", ["nothing.md'", "#nothing'.", "nothing.svg'", "with 3 warnings"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("[a](nothing.md) [b](theory.md#nothing) ![c](nothing.svg)", WARNINGS),
        ("```math\n\\nothing{x}\n```", ["must be LaTeX"]),
        ("![a](https://example.org/a.png)", ["would be loaded from elsewhere", "1 missing or external"]),
    ],
)
def test_what_is_wrong_is_refused(text, messages, python, small, tmp_path):
    """Each by a line of its own, and nothing else is."""
    (small / "docs" / "index.md").write_text(f"# A\n\n{GOOD}\n\n{text}\n", encoding="utf-8")
    bad = build(python, tmp_path / "bad", small)
    assert bad.returncode != 0
    lines = [line for line in (bad.stderr + bad.stdout).splitlines() if not line.startswith("INFO")]
    assert [sum(message in line for line in lines) for message in messages] == [1] * len(messages)


def test_the_check_of_built_pages_needs_nothing(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="b.html">b</a><img src="http://example.org/a.png"><link rel="stylesheet" '
        'href="//example.org/a.css"><style>p { background: url(https://example.org/b.png) }</style>'
        '<a href="https://example.org">elsewhere</a><script src="a.js"></script>'
    )
    done = subprocess.run([sys.executable, CHECK, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    wrong = [line.split(": ")[1].split()[0] for line in done.stderr.splitlines()[:-1]]
    assert sorted(wrong) == ["//example.org/a.css", "a.js", "http://example.org/a.png", "https://example.org/b.png"]
