"""The atlas of encodings on made-up results: each number of the files in its row, dashes where there are none."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from report_support import Elements, result, write_result
from roformer_cpp.report import __main__ as command
from roformer_cpp.report import atlas as atlas_page
from roformer_cpp.report import results, small_multiples

ENCODINGS = ["none", "first & <b>", "rope", "new"]
LOSSES = {"none": {128: [1.9, 2.1], 256: [2.5, 2.7]}, "rope": {128: [1.5, 1.25]}}
ACCURACIES = {"none": {64: [0.25, 0.75], 128: [0.125, 0.25]}, "first & <b>": {64: [1.0, 1.0]}}
COSTS = {"none": [1000, 3e-3, 1.25], "rope": [1200, 1e-3, 1.0]}


def measures(values, name):
    return [
        {"name": name.format(length), "arm": arm, "seed": seed, "value": value}
        for arm, by_length in values.items()
        for length, of_seeds in by_length.items()
        for seed, value in enumerate(of_seeds, 1)
    ]


def atlas(scale="small", **changes):
    columns = ["encoding", "parameters", "learning rate", "loss at 128 tokens, nats per token", "time, of rope's"]
    rows = [[name, count, rate, 99.0, time] for name, (count, rate, time) in COSTS.items()]
    return result(
        "atlas",
        scale,
        **{"table": {"columns": columns, "rows": rows}, "claims": [], "verdicts": {}, "figures": {}}
        | {"series": [], "maps": [], "measures": measures(LOSSES, "loss at {} tokens, nats per token")}
        | changes,
    )


def battery(scale="small", **changes):
    other = {"name": "count, accuracy at 128 tokens less that at 64", "arm": "none", "seed": 1, "value": 0.0625}
    found = [*measures(ACCURACIES, "count, accuracy at {} tokens"), other]
    empty = {"claims": [], "verdicts": {}, "figures": {}, "series": [], "maps": []}
    empty["table"] = {"columns": ["encoding", "task", "learning rate"], "rows": [["none", "count", 0.01]]}
    return result("synthetic", scale, **empty | {"measures": found} | changes)


@pytest.fixture
def directory(tmp_path):
    register = {"claims": [], "tables": []}
    register["encodings"] = [{"name": name, "summary": f"about {name}", "source": "a paper"} for name in ENCODINGS]
    (tmp_path / "reproduced").mkdir()
    (tmp_path / "reproduced" / "register.json").write_text(json.dumps(register))
    write_result(tmp_path / "reproduced", result("order", "small"))
    return tmp_path / "reproduced"


def made(directory):
    return atlas_page.render(results.read(directory))


def test_every_number_is_in_its_row(directory):
    write_result(directory, atlas())
    write_result(directory, battery())
    html = made(directory)
    losses, accuracies, costs = Elements(html).tables
    assert losses == [
        ["encoding", "128 bytes", "256 bytes", "learning rate"],
        ["none", 2.0, 2.6, 0.003],
        ["first & <b>", "–", "–", "–"],
        ["rope", 1.375, "cannot read", 0.001],
        ["new", "–", "–", "–"],
    ]
    assert accuracies == [
        ["encoding", "count, 64", "count, 128", "count, learning rate"],
        ["none", 0.5, 0.1875, 0.01],
        ["first & <b>", 1.0, "cannot read", "–"],
        ["rope", "–", "–", "–"],
        ["new", "–", "–", "–"],
    ]
    assert costs == [
        ["encoding", "parameters", "time, of rope's"],
        ["none", 1000, 1.25],
        ["first & <b>", "–", "–"],
        ["rope", 1200, 1.0],
        ["new", "–", "–"],
    ]
    for ends in ("2.000<br>", ">1.900–2.100<", "50.0<br>", ">25.0–75.0<"):  # of the seeds
        assert ends in html
    for cost in ('"1.25">1.25<', '"1.0">1.00<', '"1200">1,200<'):  # as many decimals in each row
        assert cost in html


def test_what_was_trained_is_said_from_the_settings(directory):
    model = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6}
    run = {"model": model, "stages": [{"steps": 1500, "batch": 8, "max_length": 128}], "evaluate_batches": 7}
    run |= {"objective": "causal", "schedule": {"kind": "cosine", "warmup_steps": 90}}
    write_result(directory, atlas(settings={"design": {"run": run}}))
    write_result(directory, battery(settings={"run": run | {"evaluate_batches": 0}}))
    html = made(directory)
    models = "models of 3 layers of 48 with 6 heads, trained for 1,500 steps of 8 rows of 128"
    rate = "learning rate cosine after 90 steps of warm-up"
    assert f"{models} bytes; {rate}. The held-out loss is that of the first 7 batches of held-out text." in html
    assert f"{models} symbols; {rate}.</p>" in html
    assert "count: count how often a letter was there before (23 %)" in html and "copy back: " not in html
    write_result(directory, atlas(settings={"design": {"run": {"model": model, "stages": []}}}))
    assert "loss is that of the first" not in made(directory)


def test_losses_are_compared_with_rope_by_seeds(directory):
    less = ["loss at 128 tokens less rope's, nats per token", "from, 95 %", "to, 95 %"]
    rows = [["none", 0.625, 0.5, 0.75, 9.0], ["rope", 0.0, None, None, 8.0]]
    write_result(directory, atlas(table={"columns": ["encoding", *less, "peak MiB"], "rows": rows}))
    html = made(directory)
    losses, costs = Elements(html).tables[0], Elements(html).tables[-1]
    assert [row[3] for row in losses] == ["128 bytes, less rope's", 0.625, "–", "–", "–"]
    assert ">+0.625<br>" in html and ">[+0.500, +0.750]<" in html
    assert costs[0] == ["encoding", "peak MiB"] and costs[1] == ["none", 9.0]


def test_how_far_apart_the_same_encodings_are(directory):
    names = ["rope", "mrope", "axial", "axial-nd"]
    register = json.loads((directory / "register.json").read_text())
    register["encodings"] += [{"name": name, "summary": "", "source": ""} for name in names[1:]]
    (directory / "register.json").write_text(json.dumps(register))
    assert "differ by up to" not in made(directory)
    losses = dict(zip(names, ({128: [1.5], 256: [9.0]}, {128: [1.25]}, {128: [2.0]}, {128: [2.125]}), strict=True))
    write_result(directory, atlas(measures=measures(losses, "loss at {} tokens, nats per token")))
    right = {"rope": {64: [0.25, 0.75]}, "mrope": {64: [0.25, 0.25], 128: [1.0]}, "axial": {64: [0.5]}}
    write_result(directory, battery(measures=measures(right, "count, accuracy at {} tokens")))
    html = made(directory)
    assert "Means of the loss at the training length differ by up to 0.250 nats." in html
    assert "Means of the accuracy differ by up to so many points: 25.0 (count)." in html


def test_one_seed_has_no_range(directory):
    write_result(directory, atlas(measures=measures({"none": {128: [2.0]}}, "loss at {} tokens, nats per token")))
    html = made(directory)
    assert '<data value="2.0">2.000</data>' in html and 'd="M' not in re.sub('<path class="axis"[^>]*>', "", html)


def answered():
    columns = ["encoding", "task", "learning rate", "accuracy at 64 tokens", "can do it", "better than none"]
    rows = [["none", "count", 1e-3, 0.5, "not learned", None], ["rope", "count", 1e-3, 0.9, "yes", "not shown"]]
    part = {"measure": "count, accuracy at 64 tokens", "arm": "rope"}
    rule = {
        "parts": [part | {"above": -0.02}],
        "preconditions": [part | {"above": 0.95}, part | {"above": 0.03, "against": "none"}],
    }
    return battery(table={"columns": columns, "rows": rows}, rules={"X-20": rule})


def test_what_an_encoding_can_do_is_said_and_what_that_means(directory):
    write_result(directory, answered())
    html = made(directory)
    assert '<th><button type="button">count: can do it</button></th>' in html  # sorted as texts
    page = Elements(html)
    assert page.tables[2] == [
        ["encoding", "count: can do it", "count: better than none"],
        ["none", "not learned", "–"],
        ["first & <b>", "–", "–"],
        ["rope", "yes", "not shown"],
        ["new", "–", "–"],
    ]
    for meaning in (
        "is above 95 %",
        "a model without an encoding, by more than 3 points",
        "lower by less than 2 points",
    ):
        assert meaning in page.text
    write_result(directory, answered() | {"rules": {}})
    assert "more than" not in Elements(made(directory)).text


@pytest.mark.parametrize(
    "losses, is_edge", [([2.0, 1.0, 3.0], False), ([1.0, 2.0, 3.0], True), ([3.0, None, 2.0], True), ([None] * 3, True)]
)
def test_a_rate_at_the_edge_of_those_tried_is_said(directory, losses, is_edge):
    rates = [0.001, 0.003, 0.01]
    inside = {"arm": "none", "rates": rates, "losses": [2.0, 1.0, 2.0]}
    write_result(directory, battery(rates=[inside, {"arm": "rope on count", "rates": rates, "losses": losses}]))
    write_result(directory, atlas(rates=[inside]))
    found = re.findall(r"a better one may lie beyond: ([^<]*)\.<", made(directory))
    assert [name.partition(" (")[0] for name in found] == ["rope on count"] * is_edge


@pytest.mark.parametrize(
    "whole, is_edge", [({0.001: 1.2, 0.003: 1.1}, False), ({0.001: 1.0, 0.003: 1.1}, True), ({0.003: 1.1}, True)]
)
def test_whole_runs_choose_and_must_have_tried_a_lower_rate(directory, whole, is_edge):
    tried = {"arm": "rope", "rates": [0.001, 0.003, 0.01], "losses": [2.0, 1.0, 3.0]}
    tried["whole"] = {"rates": list(whole), "losses": list(whole.values())}
    write_result(directory, atlas(rates=[tried]))
    assert ("a better one may lie beyond: rope (" in made(directory)) == is_edge


def test_options_of_arms_are_said(directory):
    write_result(directory, atlas(settings={"design": {"arms": ["none", "rope:window=64", "new:grid=[-1,8]:a=<b>"]}}))
    write_result(directory, battery(settings={"arms": ["none", "rope:window=32"]}))
    html = made(directory)
    assert "about rope. a paper. Options: window=64 in atlas; window=32 in synthetic<" in html
    assert "Options: grid=[-1,8]:a=&lt;b&gt; in atlas<" in html and "about none. a paper</p>" in html


@pytest.mark.parametrize("value, message", [([], "a loss for each rate"), (["1"], "must have numbers")])
def test_broken_rates_are_named(directory, value, message):
    path = write_result(directory, atlas(rates=[{"arm": "none", "rates": [1.0], "losses": value}]))
    with pytest.raises(ValueError, match=re.escape(f"rates[0] of {path}")) as error:
        results.read(directory)
    assert message in str(error.value)
    whole = {"rates": [1.0], "losses": value}
    path = write_result(directory, atlas(rates=[{"arm": "none", "rates": [1.0], "losses": [2.0], "whole": whole}]))
    with pytest.raises(ValueError, match=re.escape(f"whole of rates[0] of {path}")) as error:
        results.read(directory)
    assert message in str(error.value)


def test_what_is_missing_is_said(directory):
    text = Elements(made(directory)).text
    assert "the language models of all encodings (roformer reproduce atlas)" in text
    assert "the synthetic tasks of all encodings (roformer reproduce synthetic)" in text
    assert all(row[1:] == ["–"] for table in Elements(made(directory)).tables for row in table[1:])
    write_result(directory, atlas())
    text = Elements(made(directory)).text
    assert "the language models of first & <b>, new (roformer reproduce atlas)" in text and "Diverged" not in text
    write_result(directory, atlas(measures=[m for m in atlas()["measures"] if m["arm"] != "rope"]))
    text = Elements(made(directory)).text
    assert "Diverged with every seed, and a dash below: the language models of rope." in text


@pytest.mark.parametrize(
    "change, words, is_shown",
    [
        ({"scale": "tiny"}, "is a smoke run", True),
        ({"machine": {"commit": "abc-dirty"}}, "is not shown: it was run by a program whose files no commit", False),
        ({"kind": "training"}, "is not shown: which programs trained its runs was not recorded", False),
    ],
)
def test_results_that_decide_nothing_are_marked(directory, change, words, is_shown):
    write_result(directory, atlas() | change)
    page = Elements(made(directory))
    assert words in page.text
    assert (["none", 2.0, 2.6, 0.003] in page.tables[0]) is is_shown


def test_the_page_loads_nothing_and_runs_its_own_script_alone(directory):
    write_result(directory, atlas())
    write_result(directory, battery())
    html = made(directory)
    page = Elements(html)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1 and not {"link", "img", "iframe", "object", "embed"} & set(tags)
    for _, attributes in page.elements:
        assert not {"src", "href", "onclick", "onload"} & set(attributes)
    assert "@import" not in html and "url(" not in html and "<b>" not in html
    assert "prefers-color-scheme: dark" in html and "auto-fill" in html
    labels = [attributes["aria-label"] for tag, attributes in page.elements if tag == "svg"]
    assert labels == [
        "none: loss, nats per byte, 2 (1.9 to 2.1) at 128, 2.6 (2.5 to 2.7) at 256",
        "none: count 50.0 (25.0 to 75.0) % at 64, count 18.8 (12.5 to 25.0) % at 128",
        "first & <b>: count 100.0 (100.0 to 100.0) % at 64",
        "rope: loss, nats per byte, 1.375 (1.25 to 1.5) at 128",
    ]


def of_seeds(by_length):
    return {length: small_multiples.OfSeeds(tuple(values)) for length, values in by_length.items()}


def points(svg):
    return [tuple(map(float, point.split(","))) for point in re.search(r'points="([^"]+)"', svg)[1].split()]


def test_pictures_have_one_scale():
    reach = small_multiples.Reach.of([of_seeds({128: [2.0], 512: [3.0]}), of_seeds({128: [1.0]})])
    svg = small_multiples.loss_by_length("a", of_seeds({128: [2.0], 256: [1.0], 512: [3.0]}), reach)
    left, middle, right = points(svg)
    assert middle[0] == pytest.approx((left[0] + right[0]) / 2, abs=0.1)  # twice and four times
    assert left[1] == pytest.approx((middle[1] + right[1]) / 2, abs=0.1)
    bars = small_multiples.accuracy_bars("a", {"count": of_seeds({64: [0.25], 128: [1.0]})})
    widths = {kind: re.findall(rf'class="{kind}"[^>]* width="([\d.]+)"', bars) for kind in ("bar", "track")}
    assert [float(bar) / float(track) for bar, track in zip(*widths.values(), strict=True)] == pytest.approx([0.25, 1])


def test_pictures_have_the_range_of_the_seeds():
    losses = of_seeds({128: [1.0, 1.5, 3.0], 256: [2.0, 2.0, 2.0]})
    svg = small_multiples.loss_by_length("a", losses, small_multiples.Reach.of([losses]))
    low, high = (float(y) for y in re.search(r'class="range" d="M[\d.]+ ([\d.]+)V([\d.]+)"', svg).groups())
    middle = points(svg)[1][1]
    assert low > high and middle == pytest.approx((low + high) / 2, abs=0.1)  # of 1, 3 and 2
    bars = small_multiples.accuracy_bars("a", {"count": of_seeds({64: [0.0, 0.25, 1.0]})})
    left, width = (int(re.search(rf'class="track"[^>]* {key}="(\d+)"', bars)[1]) for key in ("x", "width"))
    ends = re.search(r'class="range" d="M([\d.]+) [\d.]+H([\d.]+)"', bars).groups()
    assert list(map(float, ends)) == [left, left + width]


def test_an_axis_of_losses_that_ends_before_the_highest_says_so(directory):
    name = "loss at {} tokens, nats per token"
    write_result(directory, atlas(measures=measures({"none": {128: [1.5], 256: [9.0]}}, name)))
    html = made(directory)
    assert "The axis of losses ends at ln 256 = 5.545 nats per byte" in html and ">ln 256</text>" in html
    assert '<data value="9.0">9.000</data>' in html and "9 at 256" in html  # the numbers are whole
    assert html.count("<circle") == html.count('<path class="dot"') == 1
    assert points(html)[1][1] == 8  # the top
    for values in ([1.5], [5.0]), ([9.0], [9.5]):  # no loss beyond, and nothing else
        write_result(directory, atlas(measures=measures({"none": dict(zip((128, 256), values, strict=True))}, name)))
        assert "ln 256" not in made(directory)


def test_the_report_writes_it_where_the_register_has_encodings(directory, tmp_path):
    (tmp_path / "with").mkdir()
    assert command.main([str(directory), "--output", str(tmp_path / "with")]) == 0
    assert (tmp_path / "with" / "atlas.html").read_text(encoding="utf-8") == made(directory)
    (directory / "register.json").write_text(json.dumps({"claims": [], "tables": []}))
    assert command.main([str(directory), "--output", str(tmp_path / "without")]) == 0
    assert not (tmp_path / "without" / "atlas.html").exists()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_columns_are_sorted_and_dashes_are_last(tmp_path):
    """The page's script in node, on elements that have what it uses."""
    (tmp_path / "sort.js").write_text(_TABLE + atlas_page._SCRIPT + _CLICKS)
    done = subprocess.run(["node", tmp_path / "sort.js"], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [["b", 1], ["a", 10], ["d", 10], ["c", "–"]],  # by number, rising
        [["a", 10], ["d", 10], ["b", 1], ["c", "–"]],  # falling; equal ones keep their order
        [["a", 10], ["b", 1], ["c", "–"], ["d", 10]],  # by name
    ]


