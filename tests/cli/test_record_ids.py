"""Ids of records in the results of embed, similar, generate and rerank, as json and pyarrow read them."""

import json
import random
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli_support import embed, lines_of, needs_parquet, refused, results, state_of, stopped
from engine_case import make_causal
from rf_engine import Embedder
from sentence_model import TEXTS, save_classifier

NONE = object()  # the record has no such key


def json_lines(texts, ids):
    records = zip(texts, ids, strict=True)
    return "".join(json.dumps({"text": t} | ({} if i is NONE else {"id": i})) + "\n" for t, i in records)


def ids_of(rows):
    return [row.get("id", NONE) for row in rows]


@pytest.mark.parametrize(
    "ids",
    [
        [7, 7, -1, 2**63 - 1, 0, 10**30, 3, 12345678901],
        ["a", "7", 'quote " and \\ and \u0001', "宗", "", "a", "\U0001f600", "x" * 5000],
        ["a", 7, NONE, None, 1.5, True, {"b": [1, "c d"]}, []],
    ],
    ids=["numbers", "texts", "mixed"],
)
def test_json_lines(model, tmp_path, ids):
    (tmp_path / "in.jsonl").write_text(json_lines(TEXTS, ids))
    embed(model, tmp_path / "out.jsonl", tmp_path / "in.jsonl")
    written = lines_of(tmp_path / "out.jsonl")
    printed = results("embed", "--model", model, "--input", tmp_path / "in.jsonl")
    expected = [NONE if i is None else i for i in ids]
    for rows in (written, printed):
        assert ids_of(rows) == expected and [type(i) for i in ids_of(rows)] == [type(i) for i in expected]
        assert [row["index"] for row in rows] == list(range(len(TEXTS)))
    assert np.array_equal(np.array([r["embedding"] for r in written], np.float32), Embedder(model).embed(TEXTS))


def test_ids_that_are_not_json(model, tmp_path):
    """Python's json writes NaN, and halves of surrogate pairs; neither may spoil the output."""
    (tmp_path / "in.jsonl").write_bytes(
        b'{"text": "a", "id": NaN}\n{"text": "b", "id": "x\\ud800"}\n{"id": "\xff", "text": "c"}\n'
        b'{"text": "d", "id": [1,\r -Infinity]}\n{"text": "e", "id": [1,\r 2]}\n{"text": "f", "id": 1, "id": 2}\n'
    )
    embed(model, tmp_path / "out.jsonl", tmp_path / "in.jsonl")
    assert ids_of(lines_of(tmp_path / "out.jsonl")) == [NONE, "x\ufffd", "\ufffd", NONE, [1, 2], 2]
    assert b"\r" not in (tmp_path / "out.jsonl").read_bytes()


def test_fields(model, tmp_path):
    """--id-field names a key inside, or a column; text files have no ids."""
    output = tmp_path / "out.jsonl"
    (tmp_path / "in.jsonl").write_text('{"text": "a", "id": 1, "meta": {"key": "k"}}\n{"text": "b", "id": 2}\n')
    for field in ("meta.key", "/meta/key"):
        embed(model, output, tmp_path / "in.jsonl", "--id-field", field)
        assert ids_of(lines_of(output)) == ["k", NONE]
    (tmp_path / "in.csv").write_text('id,key,text\n1,"x ""y""",a\n,007,b\n')
    embed(model, output, tmp_path / "in.csv")
    assert ids_of(lines_of(output)) == ["1", ""]
    embed(model, output, tmp_path / "in.csv", "--id-field", "key")
    assert ids_of(lines_of(output)) == ['x "y"', "007"]
    (tmp_path / "bare.tsv").write_text("a\tk1\nb\tk2\n")  # no header
    embed(model, output, tmp_path / "bare.tsv", "--field", 1)
    assert ids_of(lines_of(output)) == [NONE, NONE]
    embed(model, output, tmp_path / "bare.tsv", "--field", 1, "--id-field", 2)
    assert ids_of(lines_of(output)) == ["k1", "k2"]
    (tmp_path / "in.txt").write_text('{"id": 1}\n')
    embed(model, output, tmp_path / "in.txt", "--id-field", "key")
    assert [row.keys() for row in lines_of(output)] == [{"index", "embedding"}]


