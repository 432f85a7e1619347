"""The dataset over token shards: the rows that the program reads, of the tokens that transformers gives."""

import pickle
import shutil

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader, Dataset

import cli_support
from cli_support import results
from roformer_cpp import ShardDataset
from shard_file import probe

LENGTH = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """corpus/, vocabulary/, and data/ with several shards in each split."""
    folder = tmp_path_factory.mktemp("shards")
    cli_support.make_data(folder)
    cli_support.prepare(folder, folder / "data", "--shard-tokens", 300, held_out=0.3)
    assert len(list((folder / "data").glob("train-*.rfs"))) > 2
    return folder


@pytest.fixture(scope="module")
def data(folder):
    return folder / "data"


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.BertTokenizer.from_pretrained(folder / "vocabulary")


@pytest.fixture(scope="module")
def documents(folder, theirs):
    """The tokens of each file."""
    texts = [path.read_text() for path in sorted((folder / "corpus").iterdir())]
    return [theirs(text, add_special_tokens=False)["input_ids"] for text in texts]


def lists(rows):
    return [{name: value.tolist() for name, value in row.items()} for row in rows]


def test_documents_are_those_of_the_files(data, theirs, documents):
    splits = {split: ShardDataset(data, split) for split in ("train", "valid")}
    found = []
    for dataset in splits.values():
        for i in range(dataset.documents):
            ids, starts_word = dataset.document(i)
            assert ids.dtype == torch.int64 and starts_word.dtype == torch.bool
            found.append(ids.tolist())
            tokens = theirs.convert_ids_to_tokens(ids.tolist())
            assert starts_word.tolist() == [not token.startswith("##") for token in tokens]
    assert sorted(found) == sorted(documents) and min(dataset.documents for dataset in splits.values()) > 2
    # Files are read in the order of their names, and a split keeps it; but the first waits until each split has one.
    for dataset in splits.values():
        places = [documents.index(dataset.document(i)[0].tolist()) for i in range(dataset.documents)]
        assert (later := [place for place in places if place > 0]) == sorted(later)


@pytest.mark.parametrize(("split", "length"), [("train", 3), ("valid", LENGTH), ("train", 1000)])
def test_rows_are_those_that_the_program_reads(data, split, length):
    expected = []
    for row in probe("rows", data, split=split, max_length=length, mask_probability=0.5, seed=3):
        for place, label in zip(row["places"], row["labels"], strict=True):
            row["ids"][place] = label
        expected.append(row["ids"])
    dataset = ShardDataset(data, split, max_length=length)
    assert [row["input_ids"].tolist() for row in dataset] == expected
    assert len(dataset) == len(expected) > dataset.documents - 1


