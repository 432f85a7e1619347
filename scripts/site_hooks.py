"""Extends MkDocs for the site; mkdocs.yml names this file.

Pages link as code hosts need it: relative to their own file, to any file of the repository. Links that leave docs/ lead
to pages that are added here: README.md, CONTRIBUTING.md, SECURITY.md and CHANGELOG.md, for the result of an experiment
a page that explains it, and for every other file or folder a page with its text.
Mathematics, a fence ```math or $`...`$, becomes MathML, which browsers draw without a script.
"""

import os
import re
import sys
from pathlib import Path, PurePosixPath

from math_core import LatexError, LatexToMathML
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from experiments import pages  # noqa: E402

DOCS = PurePosixPath("docs")
PAGES = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
}
LANGUAGES = dict(c="c", cpp="cpp", h="cpp", inc="cpp", json="json", md="markdown", py="python", sh="bash", toml="toml")
MAX_SOURCE_BYTES = 200_000
RESULT = re.compile(r"experiments/results/(?!runs/)\w+/[\w-]+\.parquet")
FENCE = re.compile(r"^(`{3,}|~{3,})")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
INLINE_MATH = re.compile(r"\$`([^`]+)`\$")

converter = LatexToMathML(fancy_error=False)
formulas: list[str] = []


def mathml(tex, displaystyle):
    try:
        return converter.convert_with_local_state(tex, displaystyle=displaystyle)
    except LatexError as error:
        raise PluginError(f"[site] mathematics must be LaTeX that math-core reads, got {tex}: {error}") from error


def placeholder(tex, displaystyle):
    """A word in place of a formula, which `on_page_content` replaces: Markdown would read the formula's characters."""
    formulas.append(mathml(tex, displaystyle))
    return f"formula{len(formulas) - 1}placeholder"


def target_of(link, page):
    """Where a link of a page leads, both as paths of the repository; None for another address."""
    path, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:|/", link) or not path:
        return None, anchor
    return PurePosixPath(os.path.normpath(page.parent / path)), anchor


def page_of(target):
    """The path under docs/ of the page for a file of the repository."""
    if target.is_relative_to(DOCS):
        return str(target.relative_to(DOCS))
    return PAGES.get(str(target), f"source/{target}.md")


def rewritten(link, page):
    """A link of the file `page` of the repository as its page on the site needs it."""
    target, anchor = target_of(link, page)
    if target is None:
        return link
    if not (ROOT / target).exists():
        return link  # MkDocs reports it
    if target.is_relative_to(DOCS) and (ROOT / target).is_dir():
        raise PluginError(f"[site] {page}: a link must lead to a file of docs/, got the folder {target}")
    path = os.path.relpath(page_of(target), PurePosixPath(page_of(page)).parent)
    return f"{path}#{anchor}" if anchor else path


def transformed(text, page):
    """Markdown of the repository to Markdown of the site: links and mathematics, outside code."""
    lines, fence, formula = [], "", []
    for line in text.splitlines():
        opened = FENCE.match(line)
        if fence:
            closes = opened and line.strip() == opened.group() and opened.group().startswith(fence)
            if closes and formula is not None:
                lines += ["", placeholder("\n".join(formula), displaystyle=True), ""]
            elif formula is not None:
                formula.append(line)
            else:
                lines.append(line)
            if closes:
                fence = ""
        elif opened:
            fence = opened.group()
            formula = [] if line.strip() == "```math" else None
            if formula is None:
                lines.append(line)
        elif line.startswith("    ") and not line.lstrip().startswith(("- ", "* ", "1.")):
            lines.append(line)
        else:
            line = INLINE_MATH.sub(lambda match: placeholder(match.group(1), displaystyle=False), line)
            lines.append(LINK.sub(lambda match: match[1] + rewritten(match[2], page) + match[3], line))
    if fence:
        raise PluginError(f"[site] {page}: a fence must be closed, got {fence} without its end")
    return "\n".join(lines) + "\n"


def source_page(target):
    """A page with the text of a file, or the texts of a folder's files; of an experiment's result, its page."""
    path = ROOT / target
    if RESULT.fullmatch(str(target)):
        return "---\nsearch: {exclude: true}\n---\n" + pages.render(path)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    parts = ["---", f"title: {target}", "search: {exclude: true}", "hide: [navigation, toc]", "---", f"# {target}"]
    for file in files:
        text = file.read_bytes()[:MAX_SOURCE_BYTES].decode("utf-8", errors="replace").rstrip("\n")
        longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
        fence = "`" * (longest + 1)
        if len(files) > 1:
            parts.append(f"\n## {file.relative_to(path)}")
        parts += ["", f"{fence}{LANGUAGES.get(file.suffix[1:], 'text')}", text, fence]
    return "\n".join(parts) + "\n"


def on_files(files, config):
    """Adds the pages for files outside docs/."""
    generated = {}
    for name, page in PAGES.items():
        generated[page] = transformed((ROOT / name).read_text(encoding="utf-8"), PurePosixPath(name))
    sources = [DOCS / file.src_uri for file in files.documentation_pages()] + [PurePosixPath(n) for n in PAGES]
    for source in sources:
        for match in LINK.finditer((ROOT / source).read_text(encoding="utf-8")):
            target, _ = target_of(match[2], source)
            if target is None or target.is_relative_to(DOCS) or str(target) in PAGES or not (ROOT / target).exists():
                continue
            if not (ROOT / target).resolve().is_relative_to(ROOT):
                continue
            generated[page_of(target)] = source_page(target)
    for page, text in generated.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.generated_by:
        return markdown
    return transformed(markdown, DOCS / page.file.src_uri)


def on_page_content(html, page, config, files):
    html = re.sub(
        r"<p>formula(\d+)placeholder</p>", lambda m: f'<div class="formula">{formulas[int(m[1])]}</div>', html
    )
    return re.sub(r"formula(\d+)placeholder", lambda match: formulas[int(match[1])], html)
