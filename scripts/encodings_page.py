"""Writes the tables of docs/encodings.md from `roformer info --encodings`; --check says whether they are up to date."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "encodings.md"
BEGIN = (
    "<!-- encodings: scripts/encodings_page.py writes what is between these lines from `roformer info --encodings` -->"
)
END = "<!-- end of encodings -->"
HEADING = """\
### Engine, ONNX files and lengths

What terms depend on beside positions; whether [the engine](engine.md) opens a saved model, and whether it then needs
`position_terms.safetensors` (a file); whether the model can be [an ONNX file](convert.md#onnx); and how long a sequence
may be. Each is found by asking a small model with the default keys."""
LENGTHS = {
    "all": "any length",
    "stored": "as long as stored; [`bake`](how-to.md#read-sequences-that-are-longer-than-those-a-file-was-written-for)",
    "table": "to `max_position_embeddings`",
}


def cell(text):
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def row(cells):
    return "| " + " | ".join(cells) + " |"


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
        lines.append(row([info["name"], reads or "-", engine + file, onnx, LENGTHS[info["lengths"]]]))
    return "\n".join(lines)


def page(text, infos):
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n{table(infos)}\n{END}{tail}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=ROOT / "build" / "release" / "roformer", help="the built roformer")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page is out of date")
    arguments = parser.parse_args()
    lines = subprocess.run(
        [arguments.program, "info", "--encodings"], check=True, capture_output=True, text=True
    ).stdout
    text = PAGE.read_text(encoding="utf-8")
    new = page(text, [json.loads(line) for line in lines.splitlines()])
    if not arguments.check:
        PAGE.write_text(new, encoding="utf-8")
    elif new != text:
        print(f"{PAGE} must be what scripts/encodings_page.py writes, got another table", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
