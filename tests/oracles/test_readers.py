"""The readers against Python's own json, csv, gzip and universal newlines, and pyarrow, on random documents."""

import csv
import gzip
import io
import itertools
import json
import random
import subprocess

import pytest
from tokenizers import Regex, pre_tokenizers

from cli_support import PROGRAM

PROBE = PROGRAM.parent / "tests" / "data_probe"

CHARACTERS = [*"\"\\\n\r\t, 'aé\u2028\x85\0😀{]", '""', "\r\n", "bc", "中文"]


def probe(*inputs, **options):
    """The report of data_probe, its documents as bytes."""
    command = [PROBE, json.dumps({"inputs": [str(path) for path in inputs], **options})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == int("error" in report), done
    if isinstance(report.get("documents"), list):
        report["documents"] = [bytes.fromhex(text) for text in report["documents"]]
    return report


def documents(*inputs, **options):
    report = probe(*inputs, **options)
    assert "error" not in report, report
    return report["documents"]


def random_text(draw):
    if draw.random() < 0.004:
        return "".join(draw.choices(CHARACTERS, k=200_000))  # longer than what is read at once
    return "".join(draw.choices(CHARACTERS, k=draw.randrange(12)))


SPACE = " \t\r\n\f\v"


def kept(texts):
    """As bytes, without those that are only white space."""
    return [text.encode() for text in texts if text.strip(SPACE)]


def random_value(draw, depth=0):
    kind = draw.randrange(8 if depth < 4 else 6)
    if kind == 6:
        return [random_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 7:
        return {random_text(draw)[:5]: random_value(draw, depth + 1) for _ in range(draw.randrange(4))}
    return [None, True, draw.randrange(-99, 99), draw.uniform(-1, 1) * 1e300, float("nan"), random_text(draw)][kind]


def test_json_lines(tmp_path):
    draw = random.Random(1)
    texts, lines = [], []
    for _ in range(2000):
        record = [(random_text(draw)[:3], random_value(draw)) for _ in range(draw.randrange(4))]
        texts.append(random_text(draw))
        record.append(("text", texts[-1]))
        draw.shuffle(record)
        record = {key: value for key, value in record if key != "text" or value == texts[-1]}
        separators = draw.choice([(",", ":"), (" ,\t", " : ")])
        lines.append(json.dumps(record, ensure_ascii=draw.random() < 0.5, separators=separators))
    path = tmp_path / "a.jsonl"
    path.write_bytes(draw.choice(["\n", "\r\n"]).join(lines).encode())
    assert documents(path) == kept(texts)


def test_damaged_json_lines(tmp_path):
    """Lines with characters added, changed and taken away: those that Python refuses are counted, the others kept."""
    draw = random.Random(2)
    base = '{"a": [1, -2.5e+3, {"text": "no"}], "text": "\\u4e2d\\ud83d\\ude00\\n\\/x", "b\\u0063": {"c": null}}'
    odd = '"\\{}[]:,0129.-+eEut/x \t\x01nfNI'
    lines = []
    for _ in range(4000):
        line = base
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(line))
            instead = draw.choice(["", draw.choice(odd), draw.choice(odd) + line[place]])
            line = line[:place] + instead + line[place + 1 :]
        lines.append(line)
    want, bad = [], 0
    for line in lines:
        try:
            text = json.loads(line)["text"]
            if not isinstance(text, str | None):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            bad += 1
        else:
            if (text or "").strip(SPACE):
                # A lone half of a pair has no UTF-8; here it becomes a byte that has no place in it either.
                want.append(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    assert 500 < bad < 3900
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    report = probe(path, skip=True)
    assert report["skipped"] == bad
    assert [document.replace(b"\xff", "\ufffd".encode()).decode() for document in report["documents"]] == want


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])  # with "\n", Python writes a lone "\r" without quotes
def test_tables(tmp_path, delimiter, ending):
    draw = random.Random(3)
    # A lone "\r" before the line end could not be told from a part of it.
    rows = [[*(random_text(draw) for _ in range(3)), "end"] for _ in range(1000)]
    path = tmp_path / f"a.{'csv' if delimiter == ',' else 'tsv'}"
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator=ending, quoting=quoting)
            writer.writerows([["a", "text", '"b"\n', "c"], *rows])
        assert documents(path) == kept([row[1] for row in rows])
        assert documents(path, field='"b"\n') == kept([row[2] for row in rows])
        assert documents(path, field="1") == kept(["a", *(row[0] for row in rows)])


