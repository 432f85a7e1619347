"""Writes the report: the paper's tables and figures next to our numbers, its claims, the atlas and the method."""

import os
import re
from pathlib import Path
from string import Template

import yaml

from . import atlas_table, figures, judge, recorded, run, tables
from .markdown import NOTHING, duration, fixed, interval, number, table, text

FINDINGS = Path(__file__).resolve().parent / "findings.yaml"
TEMPLATE = Path(__file__).resolve().parent / "report_template.md"
DOCS = Path(__file__).resolve().parents[1] / "docs"
MARK = "†"
PICTURES = Path("assets") / "report"  # in the folder of the report
NOT_RUN = "not run"
_LEFT = {
    "none": "no encoding",
    "learned": "learned table, as in BERT",
    "sinusoidal:scale_embedding=true": "sinusoidal",
    "rope": "RoPE",
}
_RIGHT = {"none": "no encoding", "learned": "learned table", "rope": "RoPE"}
_KINDS = ("training", "count", "proof")  # of rules: the effect of the first one is shown


def write(folders, output=None):
    """Writes report.md and its pictures to `output`, and atlas.csv to the last of the folders of results.

    Args:
        output: default: docs/ of the repository for its own results, else the last of the folders.

    Raises OSError, or ValueError that names the file and what is wrong.
    """
    folders = list(map(Path, folders))
    if output is None:
        output = DOCS if folders == [recorded.RESULTS] else folders[-1]
    found, output = recorded.read(folders), Path(output)
    (output / PICTURES).mkdir(parents=True, exist_ok=True)
    report = _Report(found, folders[-1], output)
    (output / "report.md").write_text(report.page(), encoding="utf-8")


