"""Texts of causal models as they are found, and the strings that end them, against transformers' tokenizers: for word
pieces with each way of cleaning up, bytes, and byte pairs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import tokenizers
import torch
import transformers

from cli_support import PROGRAM, ROOT, hear_interrupts, refused, results
from engine_case import make_causal, make_oracle
from roformer_cpp import Engine
from rotary_decoders import make_decoder, make_tokenizer

# What cleaning up may change once more follows.
PIECES = [".", ",", "?", "!", "'", "n", "t", "m", "s", "ve", "re", "n't", "'m", "do", "not", "it", "é", "##'", "##t"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, "##s", "##.", "##n", "日", "##本"]
KINDS = ["word pieces", "cleaned up", "legacy", "spaces", "bytes", "byte pairs"]
PROMPTS = ["it", "do n't", "it '", "do ' n ' t", "é ."]


def save_word_pieces(folder, kind):
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    name = "BertTokenizerLegacy" if kind == "legacy" else "BertTokenizer"
    settings = {"tokenizer_class": name} if kind == "legacy" else {"tokenizer_class": name, "strip_accents": False}
    settings["clean_up_tokenization_spaces"] = kind != "word pieces"
    if kind == "spaces":
        tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), strip_accents=False)
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        (folder / "tokenizer.json").write_text(json.dumps(state | {"decoder": None}))
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        settings |= {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    """A model directory and transformers' decoding of its ids."""
    folder = tmp_path_factory.mktemp("stream") / "model"
    kind = request.param
    if kind == "bytes":
        results("vocab", "--bytes", "--output", folder)
        make_causal("RoFormer", folder, vocab_size=261, max_position_embeddings=128)
    elif kind == "byte pairs":
        make_decoder("llama", folder, vocab_size=330)
        make_tokenizer(size=330).save(str(folder / "tokenizer.json"))
        keys = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}
        (folder / "tokenizer_config.json").write_text(json.dumps(keys))
    else:
        folder.mkdir()
        make_causal("RoFormer", folder, vocab_size=len(WORDS), max_position_embeddings=128)
        save_word_pieces(folder, kind)
    return kind, folder


def decoder(kind, folder):
    """A prompt and new ids -> the new text."""
    if kind == "byte pairs":
        oracle, last = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), None
    else:
        oracle, last = transformers.AutoTokenizer.from_pretrained(folder), -1

    def new_text(prompt, ids):
        encoded = oracle.encode(prompt)
        given = (encoded.ids if kind == "byte pairs" else encoded)[:last]
        before, whole = (oracle.decode(each, skip_special_tokens=True) for each in (given, given + ids))
        return whole[len(before) :] if whole.startswith(before) else oracle.decode(ids, skip_special_tokens=True)

    return new_text


def test_a_streamed_text_is_the_whole_one(case):
    kind, folder = case
    engine, new_text = Engine(folder), decoder(kind, folder)
    options = dict(temperature=2.0, max_new_tokens=30, stop=[])
    count = 0
    for seed in range(15):
        prompt = PROMPTS[seed % len(PROMPTS)]
        (whole,) = engine.generate(prompt, seed=seed, **options)
        stream = engine.generate(prompt, seed=seed, stream=True, **options)
        parts = list(stream)
        assert all(parts) and "".join(parts) == whole["text"] == new_text(prompt, whole["ids"]), (prompt, seed)
        assert stream.result == whole and next(stream, None) is None
        assert stream.tokens_per_second > 0
        count += len(parts)
    assert count > 15 * 8  # nothing waits for the end


def stops_at(new_text, prompt, ids, stop):
    """Where the text has the string for the first time."""
    ends = [n for n in range(1, len(ids) + 1) if stop in new_text(prompt, ids[:n])]
    return ids[: ends[0]] if ends else ids