def test_tables_of_any_characters(tmp_path):
    """What no writer makes: the rows that Python's reader sees, of those with two columns."""
    draw = random.Random(4)
    pieces = ['"', '"', ",", ",", "\n", "\r\n", "a", " ", "é"]
    path = tmp_path / "a.csv"
    for _ in range(200):
        text = "".join(draw.choices(pieces, k=draw.randrange(60)))
        path.write_bytes(("x,text\n" + text).encode())
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        except csv.Error:  # text after a closing mark, or a mark that is not closed
            assert "line" in probe(path)["error"], ascii(text)
            continue
        report = probe(path, skip=True)
        assert report["documents"] == kept([row[1] for row in rows if len(row) == 2]), ascii(text)
        assert (report["skipped"] == 0) == all(len(row) in (0, 2) for row in rows), ascii(text)


def test_tables_whose_quotes_are_text(tmp_path):
    draw = random.Random(5)
    characters = [c for c in CHARACTERS if not set(c) & set("\t\n\r")]
    rows = [["".join(draw.choices(characters, k=draw.randrange(12))) for _ in range(3)] for _ in range(1000)]
    path = tmp_path / "a.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8", newline="")
    assert documents(path, field="2", quotes=False) == kept([row[1] for row in rows])


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA3 = pre_tokenizers.Split(Regex(LLAMA3 + r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated")
SPLITTERS = [pre_tokenizers.ByteLevel(add_prefix_space=False), LLAMA3, pre_tokenizers.BertPreTokenizer()]


@pytest.fixture(scope="module")
def long_documents(tmp_path_factory):
    """Texts and their pieces."""
    draw = random.Random(10)
    words = ["some", "'s", "Words", "мир", "ذلك", "かな", "中文", "한국", "é", "12", "😀", *'-"\u3000\u0301\xa0']
    spaces, marks = ["", " ", " \n", " \n\n", " 。", ". ", "!\n"], ["", "\n", "\n\n", "，", "。", "。”", "，。", "!\n"]
    path, found = tmp_path_factory.mktemp("long") / "a.txt", []
    for gaps in (spaces, marks):
        text = "".join(draw.choice(words) + draw.choice(gaps) for _ in range(150_000)).encode()
        path.write_bytes(text)
        report = probe(path)
        assert report["documents"] == [text]
        assert len(report["pieces"]) > 5 and max(report["pieces"]) <= 1 << 17
        ends = list(itertools.accumulate(report["pieces"], initial=0))
        found.append((text.decode(), [text[begin:end].decode() for begin, end in itertools.pairwise(ends)]))
    return found


@pytest.mark.parametrize("splitter", SPLITTERS, ids=["gpt2", "llama3", "bert"])
def test_pieces_of_a_long_document_keep_its_words(long_documents, splitter):
    """Words of the pieces, each split by itself, are those of the whole text."""
    for text, pieces in long_documents:
        got = [word for piece in pieces for word, _ in splitter.pre_tokenize_str(piece)]
        assert got == [word for word, _ in splitter.pre_tokenize_str(text)]


@pytest.mark.parametrize("rule", ["file", "line", "blank-line"])
def test_text(tmp_path, rule):
    draw = random.Random(6)
    texts = ["".join(random_text(draw) for _ in range(draw.randrange(40))) for _ in range(30)]
    # Ends of the pieces that are read at once are before, between and after the two characters of a line end.
    for number, text in enumerate([*texts, "a\r\n" * 300_000, "a\r\n\r\n" * 120_000]):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(text.encode())
        plain = text.removesuffix("\r").replace("\r\n", "\n")
        if rule == "file":
            want = [plain]
        elif rule == "line":
            want = [line.removesuffix("\r") for line in text.split("\n")]
        else:
            groups = [[]]
            for line in plain.split("\n"):
                if line.strip(SPACE):
                    groups[-1].append(line)
                else:
                    groups.append([])
            want = ["\n".join(lines) for lines in groups]
        assert documents(path, documents=rule) == kept(want), number


def test_bytes_that_are_not_utf8(tmp_path):
    draw = random.Random(7)
    lines = [bytes(draw.randrange(1, 256) for _ in range(20)).replace(b"\n", b"") for _ in range(2000)]
    path = tmp_path / "a.txt"
    path.write_bytes(b"first\n" + b"\n".join(lines))
    want = [line.removesuffix(b"\r") for line in lines]
    assert documents(path, documents="line") == [b"first", *(line for line in want if line.strip())]


def test_gzip_of_python(tmp_path):
    draw = random.Random(8)
    texts = [random_text(draw) for _ in range(500)]
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(lines[:200])
    with gzip.open(path, "at") as file:
        file.writelines(lines[200:])
    assert documents(path) == kept(texts)


def test_standard_input(tmp_path):
    lines = "".join(json.dumps({"text": f"t{i}"}) + "\n" for i in range(3))
    command = [PROBE, json.dumps({"inputs": ["-"], "format": "jsonl"})]
    for data in (lines.encode(), gzip.compress(lines.encode())):
        done = subprocess.run(command, input=data, capture_output=True, timeout=60)
        assert [bytes.fromhex(t) for t in json.loads(done.stdout)["documents"]] == [b"t0", b"t1", b"t2"]


def parquet_or_skip(tmp_path):
    """pyarrow's modules, where it is installed and the build found it."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": ["a"]}), tmp_path / "a.parquet")
    report = probe(tmp_path)
    if "needs a build with Apache Arrow" in report.get("error", ""):
        pytest.skip("this build was configured without Arrow")
    return arrow, parquet


def test_parquet(tmp_path):
    arrow, parquet = parquet_or_skip(tmp_path)
    draw = random.Random(9)
    texts = [None if draw.random() < 0.1 else random_text(draw) for _ in range(1500)]
    want = kept(text for text in texts if text is not None)
    path = tmp_path / "a.parquet"
    plain, large = arrow.array(texts), arrow.array(texts, arrow.large_string())
    columns = {"snappy": plain, "zstd": large, "gzip": plain.cast(arrow.binary()), "none": plain.dictionary_encode()}
    for compression, column in columns.items():
        table = arrow.table({"id": list(range(len(texts))), "text": column})
        parquet.write_table(table, path, compression=compression, row_group_size=400, data_page_size=2000)
        assert documents(path) == want, compression
    parquet.write_table(arrow.table({"doc": [{"body": text} if text != "a" else None for text in texts]}), path)
    assert documents(path, field="doc.body") == kept(t for t in texts if t is not None and t != "a")
    assert documents(tmp_path / "**" / "*.parquet", field="doc.body")


def test_bad_parquet(tmp_path):
    arrow, parquet = parquet_or_skip(tmp_path)
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["a" * 50] * 1000, "n": [1] * 1000, "many": [["a"]] * 1000}), path)
    assert '"body", got "text, n, many' in probe(path, field="body")["error"]
    assert '"n" must hold one text per row, got INT64' in probe(path, field="n")["error"]
    assert "in lists" in probe(path, field="many.list.element")["error"]
    whole = path.read_bytes()
    for broken in (whole[:-1], whole[: len(whole) // 2], whole[:4] + bytes(300) + whole[304:], b""):
        path.write_bytes(broken)
        assert "a.parquet must be an undamaged Parquet file" in probe(path)["error"]
