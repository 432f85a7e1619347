"""Writes docs/report.md: the paper's tables and figures beside our numbers, its claims, the atlas and the method."""

import os
import re
from pathlib import Path
from string import Template

import yaml

from . import atlas_table, figures, recorded, tables
from .markdown import NOTHING, duration, fixed, interval, number, table, text

FINDINGS = Path(__file__).resolve().parent / "findings.yaml"
TEMPLATE = Path(__file__).resolve().parent / "report_template.md"
MARK = "†"
PICTURES = Path("assets") / "report"  # in the folder of the report
_LEFT = {
    "none": "no encoding",
    "learned": "learned table, as in BERT",
    "sinusoidal:scale_embedding=true": "sinusoidal",
    "rope": "RoPE",
}
_RIGHT = {"none": "no encoding", "learned": "learned table", "rope": "RoPE"}


def write(results, output):
    """Writes report.md and its pictures to `output`, and atlas.csv to `results`.

    Raises OSError, or ValueError that names the file and what is wrong.
    """
    found, output = recorded.read(results), Path(output)
    pictures = output / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    entries = atlas_table.entries(found)
    drawn = _draw(found, entries, pictures)
    atlas_table.write_csv(entries, Path(results) / "atlas.csv")
    page = render(found, entries, drawn, os.path.relpath(results, output))
    (output / "report.md").write_text(page, encoding="utf-8")


def _draw(found, entries, folder):
    """The names of the pictures that there are results for."""
    drawn = []
    for name, experiment, draw in (
        ("figure2", "decay", lambda path: figures.figure_2(found, path)),
        ("figure3-left", "convergence", lambda path: figures.figure_3(found.results["convergence"], path, _LEFT)),
        (
            "figure3-right",
            "linear-language-model",
            lambda path: figures.figure_3(found.results["linear-language-model"], path, _RIGHT),
        ),
        ("atlas", "atlas", lambda path: figures.atlas(entries, path)),
    ):
        if experiment in found.results:
            draw(folder / f"{name}.svg")
            drawn.append(name)
    return drawn


def render(found, entries, drawn, results):
    """The page as Markdown. `results`: the folder of the results, relative to the page."""
    findings = _findings(found)
    parts = {
        "results": results,
        "summary": _summary(found, findings),
        "marks": _marks(found),
        "tables": "\n\n".join(_comparison(found, each, results) for each in tables.comparisons(found)),
        "figure2": _picture("figure2", "Upper bound of the rotated score by distance", drawn),
        "figure3_left": _picture("figure3-left", "Masked-LM loss by training step", drawn),
        "figure3_right": _picture("figure3-right", "Loss of linear attention by training step", drawn),
        "claims": _claims(found, findings),
        "atlas_picture": _picture("atlas", "Loss at the training length and at eight times it, by encoding", drawn),
        "atlas": _atlas(entries),
        "experiments": _experiments(found, results),
    }
    page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(parts)
    return re.sub(r"\n{3,}", "\n\n", page)


def verdict_of(found, claim, experiments):
    """The verdicts of a claim's experiments, each once: "proved; refuted"."""
    verdicts = [found.results[name]["verdicts"].get(claim) for name in experiments if name in found.results]
    return "; ".join(filter(None, verdicts)) or ("not run" if experiments else "no experiment")


def _findings(found):
    """{claim: its entry of findings.yaml with text, experiments and source, and the verdict of these results}."""
    findings = yaml.safe_load(FINDINGS.read_text(encoding="utf-8"))
    claims = {claim["id"]: claim for claim in found.claims}
    asked = {}
    for result in found.results.values():
        for claim in result["verdicts"]:
            asked.setdefault(claim, []).append(result["name"])
    for claim in (*claims, *asked):
        if claim not in findings:
            raise ValueError(f"[report] findings.yaml must have {claim}")
    for claim, entry in findings.items():
        of_paper = claims.get(claim, {})
        entry["experiments"] = of_paper.get("experiments", asked.get(claim, []))
        entry["text"] = of_paper.get("text") or entry["claim"]
        entry["source"] = of_paper.get("source", "")
        verdict = verdict_of(found, claim, entry["experiments"])
        if verdict != entry["verdict"]:
            entry["found"] = NOTHING  # the sentence is about other results
        entry["verdict"] = verdict
    return findings