_TABLE = """
const rows = [["a", 10], ["b", 1], ["c", "–"], ["d", 10]].map((values) => ({
  cells: values.map((value) => ({
    textContent: String(value),
    querySelector: () => (typeof value === "number" ? { value: String(value) } : null),
  })),
  values,
}));
const body = { rows, append(...sorted) { this.rows = sorted; } };
const line = { children: [] };
const heads = ["", "number"].map((kind) => ({
  attributes: {}, parentElement: line, classList: { contains: (name) => name === kind },
  closest: () => ({ tBodies: [body] }),
  getAttribute(name) { return this.attributes[name] ?? null; },
  setAttribute(name, value) { this.attributes[name] = value; },
  removeAttribute(name) { delete this.attributes[name]; },
}));
line.children = heads;
const clicks = [];
const buttons = heads.map((head) => ({ parentElement: head, addEventListener: (_, call) => clicks.push(call) }));
const document = { querySelectorAll: () => buttons };
"""
_CLICKS = """
for (const column of [1, 1, 0]) {
  clicks[column]();
  console.log(JSON.stringify(body.rows.map((row) => row.values)));
}
"""


@pytest.mark.parametrize(
    "value, message",
    [("1", 'value of measures[0] of {path} must be a number or null, got "1"')],
)
def test_a_broken_measure_is_named(directory, capsys, value, message):
    path = write_result(
        directory, atlas(measures=[{"name": "loss at 128 tokens", "arm": "none", "seed": 1, "value": value}])
    )
    assert command.main([str(directory), "--output", str(directory.parent / "out")]) == 1
    assert message.format(path=path) in capsys.readouterr().err


def test_the_committed_atlas_is_that_of_its_results():
    """docs/report/atlas.html is made from experiments/results."""
    root = Path(__file__).resolve().parents[2]
    recorded = root / "experiments" / "results"
    page = atlas_page.render(results.read(recorded))
    assert page == (root / "docs" / "report" / "atlas.html").read_text(encoding="utf-8")
    register = json.loads((recorded / "register.json").read_text())
    tables = Elements(page).tables
    for table in tables:
        assert [row[0] for row in table[1:]] == [encoding["name"] for encoding in register["encodings"]]