@pytest.mark.parametrize("length", [3, 5])
def test_rows_of_many_documents(folder, tmp_path, length):
    """More documents in a shard than the dataset keeps a number for, some of them longer than a row."""
    lines = [" ".join(["ab"] * (1 + number * 7 % 30)) for number in range(400)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    options = ("--documents", "line", "--shard-tokens", 5000)
    cli_support.prepare(folder, tmp_path / "data", *options, inputs=[tmp_path / "text.txt"], held_out=0)
    dataset = ShardDataset(tmp_path / "data", max_length=length)
    found = [row["input_ids"][1:-1] for row in dataset]
    expected = [dataset.document(i)[0].split(length - 2) for i in range(dataset.documents)]
    expected = [piece for pieces in expected for piece in pieces]
    assert dataset.documents == len(lines) and len(dataset) == len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    places = np.random.default_rng(1).integers(0, len(dataset), 50)
    assert all(torch.equal(dataset[place]["input_ids"][1:-1], expected[place]) for place in places)


def test_a_row(data, documents, theirs):
    dataset = ShardDataset(data, max_length=LENGTH)
    assert isinstance(dataset, Dataset)
    row = dataset[0]
    first = dataset.document(0)[0].tolist()[: LENGTH - 2]
    assert row["input_ids"].tolist() == [theirs.cls_token_id, *first, theirs.sep_token_id]
    assert all(value.dtype == torch.int64 and value.shape == (LENGTH,) for value in row.values())
    assert row["attention_mask"].tolist() == [1] * LENGTH
    mask = theirs.get_special_tokens_mask(row["input_ids"].tolist(), already_has_special_tokens=True)
    assert row["special_tokens_mask"].tolist() == mask
    assert lists([dataset[-1], dataset[np.int64(2)]]) == lists([dataset[len(dataset) - 1], dataset[2]])
    row["input_ids"][:] = 0  # a copy
    assert dataset[0]["input_ids"].any()
    assert repr(dataset) == f"ShardDataset({str(data)!r}, 'train', max_length=16, {len(dataset)} rows)"


def test_a_batch_is_padded_to_its_longest_row(data, theirs):
    dataset = ShardDataset(data, max_length=LENGTH)
    rows = [dataset[i] for i in range(len(dataset))]
    assert len({len(row["input_ids"]) for row in rows}) > 3
    batch = dataset.collate(rows)
    expected = theirs.pad({name: [row[name] for row in lists(rows)] for name in rows[0]}, return_tensors="pt")
    for name in ("input_ids", "attention_mask", "special_tokens_mask"):
        assert torch.equal(batch[name], expected[name]), name


def test_workers_of_a_data_loader(data, theirs):
    """Who get a pickle; and the collator of transformers masks their rows."""
    dataset = ShardDataset(data, max_length=LENGTH)
    options = dict(batch_size=4, collate_fn=dataset.collate)
    here = list(DataLoader(dataset, **options))
    there = list(DataLoader(dataset, num_workers=2, multiprocessing_context="spawn", **options))
    assert len(here) == len(there) > 4
    for one, other in zip(here, there, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    collator = transformers.DataCollatorForLanguageModeling(theirs, mlm_probability=0.5)
    batch = next(iter(DataLoader(dataset, batch_size=4, collate_fn=collator)))
    chosen = batch["labels"] != -100
    assert chosen.any() and not chosen[here[0]["special_tokens_mask"].bool()].any()
    assert torch.equal(batch["labels"][chosen], here[0]["input_ids"][chosen])


def test_a_pickle_has_no_tokens(data):
    dataset = ShardDataset(data, max_length=LENGTH)
    pickled = pickle.dumps(dataset)
    assert b"memmap" not in pickled and len(pickled) < (data / "train-00000.rfs").stat().st_size
    again = pickle.loads(pickled)
    assert lists(again) == lists(dataset) and (again.split, again.max_length) == ("train", LENGTH)


def test_bytes_come_back(tmp_path):
    """Every byte that UTF-8 has, across pieces of a document and with a lone carriage return."""
    text = "".join(f"a\r b\t{i}  ÿ\u0800\ufffd\U0001f600\U0010ffff\x7f\x01.'s\n\n" for i in range(3000))
    text += "".join(map(chr, range(1, 127)))
    (tmp_path / "text.txt").write_bytes(text.encode())
    results("vocab", "--bytes", "--output", tmp_path / "bytes")
    given = ["--input", tmp_path / "text.txt", "--model", tmp_path / "bytes", "--output", tmp_path / "data"]
    (report,) = results("prepare", *given)
    assert bytes(ShardDataset(tmp_path / "data").document(0)[0].tolist()) == text.encode()
    assert report["unknown_rate"] == 0


# ---- bad input


def test_damaged_shards(data, tmp_path):
    """tests/data has each damage; these are those that the dataset alone would not see, too."""
    shutil.copytree(data, tmp_path / "data")
    shard = tmp_path / "data" / "train-00001.rfs"
    whole = shard.read_bytes()
    for damaged, check, message in (
        (whole[:140] + bytes([whole[140] ^ 1]) + whole[141:], True, "the checksum must be"),
        (whole[:-1], True, r"do not fit the size, got \d+ bytes \(is the file truncated\?\)"),
        (b"", True, "a shard must have at least 128 bytes, got 0"),
        (whole[:-1], False, r"the size must be \d+, got \d+ \(is the file truncated\?\)"),
        (b"RFSHARD1", False, "a shard must have at least 128 bytes, got 8"),
    ):
        shard.write_bytes(damaged)
        with pytest.raises(RuntimeError, match=rf"^\[shard\] .*train-00001\.rfs: .*{message}"):
            ShardDataset(tmp_path / "data", check=check)
        # Files of the other split are whole.
        assert lists(ShardDataset(tmp_path / "data", "valid", check=check)) == lists(ShardDataset(data, "valid"))


def test_bad_arguments_and_indices(data, tmp_path):
    for options, kind, message in (
        (
            dict(data_dir=tmp_path / "nothing"),
            FileNotFoundError,
            "shards] the data directory must exist, got .*nothing$",
        ),
        (dict(data_dir=tmp_path), RuntimeError, "data] .* must be a directory made by prepare, got no data.json"),
        (dict(split="test"), RuntimeError, 'data] .* must have the split "test", got none'),
        (dict(max_length=2), ValueError, "shards] max_length must be at least 3, got 2"),
        (dict(max_length=8.0), TypeError, "shards] max_length must be an integer, got float"),
        (dict(split="dev"), ValueError, "shards] split must be one of train, valid, test, got 'dev'"),
        (dict(check=1), TypeError, "shards] check must be True or False, got 1"),
    ):
        with pytest.raises(kind, match=rf"^\[{message}"):
            ShardDataset(**{"data_dir": data, **options})
    dataset = ShardDataset(data, max_length=LENGTH)
    rows = len(dataset)
    for index in (rows, -rows - 1):
        with pytest.raises(IndexError, match=rf"^\[shards\] a row must be in \[-{rows}, {rows}\), got {index}"):
            dataset[index]
    with pytest.raises(IndexError, match=r"^\[shards\] a document must be in"):
        dataset.document(dataset.documents)
    for index in (slice(2), "0", 1.0, True):
        with pytest.raises(TypeError, match=r"^\[shards\] a row must be an integer, got"):
            dataset[index]
