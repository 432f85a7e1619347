"""Translation from the command line: byte pairs, training, resuming, translating and averaging, and bad input."""

import json
import random
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cli_support import PROGRAM, metrics, on_terminal, refused, results, run, size_limit, stopped
from roformer_cpp.translation import load_translation_model
from tolerances import GRADIENT_OF_A_STEP, T4_MAX

ENGLISH = "a dog cat man runs sleeps the small big and sees green old ."
GERMAN = "ein Hund Kater Mann rennt schläft der kleine große und sieht grüne alte ."
WORDS = dict(zip(ENGLISH.split(), GERMAN.split(), strict=True))
MODEL = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
MODEL |= dict(encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.1, position_encoding="rope")
RUN = dict(model=MODEL, steps=12, max_tokens=128, max_length=32, accumulate=2, log_every_steps=2)
RUN |= dict(evaluate_every_steps=4, checkpoint_every_steps=3)
RUN |= dict(schedule=dict(kind="inverse_sqrt", learning_rate=5e-3, warmup_steps=4))


def write_pairs(folder, name, count, seed):
    rng = random.Random(seed)
    lines = [rng.choices(list(WORDS), k=rng.randint(2, 9)) for _ in range(count)]
    (folder / f"{name}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation")
    write_pairs(folder, "train", 200, 1)
    write_pairs(folder, "valid", 20, 2)
    inputs = ["--input", folder / "train.en", "--input", folder / "train.de"]
    results("vocab", "--byte-pairs", *inputs, "--format", "text", "--size", 300, "--output", folder / "tokenizer")
    return folder


def training(folder, output, train=("train.en", "train.de"), **keys):
    path = folder / f"{output.name}.json"
    path.write_text(json.dumps({**RUN, **keys}))
    files = ["--train", *(folder / name for name in train), "--valid", folder / "valid.en", folder / "valid.de"]
    return ["train-translation", "--config", path, *files, "--tokenizer", folder / "tokenizer", "--output", output]


@pytest.fixture(scope="module")
def trained(folder):
    (report,) = results(*training(folder, folder / "run"))
    assert report["steps"] == 12 and report["pairs"] == 200
    return folder / "run"