def test_refusals(model, tmp_path):
    (tmp_path / "in.csv").write_text("name,text\n1,a\n")
    (tmp_path / "bare.csv").write_text("1,a\n")
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    bare = ["--input", "bare.csv", "--field", "2"]
    for field, given, code, message in (
        ("nmae", ["--input", "in.csv"], 1, 'must have one column "nmae", got "name, text" (--id-field says which'),
        ("key", bare, 1, 'must be the number of a column, as --field is, got "key"'),
        ("3", bare, 1, "bare.csv must have a column 3, got 2 columns"),
        ("a..b", ["--input", "in.jsonl"], 1, "the field must be keys that are not empty"),
        ("", ["--input", "in.jsonl"], 1, "the field must have a name, got none"),
        ("name", ["--text", "a"], 2, "--id-field goes with --input, got --text"),
        ("name", ["--input", "in.csv", "--output", "o.npy"], 2, "got o.npy"),
    ):
        assert message in refused("embed", "--model", model, "--id-field", field, *given, code=code, cwd=tmp_path)


@pytest.mark.parametrize(
    ("ids", "kind", "expected"),
    [
        ([7, 7, NONE, 2**63 - 1, -(2**63), 0, None, 1], pa.int64(), [7, 7, None, 2**63 - 1, -(2**63), 0, None, 1]),
        (["a", NONE, "", "宗", "a", "xyz", None, "7"], pa.string(), ["a", None, "", "宗", "a", "xyz", None, "7"]),
        ([1, "a", NONE, 1.5, True, ["b"], 0, 2], pa.string(), ["1", "a", None, "1.5", "true", '["b"]', "0", "2"]),
        ([1, 2, NONE, 2**63, 0, 0, 0, 0], pa.string(), ["1", "2", None, str(2**63), "0", "0", "0", "0"]),
        ([NONE] * 8, None, None),
    ],
    ids=["integers", "texts", "mixed", "large", "none"],
)  # fmt: skip
def test_parquet_output(model, tmp_path, ids, kind, expected):
    needs_parquet()
    (tmp_path / "in.jsonl").write_text(json_lines(TEXTS, ids))
    embed(model, tmp_path / "out.parquet", tmp_path / "in.jsonl")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == (["id"] if kind else []) + ["embedding"]
    assert not kind or (table.schema.field("id").type == kind and table["id"].to_pylist() == expected)
    vectors = np.array(table["embedding"].to_pylist(), np.float32)
    assert np.array_equal(vectors, Embedder(model).embed(TEXTS))
    column = pq.read_metadata(tmp_path / "out.parquet").row_group(0).column(table.num_columns - 1)
    assert (column.compression, column.has_dictionary_page) == ("UNCOMPRESSED", False)