def test_strings_end_texts(case):
    kind, folder = case
    engine, new_text = Engine(folder), decoder(kind, folder)
    options = dict(temperature=2.0, max_new_tokens=100)  # more than what is decoded to look for a string
    stopped = 0
    for seed in range(5):
        prompt = PROMPTS[seed % len(PROMPTS)]
        (free,) = engine.generate(prompt, seed=seed, stop=[], **options)
        text = free["text"]
        for begin in (1, len(text) // 2, len(text) * 9 // 10):  # of any length: a part of a token, or several
            for size in (1, 5):
                stop = text[begin : begin + size]
                if not stop or "�" in stop:
                    continue
                (result,) = engine.generate(prompt, seed=seed, stop=["never to be found", stop], **options)
                expected = stops_at(new_text, prompt, free["ids"], stop)
                assert result["ids"] == expected, (prompt, seed, stop)
                assert result["stopped"] == (stop in result["text"]) and result["text"] == new_text(prompt, expected)
                stopped += result["stopped"]
                stream = engine.generate(prompt, seed=seed, stop=[stop], stream=True, **options)
                assert "".join(stream) == result["text"]
    assert stopped > 5


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stops") / "model"
    results("vocab", "--bytes", "--output", folder)
    return make_causal("RoFormer", folder, vocab_size=261, max_position_embeddings=256), folder


@pytest.mark.parametrize("beams", [None, 3])
def test_strings_of_transformers(of_bytes, beams):
    """Token for token what transformers' stop_strings give, in greedy and in beam search."""
    oracle, folder = of_bytes
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    engine = Engine(folder)
    prompt = tokenizer("the people")["input_ids"][:-1]
    options = dict(max_new_tokens=24, repetition_penalty=1.6)
    (free,) = engine.generate("the people", stop=[], **options)
    texts = [tokenizer.decode(free["ids"][i : i + 2]) for i in (3, 9)]
    for stop in [text for text in texts if "�" not in text] + ["e", "nowhere"]:
        stops = dict(stop_strings=[stop], tokenizer=tokenizer, eos_token_id=None, do_sample=False)
        theirs = oracle.generate(torch.tensor([prompt]), **stops, num_beams=beams or 1, **options)
        (ours,) = engine.generate("the people", stop=[stop], beams=beams, **options)
        row = theirs[0, len(prompt) :].tolist()
        assert ours["ids"] == row[: len(ours["ids"])] and set(row[len(ours["ids"]) :]) <= {0}
        assert ours["stopped"] == (stop in ours["text"])


def test_pipes_and_odd_strings(of_bytes):
    """The program writes the bytes of the text into a pipe, control characters too; strings as a shell passes them."""
    _, folder = of_bytes
    common = ["generate", "--model", folder, "--prompt", "the people", "--max-new-tokens", 200, "--temperature", 3]
    found = 0
    for seed in range(2):
        (line,) = results(*common, "--seed", seed, "--no-stop")
        command = [str(each) for each in (PROGRAM, *common, "--seed", seed, "--no-stop", "--stream")]
        assert subprocess.run(command, capture_output=True, check=True).stdout.decode() == line["text"] + "\n"
        assert any(ord(c) < 32 and c not in "\n\t" for c in line["text"])
        for stop in ["\n", "\x01", "[a, b]", "]", "'", "\\", "-x", "[SEP]"]:
            (ended,) = results(*common, "--seed", seed, f"--stop={stop}")
            assert ended["ids"] == line["ids"][: len(ended["ids"])]
            assert ended["stopped"] == (stop in line["text"] or (stop == "[SEP]" and 259 in line["ids"]))
            found += ended["stopped"]
    assert found > 2
    common = ["generate", "--model", folder, "--prompt", "a", "--stop"]
    assert '--stop must have at least one character, got ""' in refused(*common, "")
    assert '--stop must be UTF-8, got "a\\xff"' in refused(*common, b"a\xff".decode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"\[generate\] a stop string must have at least one character"):
        Engine(folder).generate("a", stop=[""])
    with pytest.raises(ValueError, match="stream must be with one string"):
        Engine(folder).generate(["a"], stream=True)


def test_speed_is_reported_and_a_stream_may_be_left(of_bytes):
    results_of_two = Engine(of_bytes[1]).generate(["a", "b"], max_new_tokens=7, stop=[])
    assert results_of_two.tokens == 14 and results_of_two.seconds > 0
    assert results_of_two.tokens_per_second == results_of_two.tokens / results_of_two.seconds
    engine = Engine(of_bytes[1])
    stream = engine.generate("a", stream=True, max_new_tokens=200)
    first = next(stream)
    del stream, engine
    assert first == next(Engine(of_bytes[1]).generate("a", stream=True, max_new_tokens=200))


INTERRUPTED = """
import sys
from roformer_cpp import Engine

causal, encoder = Engine(sys.argv[1]), Engine(sys.argv[2], task="embed")
texts = [f"{i} " * 60 for i in range(20_000)]
calls = [
    lambda: causal.generate(["a", "b"], max_new_tokens=200_000, stop=[]),
    lambda: list(causal.generate("a", max_new_tokens=200_000, stop=[], stream=True)),
    lambda: encoder.embed(texts),
]
for call in calls:
    try:
        print("begins", flush=True)
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(causal.generate("a", max_new_tokens=3, stop=[]).tokens, encoder.embed("a").shape)
"""


def test_an_interrupt_ends_a_call(of_bytes, tmp_path):
    """Calls of minutes to hours; what is open computes afterwards."""
    results("vocab", "--bytes", "--output", tmp_path)
    sizes = dict(hidden_size=256, num_attention_heads=4, intermediate_size=1024, num_hidden_layers=6)
    make_oracle("Bert", "Model", vocab_size=261, max_position_embeddings=512, **sizes).save_pretrained(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(of_bytes[1]), str(tmp_path)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        preexec_fn=hear_interrupts,
    )  # fmt: skip
    stuck = threading.Timer(300, child.kill)
    stuck.start()
    lines = []
    for line in child.stdout:
        lines.append(line.strip())
        if lines[-1] == "begins":
            time.sleep(0.5)
            child.send_signal(signal.SIGINT)
    stuck.cancel()
    assert child.wait() == 0 and lines == ["begins", "interrupted"] * 3 + ["3 (256,)"]
