"""Made-up results of `roformer reproduce` and a reader of pages, for the tests of reports."""

import json
from html.parser import HTMLParser

from roformer_cpp import report
from roformer_cpp.report import __main__ as command
from roformer_cpp.report import results


def result(name, scale, **changes):
    return {
        "name": name,
        "spec": "X-01",
        "title": f"About {name}, a < b & c",
        "claims": ["C-01", "C-02"],
        "expected": "f(x) < 1e-12 & <script>alert(1)</script>",
        "scale": scale,
        "seeds": [1, 2],
        "settings": {"seeds": [1, 2]},
        "table": {
            "columns": ["encoding", "loss", "lowest", "highest"],
            "rows": [["rope", 3.0123456789, 2.9, 3.1], ["a|b <i>", 1.5e-13, None, 123456]],
        },
        "series": [
            {"name": f"{arm}, seed {seed}", "x": [10.0, 20.0, 30.0], "y": [3.0 * seed, 2.0, 1.0]}
            for arm in ("rope", "learned")
            for seed in (1, 2)
        ],
        "maps": [
            {
                "name": "Where <heads> look",
                "x_name": "offset",
                "value_name": "attention",
                "x": [-1, 0, 1],
                "y": ["head 1", "head 2"],
                "values": [[0.1, 0.5, 0.0], [0.2, 0.3, 1e-9]],
            }
        ],
        "verdicts": {"C-01": "supported", "C-02": "inconclusive"},
        "figures": {"C-01": "1.7e-15 & less", "C-02": "0.25"},
        "seconds": 12.5,
        "command": "roformer reproduce all --output <here>",
        "machine": {"cpu": "A & B", "cores": 2, "commit": "abc"},
        **changes,
    }


def write_result(directory, content):
    folder = directory / content["scale"] / content["name"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "result.json"


class Elements(HTMLParser):
    """Elements in order, the text of each table's cells, and the text of all."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.ids, self.tables, self.text, self.open = [], [], [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "data":
            self.tables[-1][-1][-1] = json.loads(dict(attributes)["value"])
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.text += data
        in_cell = ("td" in self.open or "th" in self.open) and "data" not in self.open
        if in_cell:
            self.tables[-1][-1][-1] += data


CLAIMS = [
    # id, status, source, experiments
    ("C-01", "testable", "paper section 1", ["order"]),
    ("C-02", "qualified", "paper Table 4", ["order", "training"]),
    ("C-03", "published only", "paper Table 1", []),
    ("C-04", "experiment", "a page", []),
    ("C-05", "experiment", "a page", ["absent"]),
]
TABLES = [
    ("R-TAB-1", "Translation", "arXiv 2104.09864 Table 1", ["model", "BLEU"], [["Transformer-base", 27.3]]),
    (
        "R-TAB-4",
        "Stages",
        "arXiv 2104.09864 Table 4",
        ["stage", "max length", "batch", "steps", "loss", "accuracy"],
        [[1, 512, 256, 200000, 1.73, 65.0], [2, 1536, 256, 12500, 1.61, 66.8]],
    ),
]


def write_results(reproduced):
    """Two experiments, one of them a smoke run."""
    smoke = {"C-02": "smoke run"}
    write_result(reproduced, result("training", "tiny", claims=["C-02"], verdicts=smoke, figures={"C-02": "0.5"}))
    write_result(reproduced, result("order", "small"))
    register = {
        "claims": [
            {"id": id, "text": f"Claim <{id}>", "source": source, "status": status, "note": "", "experiments": names}
            for id, status, source, names in CLAIMS
        ],
        "tables": [
            {"id": id, "title": title, "source": source, "columns": columns, "rows": rows}
            for id, title, source, columns, rows in TABLES
        ],
    }
    (reproduced / "register.json").write_text(json.dumps(register), encoding="utf-8")
    return reproduced


def make(directory, output):
    assert command.main([str(directory), "--output", str(output)]) == 0
    return (output / "report.html").read_text(encoding="utf-8"), (output / "report.md").read_text(encoding="utf-8")


def without_drawing(directory):
    """(report.html, report.md) without pictures."""
    found = results.read(directory)
    drawn = {result.name: [] for result in found.results}
    return report.page.render(found, drawn, [], directory), report.markdown.render(found, drawn, [])


def staged(**changes):
    """A result of staged pretraining: two stages, measured on two lengths."""
    columns = ["stage", "trained on", "batch", "steps", "measured on", "loss", "accuracy", "lowest", "highest"]
    rows = [
        [1, 128, 64, 300, 64, 4.5, 0.24, 0.235, 0.245],
        [1, 128, 64, 300, 128, 4.4, 0.25, 0.24, 0.26],
        [2, 384, 21, 60, 384, 4.2, 0.265, 0.26, 0.27],
    ]
    return result("staged-pretraining", "small", table={"columns": columns, "rows": rows}, **changes)


RULE = {"parts": [], "preconditions": [], "tuned": []}
PROCESS = {"command": "roformer reproduce training", "commit": "abc", "cpu": "A", "cores": 2, "threads": 1}
NO_COMMIT = {key: value for key, value in PROCESS.items() if key != "commit"}


def define(directory, **changes):
    """Adds the experiment `order` to the register."""
    path = directory / "register.json"
    register = json.loads(path.read_text(encoding="utf-8"))
    entry = {"name": "order", "revision": 1, "settings": {"small": {"seeds": [1, 2]}}, "rules": {"C-02": RULE}}
    register["experiments"] = [entry | changes]
    path.write_text(json.dumps(register), encoding="utf-8")