def _summary(found, findings):
    counts = {}
    for claim in found.claims:
        verdicts = dict.fromkeys(findings[claim["id"]]["verdict"].split("; "))
        verdict = next(iter(verdicts)) if len(verdicts) == 1 else "split between experiments"
        counts.setdefault(verdict, []).append(claim["id"])
    lines = [[f"**{verdict}**", str(len(which)), ", ".join(which)] for verdict, which in counts.items()]
    return table(["verdict", "claims", "which"], lines)


def _marks(found):
    """What the mark means, with the experiments that have it."""
    weak = [(name, result.weaknesses) for name, result in found.results.items() if result.weaknesses]
    if not weak:
        return ""
    reasons = {}
    for name, why in weak:
        reasons.setdefault("; ".join(why), []).append(name)
    said = ". ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
    return f"{MARK} marks results that deserve less trust. {text(said)}."


def _mark(found, experiment):
    return f" {MARK}" if experiment in found.results and found.results[experiment].weaknesses else ""


def _comparison(found, each, results):
    setting = f"{each.setting} Experiment: {_link(found, each.experiment, results)}{_mark(found, each.experiment)}."
    return f"### {each.heading}\n\n{setting}\n\n{table(each.columns, each.rows)}"


def _link(found, experiment, results):
    if experiment not in found.results:
        return f"{text(experiment)} (not run)"
    scale = found.results[experiment]["scale"]
    return f"[{text(experiment)}]({results}/{scale}/{experiment}/result.json)"


def _picture(name, title, drawn):
    return f"![{title}]({PICTURES.as_posix()}/{name}.svg)" if name in drawn else ""


def _claims(found, findings):
    rows = []
    for claim, entry in findings.items():
        marks = "".join(dict.fromkeys(_mark(found, name) for name in entry["experiments"]))
        source = f" ({text(entry['source'])})" if entry["source"] else ""
        rows.append(
            [
                claim,
                text(entry["text"]) + source,
                f"**{text('; '.join(dict.fromkeys(entry['verdict'].split('; '))))}**{marks}",
                _effect(found, claim, entry["experiments"]),
                text(entry["found"]),
            ]
        )
    return table(["", "claim", "verdict", "effect [95 % interval]", "finding"], rows)


def _effect(found, claim, experiments):
    for name in experiments:
        for check in found.results[name].checks(claim) if name in found.results else []:
            if check.get("mean") is not None:
                what = re.split(": (?=above|below|between)", check["text"])[0]
                return f"{interval(check)}: {text(what)}"
    measured = [found.results[name] for name in experiments if name in found.results]
    measured = [result for result in measured if result.get("kind", "") == "measurement"]
    return text(measured[0]["figures"][claim]) if measured else NOTHING


def _atlas(entries):
    rows = []
    for entry in entries:
        mean, low, high = entry.less_rope
        difference = NOTHING if mean is None else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]".replace("-", "\u2212")
        accuracies = [entry.accuracies.get(task) for task in ("copy back", "first occurrence", "count")]
        rows.append(
            [
                f"`{entry.name}`",
                *(fixed(entry.loss(length), 3) for length in atlas_table.LENGTHS),
                difference,
                fixed(entry.time, 2),
                *(fixed(None if value is None else 100 * value, 0) for value in accuracies),
            ]
        )
    columns = ["encoding", *map(str, atlas_table.LENGTHS), "vs RoPE", "time", "copy, %", "first, %", "count, %"]
    return table(columns, rows)


def _experiments(found, results):
    rows = []
    for name, result in found.results.items():
        seconds = sum(part.get("seconds", 0.0) for run in result.runs for part in run.get("parts", []))
        rows.append(
            [
                _link(found, name, results) + _mark(found, name),
                text(result["title"]),
                ", ".join(result["claims"]) or NOTHING,
                number(len(result.get("seeds", [])) or None),
                duration(max(seconds, result["seconds"])),
            ]
        )
    return table(["experiment", "question", "claims", "seeds", "time"], rows)
