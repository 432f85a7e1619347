"""The papers' tables that the register carries (R-TAB-1 to R-TAB-7), against the sources, transcribed here in their own
order and spelling: `roformer reproduce` prints them beside our own numbers, and a wrong digit would go unnoticed.
"""

import json
import math
import re

import pytest

from cli_support import ROOT, results

NOTE = ROOT.parent / "shared" / "seeds" / "003_6f2e691209b9ba8c.txt"  # "RoPE - 旋转位置编码", section 3

# arXiv 2104.09864v4, Table 1: BLEU, WMT 2014 English-to-German.
TABLE_1 = """
Transformer-base | 27.3
RoFormer         | 27.5
"""
# The same, Table 2; the last column is printed as "84.6/83.4", m/mm.
TABLE_2 = """
         | MRPC | SST-2 | QNLI | STS-B | QQP  | MNLI-m | MNLI-mm
BERT     | 88.9 | 93.5  | 90.5 | 85.8  | 71.2 | 84.6   | 83.4
RoFormer | 89.5 | 90.7  | 88.0 | 87.0  | 86.4 | 80.2   | 79.8
"""
# The same, Table 3, which has a column for each model.
TABLE_3 = {
    "BERT": ("char", "abs."),
    "WoBERT": ("word", "abs."),
    "NEZHA": ("char", "rel."),
    "RoFormer": ("word", "RoPE"),
}
# The same, Table 4: stage, max seq length, batch size, training steps, loss, accuracy (%).
TABLE_4 = """
1 | 512  | 256 | 200000 | 1.73 | 65.0
2 | 1536 | 256 | 12500  | 1.61 | 66.8
3 | 256  | 256 | 120000 | 1.75 | 64.6
4 | 128  | 512 | 80000  | 1.83 | 63.4
5 | 1536 | 256 | 10000  | 1.58 | 67.4
6 | 512  | 512 | 30000  | 1.66 | 66.2
"""
# The same, Table 5: validation and test, %.
TABLE_5 = """
BERT-512      | 64.13 | 67.77
WoBERT-512    | 64.07 | 68.10
RoFormer-512  | 64.13 | 68.29
RoFormer-1024 | 66.07 | 69.79
"""
# blog.eleuther.ai/rotary-embeddings: the tables of OpenWebText2 at 55k steps and of the Pile at 8k steps, loss | ppl.
OPEN_WEB_TEXT_2 = {"learned": (2.809, 16.59), "T5": (2.801, 16.46), "RoPE": (2.759, 15.78)}
PILE = {"learned": (2.24, 9.393), "T5": (2.223, 9.234), "RoPE": (2.173, 8.784)}
ROTARY_MS, ADDITIVE_MS = 5.3, 2.1  # the same, section Runtime, queries and keys of [2048, 16, 12, 64]
# kexue.fm/archives/8998, section on the structure: RoFormerV2 base and large alike, times RoBERTa's training speed.
ROFORMER_V2 = {128: 1.3, 512: 1.2}
# kexue.fm/archives/7758 (BERT, WoBERT) and github.com/ZhuiyiTechnology/WoBERT (Plus): IFLYTEK, TNEWS, %.
CLUE = {"BERT": (60.31, 56.94), "WoBERT": (61.15, 57.05), "WoBERT-Plus": (61.92, 58.20)}


def cells(table):
    def value(text):
        return float(text) if re.fullmatch(r"[\d.]+", text) else text

    return [[value(cell.strip()) for cell in line.split("|")] for line in table.strip("\n").splitlines()]


@pytest.fixture(scope="module", params=["program", "report"])
def tables(request, tmp_path_factory):
    """{id: table} of the register that the program writes, and of the one in experiments/results."""
    path = ROOT / "experiments" / "results"
    if request.param == "program":
        path = tmp_path_factory.mktemp("register")
        results("reproduce", "pairwise", "--output", path)
    found = json.loads((path / "register.json").read_text(encoding="utf-8"))["tables"]
    return {table["id"]: table for table in found}


def test_every_table_is_here(tables):
    assert list(tables) == [f"R-TAB-{number}" for number in range(1, 8)]
    for number in range(1, 6):
        assert tables[f"R-TAB-{number}"]["source"] == f"arXiv 2104.09864 Table {number}"
    assert tables["R-TAB-6"]["source"] == "blog.eleuther.ai/rotary-embeddings"
    assert all(source in tables["R-TAB-7"]["source"] for source in ("archives/8998", "archives/7758", "WoBERT"))


