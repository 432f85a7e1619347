"""What the report says of an experiment's models, of its command and of the columns of its table."""

import json
import math
import re

import pytest

from report_support import PROCESS, Elements, define, result, without_drawing, write_result
from roformer_cpp.report import designs, results, units

MODEL = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6}
RUN = {
    "model": MODEL,
    "objective": "masked",
    "stages": [{"steps": 1500, "batch": 8, "max_length": 128}],
    "schedule": {"kind": "linear", "warmup_steps": 0},
    "evaluate_batches": 0,
}
STAGES = [{"steps": steps, "batch": 8, "max_length": length} for steps, length in ((1000, 128), (250, 512))]
TEXT = "Encoders of 3 layers of 48 with 6 heads, trained for 1,500 steps of 8 rows of 128 tokens; learning rate linear."
TUNING = {"epochs": 1, "batch": 4, "learning_rates": [1e-4, 5e-4]}
TUNED = "Tuned for 1 epoch in batches of 4, with the learning rates 0.0001, 0.0005."
TRANSLATION = {
    "model": {"d_model": 64, "encoder_layers": 4, "decoder_layers": 2, "encoder_attention_heads": 8},
    "steps": 8000,
    "max_tokens": 4096,
}


def read(directory, **changes):
    write_result(directory, result("order", "small", **changes))
    return results.read(directory).result_of("order")


@pytest.mark.parametrize(
    "settings, text",
    [
        ({}, ""),
        ({"design": {"run": RUN}}, TEXT),
        ({"design": {"run_files": {"a": RUN, "b": RUN}}}, TEXT),
        ({"designs": {"laws": {"run": RUN}, "books": {"run": RUN}}, "tuning": TUNING}, f"{TEXT} {TUNED}"),
        ({"tuning": TUNING}, TUNED),
        ({"design": {"run": RUN, "corpus": {"tokens": "bytes"}}}, f"{TEXT} A token is a byte."),
        ({"design": {"run": RUN, "corpus": {"tokens": 4096}}}, TEXT),
        ({"run": RUN | {"stages": []}, "tuning": {}}, ""),
        (
            {"run": RUN | {"stages": STAGES}},
            TEXT.replace("1,500 steps of 8 rows of 128", "1,250 steps in 2 stages, of rows of 128 to 512"),
        ),
        (
            {"run": TRANSLATION},
            "Encoder-decoders of 4 + 2 layers of 64 with 8 heads, trained for 8,000 steps of batches of up to 4,096 "
            "tokens.",
        ),
    ],
)
def test_models_are_said_from_the_settings(directory, settings, text):
    assert designs.models(read(directory, settings=settings)) == text


def test_models_of_several_designs_are_named(directory):
    other = RUN | {"stages": [RUN["stages"][0] | {"steps": 600}]}
    settings = {"designs": {"books": {"run": RUN}, "laws": {"run": other}}}
    assert designs.models(read(directory, settings=settings)) == (f"books: {TEXT} laws: {TEXT.replace('1,500', '600')}")


@pytest.mark.parametrize(
    "scale, changes, command",
    [
        ("any", {"settings": {}}, "roformer reproduce order --output reproduced"),
        (
            "small",
            {"settings": {"files": ["a"]}},
            "roformer reproduce order --scale small --output reproduced --data data",
        ),
        (
            "small",
            {"training": [{"arm": "a", "seed": 1, "parts": [PROCESS]}]},
            "roformer reproduce order --scale small --output reproduced --threads 1",
        ),
        (
            "small",
            {"training": [{"arm": "a", "seed": 1, "parts": [PROCESS, PROCESS | {"threads": 2}]}]},
            "roformer reproduce order --scale small --output reproduced",
        ),
        (
            "any",
            {"settings": {}, "kind": "measurement", "machine": {"threads": 2}},
            "roformer reproduce order --output reproduced --threads 2",
        ),
    ],
)
def test_the_command_that_makes_it(directory, scale, changes, command):
    (directory / "small" / "order" / "result.json").unlink()
    write_result(directory, result("order", scale, **changes))
    assert designs.command(results.read(directory).result_of("order")) == command
    assert all(f"To make it again: {command}" in text.replace("<code>", "") for text in without_drawing(directory))