def translating(trained, folder, text, *more):
    (folder / "in.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return ["translate", "--model", trained, "--input", folder / "in.txt", *more]


def small_run(folder, output, length, encoding):
    model = {**MODEL, "position_encoding": encoding, "max_position_embeddings": length}
    results(*training(folder, output, model=model, steps=1))


def test_byte_pairs_are_those_of_tokenizers(folder):
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    options = dict(special_tokens=["<pad>", "</s>", "<unk>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, min_frequency=2, show_progress=False, **options)
    theirs.train([str(folder / "train.en"), str(folder / "train.de")], trainer)
    ours = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    assert ours.get_vocab() == theirs.get_vocab() and len(ours.get_vocab()) == 300
    for line in [*(folder / "valid.de").read_text().splitlines(), "Grüße, 3.5 €!  zwei  Leerzeichen"]:
        ids = ours.encode(line).ids
        assert ids == [*theirs.encode(line).ids, 1]
        assert ours.decode(ids[:-1]) == line


def test_loss_falls_and_lines_are_logged(trained):
    losses = [line["loss"] for line in metrics(trained, "train")]
    assert len(losses) == 6 and losses[-1] < losses[0] - 0.5
    assert [line["step"] for line in metrics(trained, "evaluation")] == [4, 8, 12]
    assert len(list(trained.glob("checkpoint-*"))) == 4
    assert json.loads((trained / "config.json").read_text())["model_type"] == "rf_translation"


def test_killed_training_has_the_same_bits(folder, trained):
    """SIGKILL in the middle, then SIGINT, then to the end."""
    output = folder / "killed"
    for sent, step in ((signal.SIGKILL, 3), (signal.SIGINT, 6)):
        code, _, _ = stopped(sent, (output / f"checkpoint-{step}").exists, *training(folder, output))
        assert code != 0
    done = run(*training(folder, output))
    assert json.loads(done.stdout)["steps"] == 12
    assert "continuing at step" in done.stderr and "warning" not in done.stderr
    for name in ("model.safetensors", "checkpoint-12/state.json"):
        assert (output / name).read_bytes() == (trained / name).read_bytes(), name
    assert metrics(output) == metrics(trained)
    assert sorted(path.name for path in output.iterdir()) == sorted(path.name for path in trained.iterdir())


def test_a_signal_writes_a_checkpoint(folder, tmp_path):
    """At the step that the message names; the run file asks for none."""
    output, never = tmp_path / "signalled", 100_000
    command = training(folder, output, steps=never, evaluate_every_steps=never, checkpoint_every_steps=never)
    log = output / "metrics.jsonl"
    code, out, said = stopped(signal.SIGINT, lambda: log.exists() and log.read_text(), *command)
    assert code == 128 + signal.SIGINT and json.loads(out)["interrupted_by_signal"] == signal.SIGINT
    (checkpoint,) = output.glob("checkpoint-*")
    assert f"after step {checkpoint.name.removeprefix('checkpoint-')};" in said
    assert json.loads((checkpoint / "state.json").read_text())["interrupted"]


def test_translations_keep_the_order_in_any_batch(folder, trained, tmp_path):
    lines = (folder / "valid.en").read_text().splitlines()
    lines[3:3] = ["", "  "]
    translate = translating(trained, tmp_path, "\n".join(lines) + "\n")
    done = run(*translate)
    assert done.returncode == 0, done.stderr
    translated = done.stdout.split("\n")[:-1]
    assert len(translated) == len(lines) and translated[3:5] == ["", ""]
    for options in (["--batch-tokens", 1], ["--no-cache", "--batch-tokens", 70]):
        assert run(*translate, *options).stdout == done.stdout
    assert run("translate", "--model", trained, stdin=(tmp_path / "in.txt").read_text()).stdout == done.stdout

    tokenizer = Tokenizer.from_file(str(trained / "tokenizer.json"))
    model = load_translation_model(trained)
    sources = [tokenizer.encode(line).ids for line in lines if line.strip()]
    expected = [tokenizer.decode(found.ids) for found in model.translate(sources)]
    assert [line for line, source in zip(translated, lines, strict=True) if source.strip()] == expected
    assert len(set(expected)) > 1

    (report,) = results(*translate, "--output", tmp_path / "out.txt")
    assert report["lines"] == len(lines) and (tmp_path / "out.txt").read_text() == done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_standard_output_has_the_bytes_of_a_file(folder, tmp_path):
    """Also of characters that are escaped on a terminal."""
    text = "a\x7f\x85\u061c\u202eb\u2066"
    (tmp_path / "target").write_text(f"{text}\n" * 200)
    keys = dict(steps=80, schedule=dict(kind="constant", learning_rate=1e-2, warmup_steps=0), accumulate=1)
    results(*training(folder, tmp_path / "run", train=("train.en", tmp_path / "target"), **keys))
    translate = translating(tmp_path / "run", tmp_path, "a dog\n\nthe cat sleeps\n")
    results(*translate, "--output", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == f"{text}\n\n{text}\n"
    assert run(*translate).stdout == f"{text}\n\n{text}\n"
    assert on_terminal(*translate, stream="stdout").splitlines()[0] == "a\\x7f\\u0085\\u061c\\u202eb\\u2066"


def test_translations_that_cannot_be_written(trained):
    with Path("/dev/full").open("w") as full:
        command = [PROGRAM, "translate", "--model", trained]
        done = subprocess.run(command, input="a dog\n", stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "[stdout] results must be writable" in done.stderr


def test_interrupted_translation_goes_on(folder, trained, tmp_path):
    text = (folder / "train.en").read_text() * 3  # 600 lines
    translate = translating(trained, tmp_path, text, "--beams", 1, "--max-extra", 3)
    results(*translate, "--output", tmp_path / "whole.txt")
    whole = (tmp_path / "whole.txt").read_bytes()
    limit = len(b"".join(whole.splitlines(keepends=True)[:300])) - 1  # bytes that a file may have
    translate += ["--output", tmp_path / "out.txt"]
    assert "File too large" in refused(*translate, preexec_fn=size_limit(limit))
    assert (tmp_path / "out.txt.part").read_bytes() == whole[:limit]  # it ends within a line
    other = refused(*translate, "--length-penalty", 1)
    assert "must be those of the beginning in" in other and "/length-penalty" in other
    shutil.copytree(trained, tmp_path / "model")
    with (tmp_path / "model" / "tokenizer.json").open("a") as file:
        file.write("\n")
    other = refused("translate", "--model", tmp_path / "model", *translate[3:])
    assert "must be those of the beginning in" in other and " at /model where there was" in other
    done = run(*translate)
    assert done.returncode == 0 and "continuing at line 257 of 600" in done.stderr
    assert (tmp_path / "out.txt").read_bytes() == whole


def test_translations_of_any_size_go_on(trained, tmp_path):
    """The part that is there may be larger than what is read whole, 256 MiB."""
    options = ["--beams", 1, "--max-extra", 1, "--max-ratio", 0.1, "--output"]
    translate = translating(trained, tmp_path, "a dog\n" * 257, *options)
    results(*translate, tmp_path / "whole.txt")
    lines = (tmp_path / "whole.txt").read_bytes().splitlines(keepends=True)
    limit = len(b"".join(lines[:256]))  # bytes that a file may have: the last line has no room
    assert "File too large" in refused(*translate, tmp_path / "out.txt", preexec_fn=size_limit(limit))
    long = b"x" * (2**28 // 255 + 1) + b"\n"
    (tmp_path / "out.txt.part").write_bytes(lines[0] + long * 255)
    done = run(*translate, tmp_path / "out.txt")
    assert done.returncode == 0 and "continuing at line 257 of 257" in done.stderr
    with (tmp_path / "out.txt").open("rb") as file:
        assert file.readline() == lines[0]
        file.seek(len(lines[0]) + len(long) * 255)
        assert file.read() == lines[256]


def test_long_lines_are_named(folder, trained, tmp_path):
    done = run(*translating(trained, tmp_path, "a dog\n" + "the big dog " * 20 + "\n", "--max-source", 9))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2
    assert f"{tmp_path / 'in.txt'}, line 2, has" in done.stderr and "the first 8 are translated" in done.stderr


def test_limits_of_any_size(folder, tmp_path):
    """A table of positions ends all of them at the same length. A run that is refused for it may be corrected."""
    short = {**MODEL, "position_encoding": "learned", "max_position_embeddings": 16}
    assert "0..15" in refused(*training(folder, tmp_path / "run", model=short, steps=1))
    small_run(folder, tmp_path / "run", 32, "learned")
    weights = load_file(tmp_path / "run" / "model.safetensors")
    end = json.loads((tmp_path / "run" / "config.json").read_text())["eos_token_id"]
    weights["model.shared.weight"][end] = 0  # never the most probable token
    save_file(weights, tmp_path / "run" / "model.safetensors")
    translate = ["translate", "--model", tmp_path / "run", "--beams", 1]
    expected = run(*translate, "--max-extra", 40, stdin="a dog\n").stdout
    assert len(expected) > 8
    for limit in (["--max-extra", 2**63 - 1], ["--max-ratio", 1e300], ["--max-ratio", 1e19]):
        assert run(*translate, *limit, stdin="a dog\n").stdout == expected


def test_the_output_is_not_the_input(trained, tmp_path):
    text = "a dog\nthe cat\n"
    for name, output in (("in.txt", "in.txt"), ("out.txt.part", "out.txt"), ("out.txt.part.json", "out.txt")):
        (tmp_path / name).write_text(text)
        given = ["--input", tmp_path / name, "--output", tmp_path / output]
        message = refused("translate", "--model", trained, *given)
        rule = "[output] the output must not replace the input, got"
        assert message == f"{rule} {tmp_path / name} for the input {tmp_path / name}\n"
        assert (tmp_path / name).read_text() == text


def test_lines_of_any_end(trained, tmp_path):
    """The same translations with CRLF, a byte order mark and without a last line end; nothing of an empty file."""
    expected = run("translate", "--model", trained, stdin="a dog\nthe big cat\n").stdout
    assert expected.count("\n") == 2
    for text in ("a dog\r\nthe big cat\r\n", "a dog\nthe big cat", "\ufeffa dog\nthe big cat\n"):
        assert run(*translating(trained, tmp_path, text)).stdout == expected
    (report,) = results(*translating(trained, tmp_path, "", "--output", tmp_path / "out"))
    assert report["lines"] == 0 and (tmp_path / "out").read_bytes() == b""


def test_bytes_that_are_not_utf8_are_named(folder, trained, tmp_path):
    done = run(*translating(trained, tmp_path, b"a dog\nthe \xff cat\n"))
    assert done.returncode == 0 and done.stdout.count("\n") == 2
    named = "has bytes that are not UTF-8, which are read as U+FFFD"
    assert [line for line in done.stderr.splitlines() if "UTF-8" in line] == [f"{tmp_path / 'in.txt'}, line 2, {named}"]
    (tmp_path / "out.txt").write_bytes(b"ein Hund\r\nder \xff\xff Kater")
    pairs = (tmp_path / "in.txt", tmp_path / "out.txt")
    (tmp_path / "in.txt").write_bytes(b"a dog\nthe cat\n")
    done = run(*training(folder, tmp_path / "run", train=pairs, steps=1))
    assert done.returncode == 0, done.stderr
    rule = "1 pairs have bytes that are not UTF-8, which are read as U+FFFD, the first in"
    assert f"{rule} {tmp_path / 'out.txt'}, line 2\n" in done.stderr
    assert json.loads(done.stdout)["pairs"] == 2


def test_average(folder, trained, tmp_path):
    results("average", "--run", trained, "--last", 3, "--output", tmp_path / "mean")
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    parts = [load_file(trained / f"checkpoint-{step}" / "model.safetensors") for step in (6, 9, 12)]
    for name, values in mean.items():
        expected = sum(part[name].astype(np.float64) for part in parts) / 3
        assert np.array_equal(values, expected.astype(np.float32))
    assert not np.array_equal(mean["model.shared.weight"], parts[-1]["model.shared.weight"])
    assert not (tmp_path / "mean" / "state.json").exists()
    assert run("translate", "--model", tmp_path / "mean", stdin="a dog\n").returncode == 0
    for name in ("mean", "mean/"):
        output = f"{tmp_path}/{name}"
        assert "must not exist" in refused("average", "--run", trained, "--last", 2, "--output", output)
    for name in ("slash/", "slashes//", "./dot/."):
        results("average", "--run", trained, "--last", 3, "--output", f"{tmp_path}/{name}")
        files = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        assert files == {path.name: path.read_bytes() for path in (tmp_path / "mean").iterdir()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dot", "mean", "slash", "slashes"]
    few = refused("average", "--run", trained, "--last", 9, "--output", tmp_path / "other")
    assert "--last must be from 1 to the checkpoints of the run, 4, got 9" in few
    changed = tmp_path / "changed"
    shutil.copytree(trained / "checkpoint-12", changed)
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config | {"dropout": 0.2}))
    other = refused("average", "--models", trained / "checkpoint-9", changed, "--output", tmp_path / "other")
    assert "all directories must have the config.json of" in other


HALVES, SCALED = {"type": "sinusoidal", "layout": "half"}, {"type": "t5", "scale": "sqrt"}
ENCODINGS = ("learned", "t5", "alibi", HALVES, "xpos", "shaw", ["rope", SCALED])


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_other_encodings(encoding, folder, tmp_path):
    """Each trains, its cached search gives what the search without a cache gives, and the tokens of greedy search are
    those of the logits that PyTorch computes."""
    output = tmp_path / "run"
    small_run(folder, output, 64, encoding)
    given = "".join((folder / "valid.en").read_text().splitlines(keepends=True)[:6])
    beyond = run("translate", "--model", output, "--max-extra", 80, "--beams", 1, stdin="a dog\n")
    assert beyond.returncode == 0, beyond.stderr  # trained positions end at 64
    translated = run("translate", "--model", output, "--max-extra", 5, stdin=given)
    assert translated.returncode == 0 and translated.stdout.count("\n") == 6
    assert run("translate", "--model", output, "--max-extra", 5, "--no-cache", stdin=given).stdout == translated.stdout
    model, tokenizer = load_translation_model(output), Tokenizer.from_file(str(output / "tokenizer.json"))
    sources = [tokenizer.encode(line).ids for line in given.splitlines()]
    for source, found in zip(sources, model.translate(sources, beams=1, max_extra=5), strict=True):
        start = [model.config["decoder_start_token_id"], *found.ids]
        logits = model.logits(torch.tensor([source]), None, torch.tensor([start]))[0]
        logits[:, model.config["pad_token_id"]] = -torch.inf
        best = [*found.ids, *[model.config["eos_token_id"]] * found.ended]
        assert best and logits.argmax(-1)[: len(best)].tolist() == best


def test_transformers_opens_it_and_has_the_same_loss_and_gradient(folder, tmp_path):
    """A run with Marian's sinusoids. With an epsilon far above gradients Adam's first step is the gradient times rate /
    epsilon; a rate of next to nothing leaves the model whose held-out loss is reported."""
    model = {**MODEL, "dropout": 0.0, "position_encoding": {"type": "sinusoidal", "layout": "half"}}
    keys = dict(steps=1, accumulate=1, max_tokens=4096, precision="float32", label_smoothing=0.1, epsilon=1e3)
    weights, reports = [], []
    for rate in (1e-9, 1e3):
        schedule = dict(kind="constant", learning_rate=rate, warmup_steps=0)
        output = tmp_path / f"rate{rate}"
        given = training(folder, output, train=("valid.en", "valid.de"), model=model, schedule=schedule, **keys)
        reports += results(*given)
        weights.append(load_file(output / "model.safetensors"))
    oracle = transformers.MarianMTModel.from_pretrained(tmp_path / "rate1e-09").eval()
    tokenizer = Tokenizer.from_file(str(output / "tokenizer.json"))
    pad = oracle.config.pad_token_id

    def padded(side):
        lines = (folder / f"valid.{side}").read_text().splitlines()
        rows = [torch.tensor(tokenizer.encode(line).ids) for line in lines]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
        return ids, torch.arange(ids.shape[1]) < torch.tensor(list(map(len, rows)))[:, None]

    (ids, mask), (labels, is_target) = padded("en"), padded("de")
    start = torch.full((len(labels), 1), oracle.config.decoder_start_token_id)
    decoder_ids = torch.cat([start, labels[:, :-1]], 1)
    logits = oracle(input_ids=ids, attention_mask=mask.long(), decoder_input_ids=decoder_ids).logits
    loss = torch.nn.functional.cross_entropy(logits[is_target], labels[is_target]).item()
    assert reports[0]["valid_loss"] == pytest.approx(loss, rel=T4_MAX)
    torch.nn.functional.cross_entropy(logits[is_target], labels[is_target], label_smoothing=0.1).backward()
    assert len(mask.sum(1).unique()) > 3
    compared = 0
    for name, parameter in oracle.named_parameters():
        if name not in weights[0] or parameter.grad is None or name.endswith("k_proj.bias"):  # softmax sees no k bias
            continue
        moved = weights[0][name].astype(float) - weights[1][name].astype(float)
        gradient = parameter.grad.double().numpy()
        largest = np.abs(gradient).max()
        assert largest > 1e-6 and np.abs(moved - gradient).max() <= GRADIENT_OF_A_STEP * largest, name
        compared += 1
    assert compared > 30


def test_an_end_that_is_padding_is_refused(folder, tmp_path):
    shutil.copytree(folder / "tokenizer", tmp_path / "tokenizer")
    path = tmp_path / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": "</s>"}))
    given = training(folder, tmp_path / "run")
    given[given.index("--tokenizer") + 1] = tmp_path / "tokenizer"
    rule = "[translation] pad_token and eos_token of the tokenizer must differ"
    assert refused(*given) == f'{rule}, got "</s>" for both\n'
    assert not (tmp_path / "run").exists()


def test_bad_pairs_are_named(folder, tmp_path):
    (tmp_path / "more.en").write_text((folder / "train.en").read_text() + "one more\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "pairs.tsv").write_text("a dog\tein Hund\nthe cat\n")
    for names, *rules in (
        (["more.en", folder / "train.de"], "201 lines in", "200 in", f"line 201 of {tmp_path}/more.en"),
        (["none.en", folder / "train.de"], "none.en"),
        (["empty", "empty"], "[translation] there must be a pair of at most 32 tokens on each side, got none in"),
        (["pairs.tsv"], "got 1 columns in", "pairs.tsv, line 2"),
    ):
        said = refused(*training(folder, tmp_path / "run", train=[tmp_path / name for name in names]))
        assert all(rule in said for rule in rules) and not (tmp_path / "run").exists()
    (tmp_path / "long.tsv").write_text("a dog\tein Hund\n\t\n" + "the dog " * 30 + "\tder Hund\na cat\tein Kater\n")
    done = run(*training(folder, tmp_path / "run", train=(tmp_path / "long.tsv",), steps=1))
    assert done.returncode == 0, done.stderr
    assert "1 pairs with an empty side are left out, the first in" in done.stderr and "line 2" in done.stderr
    assert "1 pairs of more than 32 tokens are left out, the first in" in done.stderr and "line 3, of" in done.stderr


def test_refused_runs(folder, trained, tmp_path):
    other = refused(*training(folder, trained, label_smoothing=0.2))
    assert "/translation/label_smoothing" in other
    for keys, rule in (
        (dict(warmup=3), "every key must be known"),
        (dict(model={**MODEL, "vocab_size": 301}), "model.vocab_size must be the tokenizer's 300 (or absent), got 301"),
        (dict(label_smoothing=1.0), "label_smoothing must be"),
        (dict(model={**MODEL, "encoder_attention_heads": 3}), "must be a multiple of encoder_attention_heads, got 32"),
    ):
        assert rule in refused(*training(folder, tmp_path / "run", **keys))
    for beams in (0, 301, 2**63 - 1):
        message = refused("translate", "--model", trained, "--beams", beams, "--output", tmp_path / "out", stdin="a\n")
        assert message == f"[translate] beams must be in 1..300, got {beams}\n" and not any(tmp_path.glob("out*"))
    assert "none.txt" in refused("translate", "--model", trained, "--input", tmp_path / "none.txt")
