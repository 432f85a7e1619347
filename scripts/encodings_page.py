"""Writes the tables of docs/encodings.md from `roformer info --encodings`; --check says whether they are up to date.

The table of publications is kept by hand, and gets a line for each encoding that none of its lines names, with the
source of the encoding's entry.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from page_tables import parser_of, row, with_body, written

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "encodings.md"
BEGIN = (
    "<!-- encodings: scripts/encodings_page.py writes what is between these lines from `roformer info --encodings` -->"
)
END = "<!-- end of encodings -->"
HEADING = """\
### Engine, ONNX files and lengths

The table lists the inputs of the terms other than positions, whether [the engine](engine.md) opens a saved model
("with a file": it needs `position_terms.safetensors`), whether the model can be exported to [ONNX](convert.md#onnx),
and the longest sequence. Each value is found by running a small model with the default keys."""
LENGTHS = {
    "all": "any length",
    "stored": "as long as stored; [`bake`](how-to.md#run-a-model-on-longer-sequences)",
    "table": "to `max_position_embeddings`",
}


def cell(text):
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def table(infos):
    lines = [row(["encoding", "what it does", "equation", "terms", "source"]), "|---|---|---|---|---|"]
    for info in infos:
        name = f"[{info['name']}](../{info['file']})"
        equation = f"`{info['equation'].replace('|', chr(92) + '|')}`"
        lines.append(row([name, cell(info["summary"]), equation, cell(info["terms"]), cell(info["source"])]))
    lines += ["", row(["encoding", "parameters", "cost per layer", "pairwise", "extrapolates", "keys", "test"])]
    lines.append("|---|---|---|---|---|---|---|")
    for info in infos:
        keys = ", ".join(f"`{key}`" for key in info["keys"]) or "-"
        test = f"[{Path(info['test']).name}](../{info['test']})"
        needs = " (causal only)" if info["needs_causal"] else ""
        pairwise = "yes" if info["pairwise"] else "no"
        cells = [info["name"] + needs, cell(info["parameters"]), cell(info["cost"]), pairwise]
        lines.append(row([*cells, cell(info["extrapolates"]), keys, test]))
    lines += ["", HEADING, "", row(["encoding", "reads", "engine", "ONNX file", "sequences"]), "|---|---|---|---|---|"]
    for info in infos:
        reads, engine = ", ".join(info["reads"]), "yes" if info["engine"] else f"no: {cell(info['engine_lacks'])}"
        file = " (with a file)" if info["engine"] and info["position_terms"] else ""
        onnx = "yes" if info["onnx"] else "no"
        limited = info["lengths"] == "all" and info["longest"] is not None
        lengths = f"to {info['longest']:,} tokens" if limited else LENGTHS[info["lengths"]]
        lines.append(row([info["name"], reads or "-", engine + file, onnx, lengths]))
    return "\n".join(lines)


def publications(text, infos):
    """The section "Publications" with lines for the encodings that it lacks, in the order of years."""
    head, body, tail = re.split(r"(?<=\n## Publications\n)|(?=\n## Using one\n)", text)
    first, *lines = body.rstrip("\n").split("\n|---|---|---|\n")
    lines = lines[0].split("\n")
    named = {name for line in lines for name in words_in_code(line)}
    for info in infos:
        if info["name"] not in named:
            year = re.search(r"\b(?:19|20)\d\d\b", info["source"])[0]
            published = re.sub(rf" {year}\b", "", info["source"])
            at = next((i for i, line in enumerate(lines) if line.split(" | ")[1][:4] > year), len(lines))
            lines.insert(at, row([cell(published), year, f"`{info['name']}`"]))
    return f"{head}{first}\n|---|---|---|\n" + "\n".join(lines) + f"\n{tail}"


def words_in_code(text):
    """Names in backticks; `a-m1` to `a-m4` are four."""
    words = set(re.findall(r"`([\w-]+)`", text))
    for stem, first, last in re.findall(r"`([\w-]+?)(\d+)` to `[\w-]+?(\d+)`", text):
        words |= {f"{stem}{number}" for number in range(int(first), int(last) + 1)}
    return words


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--program", default=ROOT / "build" / "release" / "roformer", help="the built roformer")
    given = parser.parse_args()
    lines = subprocess.run([given.program, "info", "--encodings"], check=True, capture_output=True, text=True).stdout
    infos = [json.loads(line) for line in lines.splitlines()]
    text = with_body(PAGE.read_text(encoding="utf-8"), BEGIN, END, table(infos))
    return written(PAGE, publications(text, infos), given.check)


if __name__ == "__main__":
    sys.exit(main())
