"""What a terminal is sent: tables for people, and nothing that steers it, whatever files and names hold."""

import json
import re

import numpy as np

from cli_support import on_terminal, pretrain, refused, results, run, run_file
from engine_case import make_oracle

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b1m\u202etxt.exe\u2066"
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def assert_tame(text):
    assert not STEERS.search(text), ascii(text)


def test_options_and_commands(tmp_path):
    for arguments in (
        *([f"--{HOSTILE}"], [HOSTILE], ["info", f"--{HOSTILE}"], ["info", HOSTILE]),
        ["prepare", "--input", "x", "--model", "y", "--output", "z", "--format", HOSTILE],
        ["finetune", "--model", "x", "--task", "y", "--train", "z", "--output", "o", "--valid", "v", "--keep", HOSTILE],
        ["vocab", "--input", "x", "--output", "y", "--size", HOSTILE],
    ):
        message = refused(*arguments, code=2)
        assert "owned" in message
        assert_tame(message)


def test_names_of_files(prepared, tmp_path):
    folder = tmp_path / HOSTILE
    for arguments in (
        ["fill-mask", "--model", folder, "--text", "[MASK]"],
        ["vocab", "--input", folder, "--output", tmp_path / "v.txt"],
        ["pretrain", "--config", folder, "--data", prepared / "data", "--output", tmp_path / "run"],
        ["forward", "--model", prepared / "vocabulary", "--ids", folder, "--output", tmp_path / "o.npy"],
    ):
        assert_tame(refused(*arguments))
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(b"x")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).write_bytes((prepared / "vocabulary" / name).read_bytes())
    (folder / "config.json").write_text('{"architectures": ["RoFormerForMaskedLM"], "model_type": "roformer"}')
    np.save(tmp_path / "ids.npy", np.array([[5]]))
    message = refused("forward", "--model", folder, "--ids", tmp_path / "ids.npy", "--output", tmp_path / "o.npy")
    assert "pytorch_model.bin" in message
    assert_tame(message)


def test_warnings_of_models(tmp_path):
    folder = tmp_path / HOSTILE
    model = make_oracle("RoFormer", "ForMaskedLM")
    model.roformer.encoder.embed_positions.weight.data[3, 0] += 0.5
    model.save_pretrained(folder)
    np.save(tmp_path / "ids.npy", np.array([[5]]))
    done = run("forward", "--model", folder, "--ids", tmp_path / "ids.npy", "--output", tmp_path / "o.npy")
    assert done.returncode == 0 and done.stderr.startswith("warning: [load_model] encoder.embed_positions.weight in ")
    assert_tame(done.stderr)


def test_what_files_hold(prepared, tmp_path):
    vocabulary = tmp_path / "v"
    vocabulary.mkdir()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", HOSTILE, "a"]
    (vocabulary / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    bert = {"tokenizer_class": "BertTokenizer"}
    for config in ({"tokenizer_class": HOSTILE}, {HOSTILE: 1} | bert, {"unk_token": HOSTILE}):
        (vocabulary / "tokenizer_config.json").write_text(json.dumps(config))
        assert_tame(run("tokenize", "--model", vocabulary, stdin="a\n").stderr)
    message = refused(*pretrain(prepared, run_file(tmp_path / "run.json", **{HOSTILE: 1}), tmp_path / "run"))
    assert "owned" in message
    assert_tame(message)


def test_results_are_the_same_json_without_what_steers(tmp_path):
    """C1 and bidirectional characters as tokens: escapes in the line, the characters when it is read."""
    strange = ["\x9b", "\u202e", "\x7f", "\u2069", "中"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *strange]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    folder = tmp_path / "a\x9b\u202eb"
    done = run("vocab", "--bytes", "--output", folder)
    assert done.returncode == 0 and json.loads(done.stdout)["output"] == str(folder)
    assert_tame(done.stdout)
    done = run("tokenize", "--vocab", tmp_path / "vocab.txt", "--cased", stdin="中\n")
    assert "中" in done.stdout and json.loads(done.stdout)["tokens"] == ["[CLS]", "中", "[SEP]"]


def test_lists_are_tables_on_a_terminal():
    command = ["info", "--encodings"]
    lines = results(*command)
    header, *rows = on_terminal(*command, stream="stdout").splitlines()
    assert [row.split()[0] for row in rows] == [line["name"] for line in lines] and header.split()[0] == "name"
    column = header.index(header.split()[-1])
    assert [row[column:].rstrip() for row in rows] == [line["summary"] for line in lines]
    as_json = on_terminal(*command, "--json", stream="stdout").splitlines()
    assert [json.loads(line) for line in as_json] == lines == results(*command, "--json")
