"""Made-up results of `roformer reproduce` and a reader of pages, for the tests of reports."""

import json
from html.parser import HTMLParser


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
