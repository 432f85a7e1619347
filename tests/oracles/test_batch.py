"""Rows of model input (rf/text/batch.h) against transformers' BertTokenizer on the library `tokenizers`: templates,
threads and errors. Random options are tests/python/test_tokenizer.py's."""

import random

import pytest
import transformers
from tokenizer_probe import ask, write_vocabulary
from tokenizers.processors import TemplateProcessing

WORDS = ["the", "cat", "##s", "sat", "on", "mat", "a", "##b", "un", "##able", "日", "本", ",", "."]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary") / "vocab.txt", VOCABULARY)


def rows_of_ours(vocab_file, cases):
    """Of each case, {"samples", "options"}: its rows or {"error"}."""
    return ask({"vocab": str(vocab_file), "batch": True}, cases)


# Names of the library's columns, and ours.
COLUMNS = {"input_ids": "ids", "token_type_ids": "types", "attention_mask": "mask"}


def rows_of_transformers(samples, options, tokenizer=None):
    options = {key: value for key, value in options.items() if key != "threads"}
    tokenizer = tokenizer or transformers.BertTokenizer(vocab={token: i for i, token in enumerate(VOCABULARY)})
    texts = [tuple(sample) if len(sample) > 1 else sample[0] for sample in samples]
    returned = {f"return_{name}": True for name in ("offsets_mapping", "token_type_ids", "attention_mask")}
    out = tokenizer(texts, **returned, **options)
    owners = out.get("overflow_to_sample_mapping", range(len(samples)))
    rows = []
    for i, offsets in enumerate(out["offset_mapping"]):
        row = {ours: out[theirs][i] for theirs, ours in COLUMNS.items()}
        row |= {"begin": [begin for begin, _ in offsets], "end": [end for _, end in offsets]}
        row["text_index"] = [-1 if index is None else index for index in out.sequence_ids(i)]
        rows.append(row | {"sample": owners[i]})
    return rows


def random_samples(draw, pairs):
    def text():
        pieces = ["the", "cats", "sat", "on", "mat", "unable", "日本", "ab,", "x"]
        return " ".join(draw.choice(pieces) for _ in range(draw.choice((0, 1, 2, 3, 5, 8, 13, 21))))

    return [[text(), text()] if pairs else [text()] for _ in range(draw.randint(1, 6))]


def test_second_text_first(tmp_path):
    """A template may have the texts in this order, which is then that of the windows, too."""
    pieces = transformers.BertTokenizer(vocab={token: i for i, token in enumerate(VOCABULARY)})._tokenizer
    pieces.post_processor = TemplateProcessing(
        single="$A", pair="[CLS] $B:1 [SEP]:1 $A", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="[PAD]")
    tokenizer.save_pretrained(tmp_path)
    options = {"truncation": "longest_first", "max_length": 9, "stride": 1, "return_overflowing_tokens": True}
    case = {"samples": random_samples(random.Random(5), True), "options": options}
    (rows,) = ask({"model": str(tmp_path), "batch": True}, [case])
    assert rows == rows_of_transformers(**case, tokenizer=tokenizer)


def test_large_batches_in_turn(vocab_file):
    """Threads divide them; one encoder takes one batch after another."""
    draw = random.Random(19)
    samples = [sample for _ in range(100) for sample in random_samples(draw, True)]
    options = {"truncation": "longest_first", "max_length": 13, "stride": 2, "return_overflowing_tokens": True}
    options |= {"padding": "longest", "threads": 5}
    cases = [{"samples": samples[:count], "options": options} for count in (300, 17, 1, 150)]
    for case, rows in zip(cases, rows_of_ours(vocab_file, cases), strict=True):
        assert rows == rows_of_transformers(**case)


def test_the_first_error_of_a_batch(vocab_file):
    """In the order of the samples, whichever thread has it; the encoder goes on."""
    samples = [["a a a a a a", "cat"]] * 200
    samples[150], samples[50] = ["ab", "the " * 8], ["a", "the " * 4]
    options = {"truncation": "only_first", "max_length": 6, "threads": 3}
    cases = [{"samples": each, "options": options} for each in (samples, samples[:50])]
    error, rows = rows_of_ours(vocab_file, cases)
    assert "first text must have more than the 2 tokens" in error["error"] and len(rows) == 50


LONGEST, WINDOWS = {"truncation": "longest_first"}, {"max_length": 4, "stride": 2, "return_overflowing_tokens": True}
MULTIPLES = {"padding": "longest", "pad_to_multiple_of": 4}
BAD = [
    (["cat"], LONGEST, ["max_length", "at least 1", "got 0"]),
    (["cat"], LONGEST | {"max_length": 1}, ["2 special tokens", "got 1"]),
    (["cat"], {"padding": "max_length"}, ["max_length", "got 0"]),
    (["cat"], MULTIPLES | {"pad_to_multiple_of": 0}, ["pad_to_multiple_of", "got 0"]),
    (["cat"], {"return_overflowing_tokens": True}, ["need truncation"]),
    (["cat the the"], {"truncation": "only_second", "max_length": 3}, ["only_second", "one text"]),
    (["cat", "the the the"], {"truncation": "only_first", "max_length": 5}, ["first text", "more than the 2", "got 1"]),
    (["the the the the"], LONGEST | WINDOWS, ["stride", "below the 2", "got 2"]),
    (["cat"], LONGEST | {"max_length": 4, "stride": -1}, ["stride", "got -1"]),
    (["cat"], LONGEST | MULTIPLES | {"max_length": 6}, ["multiple of pad_to_multiple_of 4", "got 6"]),
    (["cat"], {"threads": -1}, ["threads", "got -1"]),
]


def test_bad_options(vocab_file):
    answers = rows_of_ours(vocab_file, [{"samples": [sample], "options": options} for sample, options, _ in BAD])
    for (*case, parts), answer in zip(BAD, answers, strict=True):
        assert all(part in answer["error"] for part in parts), (case, answer)
