"""A report on the results of `roformer reproduce`: one HTML file and one of Markdown, with pictures; and the atlas of
position encodings, a page of its own.

    python -m roformer_cpp.report reproduced --output report

All numbers, texts and verdicts are those of the files read (docs/reproduce.md, "Output"); the same files give the same
report, to the byte.
"""

from pathlib import Path

from . import atlas, markdown, page, pictures, results

__all__ = ["write"]


def write(directory, output):
    """Writes report.html, report.md, atlas.html and pictures/ into ``output``.

    ``directory``: the output directory of `roformer reproduce`; atlas.html needs a register with encodings.
    Raises OSError or ValueError that names the file; ImportError without matplotlib.
    """
    found, output = results.read(directory), Path(output)
    (output / "pictures").mkdir(parents=True, exist_ok=True)
    drawn = {result.name: pictures.draw(result, output / "pictures") for result in found.results}
    theory = pictures.draw_theory(output / "pictures")
    (output / "report.html").write_text(page.render(found, drawn, theory, output / "pictures"), encoding="utf-8")
    if found.encodings:
        (output / "atlas.html").write_text(atlas.render(found), encoding="utf-8")
    (output / "report.md").write_text(markdown.render(found, drawn, theory), encoding="utf-8")