def test_metrics_of_tunings_are_not_negated(directory):
    """They are kept as losses; a correlation may be negative."""
    tried = {"arm": "a", "rates": [1e-4, 1e-3], "losses": [-0.5, 0.25]}
    found = read(directory, settings={"tuning": TUNING}, rates=[tried])
    assert designs._rates(found, "a") == "0.0001; tried: 0.0001 0.5, 0.001 -0.25"
    found = read(directory, settings={}, rates=[tried | {"losses": [2.5, 2.25]}])
    assert designs._rates(found, "a") == "0.001; tried: 0.0001 2.5, 0.001 2.25"


def test_what_a_reader_has_to_know_is_said(directory):
    write_result(directory, result("order", "small"))
    define(directory, note="rows lack <b>")
    html, markdown = without_drawing(directory)
    assert "rows lack <b>" in Elements(html).text and "rows lack &lt;b&gt;" in markdown


def test_judged_claims_head_the_page(directory):
    write_result(directory, result("order", "small"))
    for text in without_drawing(directory):
        _, *groups = text[: text.index("it means")].replace("</span>", "**").split("Claims that are")
        groups = [re.sub(r"<[^>]*>", "", group) for group in groups]
        assert [re.match(r"\W*([\w ]+)\*\*:", group)[1] for group in groups] == [
            "supported",
            "inconclusive and smoke run",
        ]
        assert "(C-01)" in groups[0] and "(C-02)" in groups[1]
        assert not any(f"({claim})" in text for claim in ("C-03", "C-04", "C-05") for text in groups)


def test_values_that_rules_compare_are_shown_by_seed(directory):
    parts = [
        {"arm": "a", "against": "b", "measure": "accuracy, fraction", "above": 0.01},
        {"arm": "a", "measure": "steps", "below": 1},
        {"arm": "c", "measure": "steps", "below": 1},
    ]
    texts = ["a less b, accuracy: above 1 points", "a, steps: below 1", "c, steps: below 1"]
    values = {("a", "accuracy, fraction"): (0.5, 0.625), ("b", "accuracy, fraction"): (0.25,), ("a", "steps"): (3, 4)}
    found = read(
        directory,
        verdicts={"C-01": "inconclusive"},
        figures={"C-01": "x"},
        rules={"C-01": {"claim": "C-01", "parts": parts, "texts": {"parts": texts}}},
        checks={
            "C-01": [
                {"text": text, "role": "part", "outcome": "not shown", **({"unit": "points"} if "less" in text else {})}
                for text in texts
            ]
        },
        measures=[
            {"arm": arm, "name": name, "seed": seed, "value": value}
            for (arm, name), of_seeds in {**values, ("d", "steps"): (1, 1)}.items()
            for seed, value in enumerate(of_seeds, 1)
        ],
    )
    table = designs.rule_values(found)
    assert table.columns == ["arm", "what", "seed 1", "seed 2"]
    assert table.rows == [["a", "accuracy, %", 50, 62.5], ["b", "accuracy, %", 25, None], ["a", "steps", 3, 4]]
    assert all("What the rules compare, by seed:" in text for text in without_drawing(directory))
    assert designs.rule_values(read(directory)) is None


def test_the_method_has_paragraphs(directory):
    path = directory / "register.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"method": "one.\n\ntwo <b>."}))
    html, markdown = without_drawing(directory)
    assert "<p>one.</p>\n<p>two &lt;b&gt;.</p>" in html and "reached\n\none.\n\ntwo &lt;b&gt;.\n\n" in markdown


def test_columns_are_in_the_units_of_the_rules():
    columns = ["model", "held-out bits per byte", "lowest", "highest", "x"]
    assert units.factors("linear-language-model", columns) == {i: math.log(2) for i in (1, 2, 3)}
    assert units.headings("linear-language-model", columns)[1] == "held-out loss, nats per token"
    columns = ["model", "accuracy", "lowest", "highest", "bag of words", "tokens"]
    assert units.factors("long-texts", columns) == dict.fromkeys((1, 2, 3, 4), 100.0)
    assert units.headings("long-texts", columns)[1] == "accuracy, %"
    assert units.headings("similar-texts", ["dev"]) == ["dev, rank correlation"]
