"""Rows of model input (rf/text/batch.h) against transformers' BertTokenizer on the library `tokenizers`: pairs,
truncation with and without overflow, stride, padding, token types. The C++ side is batch_probe of the build."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "tests" / "batch_probe"
WORDS = ["the", "cat", "##s", "sat", "on", "mat", "a", "##b", "un", "##able", "日", "本", ",", "."]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(token + "\n" for token in VOCABULARY), encoding="utf-8")
    return path


def rows_of_ours(vocab_file, samples, options):
    done = subprocess.run(
        [PROBE, vocab_file, json.dumps(options)],
        input="".join(json.dumps(sample) + "\n" for sample in samples).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def rows_of_transformers(samples, options):
    options = dict(options)
    sides = {key: options.pop(key) for key in ("truncation_side", "padding_side") if key in options}
    options.pop("threads", None)
    tokenizer = transformers.BertTokenizer(vocab={token: i for i, token in enumerate(VOCABULARY)}, **sides)
    texts = [tuple(sample) if len(sample) > 1 else sample[0] for sample in samples]
    out = tokenizer(
        texts,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_token_type_ids=True,
        return_attention_mask=True,
        **options,
    )
    owners = out.get("overflow_to_sample_mapping", range(len(samples)))
    return [
        {
            "ids": ids,
            "begin": [begin for begin, _ in offsets],
            "end": [end for _, end in offsets],
            "types": types,
            "mask": mask,
            "text_index": [-1 if index is None else index for index in out.sequence_ids(i)],
            "sample": owner,
        }
        for i, (ids, offsets, types, mask, owner) in enumerate(
            zip(
                out["input_ids"],
                out["offset_mapping"],
                out["token_type_ids"],
                out["attention_mask"],
                owners,
                strict=True,
            )
        )
    ]


def random_samples(draw, pairs):
    def text():
        return " ".join(
            draw.choice(["the", "cats", "sat", "on", "mat", "unable", "日本", "ab,", "x"]) for _ in range(n())
        )

    def n():
        return draw.choice((0, 1, 2, 3, 5, 8, 13, 21))

    return [[text(), text()] if pairs else [text()] for _ in range(draw.randint(1, 6))]


def random_options(draw, pairs):
    options = {}
    if draw.random() < 0.8:
        options["truncation"] = draw.choice(["longest_first", "longest_first", "only_first", "only_second"])
        options["max_length"] = draw.choice((3, 4, 5, 6, 7, 9, 12, 17, 30))
        if options["truncation"] == "only_second" and not pairs:
            options["truncation"] = "only_first"
        if draw.random() < 0.6:
            options["return_overflowing_tokens"] = True
            options["stride"] = draw.choice((0, 0, 1, 2, 4))
    padding = draw.choice(("none", "longest", "max_length"))
    if padding != "none":
        options["padding"] = padding
        options["max_length"] = options.get("max_length", draw.choice((2, 10, 40)))
        if draw.random() < 0.3:
            options["pad_to_multiple_of"] = draw.choice((4, 8))
    if draw.random() < 0.3:
        options["truncation_side"] = "left"
    if draw.random() < 0.3:
        options["padding_side"] = "left"
    if draw.random() < 0.2:
        options["add_special_tokens"] = False
    return options


@pytest.mark.parametrize("pairs", [False, True])
def test_rows_equal_transformers(vocab_file, pairs):
    draw = random.Random(17 + pairs)
    compared = 0
    for _ in range(400):
        samples, options = random_samples(draw, pairs), random_options(draw, pairs)
        try:
            want = rows_of_transformers(samples, options)
        except BaseException as error:  # a panic of the library is no Exception
            assert "error" in rows_of_ours(vocab_file, samples, options)[-1], (samples, options, error)
            continue
        rows = rows_of_ours(vocab_file, samples, options | {"threads": draw.choice((1, 3))})
        if any(len(row["ids"]) > options["max_length"] for row in want if "truncation" in options):
            assert "below the 0 tokens" in rows[-1].get("error", ""), (
                samples,
                options,
            )  # the library's overflow of a text that keeps nothing
            continue
        assert rows == want, (samples, options)
        compared += 1
    assert compared > 150


@pytest.mark.parametrize(
    ("sample", "options", "parts"),
    [
        (["cat"], {"truncation": "longest_first"}, ["max_length", "at least 1", "got 0"]),
        (["cat"], {"truncation": "longest_first", "max_length": 1}, ["2 special tokens", "got 1"]),
        (["cat"], {"padding": "max_length"}, ["max_length", "got 0"]),
        (["cat"], {"padding": "longest", "pad_to_multiple_of": 0}, ["pad_to_multiple_of", "got 0"]),
        (["cat"], {"return_overflowing_tokens": True}, ["need truncation"]),
        (["cat the the"], {"truncation": "only_second", "max_length": 3}, ["only_second", "one text"]),
        (
            ["cat", "the the the"],
            {"truncation": "only_first", "max_length": 5},
            ["first text", "more than the 2", "got 1"],
        ),
        (
            ["the the the the"],
            {"truncation": "longest_first", "max_length": 4, "stride": 2, "return_overflowing_tokens": True},
            ["stride", "below the 2", "got 2"],
        ),
        (["cat"], {"truncation": "longest_first", "max_length": 4, "stride": -1}, ["stride", "got -1"]),
        (
            ["cat"],
            {"truncation": "longest_first", "max_length": 6, "padding": "longest", "pad_to_multiple_of": 4},
            ["multiple of pad_to_multiple_of 4", "got 6"],
        ),
        (["cat"], {"threads": -1}, ["threads", "got -1"]),
    ],
)
def test_bad_options(vocab_file, sample, options, parts):
    message = rows_of_ours(vocab_file, [sample], options)[0]["error"]
    for part in parts:
        assert part in message