class _Report:
    """The page of results, with what all of its parts need."""

    def __init__(self, found, folder, output):
        self.found, self.folder, self.output = found, folder, output
        self.rules = {}
        for rule in judge.rules():
            self.rules.setdefault(rule.claim, []).append(rule)

    def page(self):
        """The page as Markdown; writes its pictures and atlas.csv."""
        found, findings = self.found, self._findings()
        entries = atlas_table.entries(found)
        csv = ""
        if found.get("atlas"):
            atlas_table.write_csv(entries, self.folder / "atlas.csv")
            csv = f"All columns: [atlas.csv]({self._relative(self.folder / 'atlas.csv')})."
        parts = {
            "summary": _summary(findings),
            "marks": self._marks(),
            "tables": "\n\n".join(map(self._comparison, tables.comparisons(found))),
            "figure2": self._picture(
                "figure2", "decay", "Factor of the bound on the rotated score, by distance", figures.figure_2
            ),
            "figure3_left": self._picture(
                "figure3-left",
                "convergence",
                "Masked-LM loss by training step",
                lambda result, path: figures.figure_3(result, path, _LEFT),
            ),
            "figure3_right": self._picture(
                "figure3-right",
                "linear-language-model",
                "Loss of linear attention by training step",
                lambda result, path: figures.figure_3(result, path, _RIGHT),
            ),
            "claims": self._claims(findings),
            "atlas_picture": self._picture(
                "atlas",
                "atlas",
                "Loss at the training length and at eight times it, by encoding",
                lambda _, path: figures.atlas(entries, path),
            ),
            "atlas_csv": csv,
            "atlas": _atlas(entries) if found.get("atlas") or found.get("synthetic") else "",
            "experiments": self._experiments(),
        }
        page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(parts)
        return re.sub(r"\n{3,}", "\n\n", page)

    def _relative(self, path):
        return os.path.relpath(path, self.output)

    def _findings(self):
        """{claim: its entry of findings.yaml with text and source, and the verdict of the report's results}."""
        findings = yaml.safe_load(FINDINGS.read_text(encoding="utf-8"))
        for claim in (*judge.claims(), *self.rules):
            if claim not in findings:
                raise ValueError(f"[report] findings.yaml must have {claim}")
        for claim, entry in findings.items():
            of_paper = judge.claims().get(claim, {})
            entry["text"] = of_paper.get("text") or entry["claim"]
            entry["source"] = of_paper.get("source", "")
            judged = [result for _, result in self._judged(claim)]
            verdicts = "; ".join(result.verdicts[claim]["verdict"] for result in judged)
            verdict = verdicts or (NOT_RUN if claim in self.rules else "no experiment")
            if verdict != entry["verdict"] or not all(map(recorded.is_recorded, judged)):
                entry["found"] = NOTHING  # the sentence is about other results
            entry["verdict"] = verdict
        return findings

    def _judged(self, claim):
        """(rule, result) of the claim's experiments that were run."""
        found = ((rule, self.found.get(rule.experiment)) for rule in self.rules.get(claim, []))
        return [(rule, result) for rule, result in found if result is not None and claim in result.verdicts]

    def _marks(self):
        """The meaning of the mark, with the experiments that have it."""
        reasons = {}
        for name, result in self.found.results.items():
            if result.weaknesses:
                reasons.setdefault("; ".join(result.weaknesses), []).append(name)
        if not reasons:
            return ""
        said = ". ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        return f"{MARK} marks results that deserve less trust. {text(said)}."

    def _comparison(self, each):
        result, setting = self.found.get(each.experiment), f"{each.setting} {self._how(each.experiment)}"
        if result and result.scale != "small":  # which the setting describes
            setting += f" The results here are of scale {result.scale}."
        return f"### {each.heading}\n\n{setting}\n\n{table(each.columns, each.rows)}"

    def _how(self, experiment):
        """Where the numbers of an experiment are, or how to get them."""
        result = self.found.get(experiment)
        if result:
            return f"Experiment: {_link(result, self._relative(result.path))}."
        command = f"python -m experiments {experiment} --scale small --output {self.folder} --data data"
        return f"Not run yet: `{command}` adds our numbers."

    def _picture(self, name, experiment, title, draw):
        result = self.found.get(experiment)
        if result is None:
            return self._how(experiment)
        draw(result, self.output / PICTURES / f"{name}.svg")
        return f"![{title}]({PICTURES.as_posix()}/{name}.svg)"

    def _claims(self, findings):
        rows = []
        for claim, entry in findings.items():
            marks = f" {MARK}" if any(result.weaknesses for _, result in self._judged(claim)) else ""
            source = f" ({text(entry['source'])})" if entry["source"] else ""
            verdicts = text("; ".join(dict.fromkeys(entry["verdict"].split("; "))))
            effect = self._effect(claim)
            rows.append([claim, text(entry["text"]) + source, f"**{verdicts}**{marks}", effect, text(entry["found"])])
        return table(["", "claim", "verdict", "effect [95 % interval]", "finding"], rows)

    def _effect(self, claim):
        for rule, result in sorted(self._judged(claim), key=lambda each: _KINDS.index(each[0].kind)):
            checks = [
                check for check in result.verdicts[claim]["checks"] if check["role"] == "part" and "mean" in check
            ]
            if checks:
                shown = checks if rule.kind == "count" else checks[:1]
                said = [check["text"].rpartition(": ")[0].removesuffix(", fraction") for check in shown]
                return "; ".join(f"{interval(check)}: {text(what)}" for check, what in zip(shown, said, strict=True))
        return NOTHING

    def _experiments(self):
        rows = []
        for result in self.found.results.values():
            made = result.about
            rows.append(
                [
                    _link(result, self._relative(result.path)),
                    text(result.question),
                    ", ".join(result.verdicts) or NOTHING,
                    number(len(made["settings"].get("seeds", [])) or None),
                    duration(result.seconds),
                    f"{result.date[:10] or NOTHING}, {text(made['commit'])}, {text(made['cpu'])}",
                ]
            )
        missing = [name for name in run.experiments() if name not in self.found.results]
        others = f"\n\nNot run yet: {', '.join(missing)}." if missing else ""
        return table(["experiment", "question", "claims", "seeds", "time", "date, commit, CPU"], rows) + others


def _link(result, path):
    return f"[{text(result.name)}]({path})" + (f" {MARK}" if result.weaknesses else "")


def _summary(findings):
    counts = {}
    for claim in judge.claims():
        verdicts = set(findings[claim]["verdict"].split("; "))
        verdict = verdicts.pop() if len(verdicts) == 1 else "split between experiments"
        counts.setdefault(verdict, []).append(claim)
    lines = [[f"**{verdict}**", str(len(which)), ", ".join(which)] for verdict, which in counts.items()]
    return table(["verdict", "claims", "which"], lines)


def _atlas(entries):
    rows = []
    for entry in entries:
        mean, low, high = entry.less_rope
        difference = NOTHING if mean is None else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]".replace("-", "\u2212")
        accuracies = [entry.accuracies.get(task) for task in ("copy back", "first occurrence", "count")]
        rows.append(
            [
                f"`{entry.name}`",
                *(fixed(entry.losses.get(length), 3) for length in atlas_table.MULTIPLES),
                difference,
                fixed(entry.time, 2),
                *(fixed(None if value is None else 100 * value, 0) for value in accuracies),
            ]
        )
    columns = ["encoding", *map(str, atlas_table.MULTIPLES), "vs RoPE", "time", "copy, %", "first, %", "count, %"]
    return table(columns, rows)