def test_parquet_input(model, tmp_path):
    needs_parquet()

    def ids_in(table, *more):
        pq.write_table(table, tmp_path / "in.parquet")
        embed(model, tmp_path / "out.jsonl", tmp_path / "in.parquet", *more)
        return ids_of(lines_of(tmp_path / "out.jsonl"))

    for values in (
        *(pa.array([-(2**63), None]), pa.array([-5, 5], pa.int16()), pa.array(["a", None], pa.large_string())),
        *(pa.array([2**64 - 1, 0], pa.uint64()), pa.array([2**32 - 1, 0], pa.uint32())),
        pa.array([3.0, None]),  # pandas' integers with a missing one
    ):
        expected = [NONE if value is None else value for value in values.to_pylist()]
        assert ids_in(pa.table({"text": ["x", None], "id": values})) == expected, values.type
    assert ids_in(pa.table({"text": ["x"], "id": [float("nan")]})) == [NONE]
    table = pa.table({"text": ["x", None], "key": ["a", "b"], "n": [{"id": 1}, {"id": 2}]})
    assert ids_in(table.rename_columns({"key": "id"})) == ids_in(table, "--id-field", "key") == ["a", "b"]
    assert ids_in(table, "--id-field", "n.id") == [1, 2]
    many = list(range(5000))  # more than a batch of the reader, in several row groups and pages
    table = pa.table({"text": [f"{i % 7}" for i in many], "id": [None if i % 3 else f"k{i}" for i in many]})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1700, data_page_size=500)
    embed(model, tmp_path / "out.parquet", tmp_path / "in.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == table["id"].to_pylist()
    # A column that holds no ids: none by default, an error if it is named.
    assert ids_in(pa.table({"text": ["a"], "id": [["in a list"]]})) == [NONE]
    common = ["embed", "--model", model, "--input", tmp_path / "in.parquet", "--id-field"]
    assert "must have the column" in refused(*common, "id")
    assert "must hold one text or number per row, got BYTE_ARRAY in lists" in refused(*common, "id.list.element")


def test_several_row_groups(model, tmp_path):
    """Rows of 64 MiB of vectors make a group."""
    needs_parquet()
    count = 2**20 + 3  # more than the most rows of a group
    with (tmp_path / "in.jsonl").open("w") as file:
        file.writelines(f'{{"text":"a","id":{i}}}\n' for i in range(count))
    embed(model, tmp_path / "out.parquet", tmp_path / "in.jsonl", "--dimensions", 1)
    written = pq.ParquetFile(tmp_path / "out.parquet")
    assert written.num_row_groups == 2
    assert written.read(["id"])["id"].to_numpy().tolist() == list(range(count))


@pytest.mark.parametrize(("name", "number"), [("out.jsonl", signal.SIGINT), ("out.parquet", signal.SIGTERM)])
def test_interrupted_run_continues(model, tmp_path, name, number):
    """With the same bytes as a run that was never stopped, and not with other ids. It is stopped while it waits for its
    input; the file that it will replace stays until it is whole."""
    if name.endswith(".parquet"):
        needs_parquet()
    rng = random.Random(3)
    ids = [rng.choice([NONE, rng.randrange(10**9)]) for _ in range(9000)]
    ids[:100] = ["k" * rng.randrange(20) for _ in range(100)]  # they decide the type of the column
    text = json_lines([" ".join(rng.choices("abcdefgh", k=rng.randint(0, 12))) for _ in ids], ids)
    lines = text.splitlines(keepends=True)
    output = tmp_path / name
    output.write_text("of an earlier run")
    arguments = ["embed", "--model", model, "--input", "-", "--format", "jsonl", "--output", output, "--overwrite"]
    kept = "".join(lines[:5000])
    code, _, said = stopped(number, lambda: state_of(output)["rows"] > 0, *arguments, stdin=kept)
    assert code == 128 + number
    assert said.endswith(f"is kept in {output}.part; the same command continues there\n")
    assert output.read_text() == "of an earlier run"
    before = state_of(output)
    with output.with_name(name + ".part").open("ab") as part:
        part.write(b"written after the last checkpoint")
    changed = [json.dumps({"text": json.loads(lines[0])["text"], "id": "other"}) + "\n", *lines[1:]]
    assert "must be those with which" in refused(*arguments, stdin="".join(changed))
    assert 'id-field "id" (now "key")' in refused(*arguments, "--id-field", "key", stdin=text)
    assert state_of(output) == before
    assert results(*arguments, stdin=text)[0]["texts"] == 9000 - before["rows"]
    (tmp_path / "in.jsonl").write_text(text)
    embed(model, tmp_path / ("whole-" + name), tmp_path / "in.jsonl")
    assert output.read_bytes() == (tmp_path / ("whole-" + name)).read_bytes()
    if name == "out.jsonl":
        assert ids_of(lines_of(output)) == ids
    else:
        assert pq.read_table(output)["id"].to_pylist() == [None if i is NONE else str(i) for i in ids]


def test_similar(model, tmp_path):
    ids = ["a", 2, NONE, None, "e", 6, 7, 8]
    (tmp_path / "in.jsonl").write_text(json_lines(TEXTS, ids))
    common = ["similar", "--model", model, "--query", "the cat", "--input", tmp_path / "in.jsonl"]
    embed(model, tmp_path / "e.npy", tmp_path / "in.jsonl")
    for more in ([], ["--embeddings", tmp_path / "e.npy"]):
        rows = results(*common, *more)
        assert sorted(row["line"] for row in rows) == list(range(1, 9))
        assert ids_of(rows) == [NONE if (i := ids[row["line"] - 1]) is None else i for row in rows], more
        assert set(map(str, ids_of(results(*common, *more, "--id-field", "key")))) == {str(NONE)}


def test_generate(tmp_path):
    results("vocab", "--bytes", "--output", tmp_path / "model")
    make_causal("RoFormer", tmp_path / "model", vocab_size=261, max_position_embeddings=128)
    lines = ('{"text": "abc", "id": 7}', '{"text": "x"}', '{"id": "b", "label": 1}', '{"text": "", "id": 9}')
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    common = ["generate", "--model", tmp_path / "model", "--max-new-tokens", 2, "--input", tmp_path / "in.jsonl"]
    rows = results(*common, "--skip-bad-records", "--temperature", 1, "--num-return-sequences", 2)
    found = [(row["index"], row.get("id", NONE), "error" in row) for row in rows]
    assert found == 2 * [(0, 7, False)] + 2 * [(1, NONE, False)] + [(2, "b", True)] + 2 * [(3, 9, False)]
    assert ids_of(results(*common, "--skip-bad-records", "--id-field", "label")) == [NONE, NONE, 1, NONE]


def test_rerank(tmp_path):
    save_classifier(tmp_path, 1)
    (tmp_path / "in.jsonl").write_text('{"text": "a", "id": 1, "key": "x"}\n{"text": "b", "id": 2}\n')
    common = ["rerank", "--model", tmp_path, "--query", "c", "--input", tmp_path / "in.jsonl"]
    assert {row["line"]: row.get("id") for row in results(*common)} == {1: 1, 2: 2}
    assert {row["line"]: row.get("id") for row in results(*common, "--id-field", "key")} == {1: "x", 2: None}