def test_translation(tables):
    assert tables["R-TAB-1"]["rows"] == cells(TABLE_1)


def test_glue(tables):
    (_, *tasks), *rows = cells(TABLE_2)
    assert tables["R-TAB-2"]["columns"] == ["model", *tasks]
    assert tables["R-TAB-2"]["rows"] == rows


def test_models(tables):
    words = {"char": "characters", "word": "words", "abs.": "absolute", "rel.": "relative", "RoPE": "RoPE"}
    expected = [[model, words[tokens], words[positions]] for model, (tokens, positions) in TABLE_3.items()]
    assert tables["R-TAB-3"]["rows"] == expected


def test_stages(tables):
    table = tables["R-TAB-4"]
    assert table["columns"] == ["stage", "max length", "batch", "steps", "loss", "accuracy"]
    assert table["rows"] == cells(TABLE_4)
    assert sum(row[3] for row in table["rows"]) == 452_500


def test_similar_cases(tables):
    table = tables["R-TAB-5"]
    assert table["columns"] == ["model", "validation", "test"] and table["rows"] == cells(TABLE_5)
    test = {row[0]: row[2] for row in table["rows"]}
    # Section 4.5.4 says 1.5 % above WoBERT: that is RoFormer-1024 over RoFormer-512.
    assert test["RoFormer-1024"] - test["RoFormer-512"] == pytest.approx(1.5)
    assert test["RoFormer-1024"] - test["WoBERT-512"] == pytest.approx(1.69)


def test_language_models(tables):
    table = tables["R-TAB-6"]
    assert table["columns"] == ["what", "learned", "T5", "RoPE"]
    (owt2, *loss), (_, *perplexity), (pile, *pile_loss), (_, *milliseconds) = table["rows"]
    assert "OpenWebText2, 55k steps" in owt2 and "8k steps" in pile
    assert [*zip(loss, perplexity, strict=True)] == [OPEN_WEB_TEXT_2[name] for name in table["columns"][1:]]
    assert pile_loss == [PILE[name][0] for name in table["columns"][1:]]
    assert milliseconds == [ADDITIVE_MS, None, ROTARY_MS]
    # A loss in nats and its perplexity say one thing, to the digits printed.
    assert [round(math.exp(value), 2) for value in loss] == perplexity
    assert [round(math.exp(value), 2) for value in pile_loss] == [round(ppl, 2) for _, ppl in PILE.values()]


def test_second_model_and_words(tables):
    found = dict(tables["R-TAB-7"]["rows"])
    expected = {f"RoFormerV2, times as fast at {length} tokens": speed for length, speed in ROFORMER_V2.items()}
    for model, (iflytek, tnews) in CLUE.items():
        expected |= {f"{model}, IFLYTEK": iflytek, f"{model}, TNEWS": tnews}
    assert found == expected


# ---- the note's own text ----


def in_units(cell):
    """20万 is 200,000; 65.0% is 65.0."""
    return float(cell.removesuffix("万")) * 10_000 if cell.endswith("万") else float(cell.removesuffix("%"))


def rows_of_the_note():
    """{first cell: the other cells} of the rows of section 3, whose cells have tabs between them."""
    lines = NOTE.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines[lines.index("3. RoPE效果") :] if "\t" in line]
    return {row[0]: row[1:] for row in reversed(rows)}  # of the three headings, "", that of the first table


@pytest.mark.skipif(not NOTE.is_file(), reason=f"SKIPPED LOUDLY: no note at {NOTE}")
def test_the_note_prints_the_same(tables):
    note = rows_of_the_note()
    words = {"字": "characters", "词": "words", "绝对位置": "absolute", "经典式相对位置": "relative", "RoPE": "RoPE"}
    by_model = [*zip(note[""], note["token单位"], note["位置编码"], strict=True)]
    assert tables["R-TAB-3"]["rows"] == [[model, words[token], words[place]] for model, token, place in by_model]
    stages = [[float(number), *map(in_units, note[str(number)])] for number in range(1, 7)]
    assert tables["R-TAB-4"]["rows"] == stages
    assert tables["R-TAB-5"]["rows"] == [[name, *map(in_units, note[name])] for name, *_ in cells(TABLE_5)]
