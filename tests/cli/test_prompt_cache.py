"""`--prompt-cache` of `roformer generate` and `roformer chat`: the same texts, with fewer tokens computed."""

import json
import random
import re
import shutil

import pytest
import safetensors.numpy

from chat_model import save_chat_model
from cli_support import refused, results, run
from engine_modules import save_linear
from rotary_decoders import make_decoder, make_tokenizer, write_gguf

LONG = "the quick brown fox jumps over lazy dogs 3 times, "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_chat_model(folder, max_position_embeddings=2048)
    return folder


def generate(model, prompt, *options, cache=None, command="generate"):
    """The result, and the tokens of the prompt and of those in the file."""
    cached = () if cache is None else ("--prompt-cache", cache)
    common = ("--model", model, "--prompt", prompt, "--max-new-tokens", 12, "--no-stop")
    done = run(command, *common, *options, *cached)
    assert done.returncode == 0, done.stderr
    if cache is None:
        return done.stdout
    kept, read = re.fullmatch(rf"(\d+) of the prompt's (\d+) tokens were in {cache}\n", done.stderr).groups()
    return done.stdout, int(read), int(kept)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--precision", "bfloat16"),
        ("--precision", "int8", "--cache-precision", "bfloat16"),
        ("--cache-precision", "int8"),
        ("--sample", "--seed", 4, "--num-return-sequences", 3),
        ("--beams", 3),
        ("--chat", "--system", "dogs", "--stream"),
    ],
)
def test_same_bits(folder, tmp_path, options):
    cache = tmp_path / "cache"
    first, second = LONG * 6 + "fox", LONG * 6 + "people the"
    kept = []
    for prompt in (first, second, second, LONG, first + " a"):
        expected = generate(folder, prompt, *options)
        text, tokens, from_file = generate(folder, prompt, *options, cache=cache)
        assert text == expected
        kept.append((from_file, tokens))
    common = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert kept[0][0] == 0 and common // 4 < kept[1][0] < kept[1][1] - 1
    assert kept[2][0] == kept[2][1] - 1 and kept[3][0] > 0
    tensors = safetensors.numpy.load_file(cache) if "bfloat16" not in options else {}
    if tensors and not options:
        assert tensors["ids"].shape[0] == kept[4][1]
        assert tensors["2.0.keys"].shape[0] == kept[4][1] and tensors["2.0.keys"].dtype == "float32"


def test_chat(folder, tmp_path):
    """A conversation that begins as one before."""
    cache = tmp_path / "cache"
    options = ("chat", "--model", folder, "--max-new-tokens", 8, "--system", LONG * 4)
    plain = run(*options, stdin="fox\ndogs\n")
    for _ in range(2):
        done = run(*options, "--prompt-cache", cache, stdin="fox\ndogs\n")
        assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    _, tokens, kept = generate(folder, "fox", "--chat", "--system", LONG * 4, cache=cache)
    assert kept == tokens - 1


def test_gguf(tmp_path):
    path = write_gguf(
        make_decoder("llama", vocab_size=330), tmp_path / "m.gguf", "F32", (make_tokenizer(330), "smollm")
    )
    for name in ("a", "b"):
        text, tokens, kept = generate(path, LONG + name, cache=tmp_path / "cache")
        assert text == generate(path, LONG + name) and kept == (0 if name == "a" else tokens - 1)


def test_rotations_that_change_with_the_length(folder, tmp_path):
    """A prompt within the trained length does not decide the keys of one beyond it: nothing is kept or read."""
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    config = json.loads((model / "config.json").read_text())
    config |= {
        "max_position_embeddings": 32,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    }
    (model / "config.json").write_text(json.dumps(config))
    prompts = [LONG[:20], LONG * 4]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in prompts))
    given = ("--model", model, "--input", tmp_path / "prompts.jsonl", "--max-new-tokens", 6, "--no-stop")
    one, two = (results("generate", *given, "--batch", batch) for batch in (1, 2))
    assert one == two
    said = refused("generate", "--model", model, "--prompt", "a", "--prompt-cache", tmp_path / "cache")
    assert "a rotation that changes with the length" in said and not (tmp_path / "cache").exists()


def test_other_names(folder, tmp_path):
    """The files that the index names decide, whatever they are called; a GGUF file may be renamed."""
    model, cache = tmp_path / "model", tmp_path / "cache"
    shutil.copytree(folder, model)
    weights = safetensors.numpy.load_file(model / "model.safetensors")
    (model / "model.safetensors").rename(model / "weights-1.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "weights-1.safetensors")}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    generate(model, LONG, cache=cache)
    shutil.copy(cache, model / "model-prompt.safetensors")  # no file of the model
    assert generate(model, LONG, cache=cache)[2] > 0
    safetensors.numpy.save_file(
        {name: 1.1 * x for name, x in weights.items()}, model / "weights-1.safetensors", {"format": "pt"}
    )
    said = refused("generate", "--model", model, "--prompt", LONG, "--prompt-cache", cache)
    assert "must have model" in said
    gguf, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    write_gguf(make_decoder("llama", vocab_size=330), gguf, "F32", (make_tokenizer(330), "smollm"))
    generate(gguf, LONG, cache=tmp_path / "of-gguf")
    gguf.rename(other)
    assert generate(other, LONG, cache=tmp_path / "of-gguf")[2] > 0


@pytest.mark.parametrize("option", ["--draft", "--prompt-cache"])
def test_empty_path(folder, option):
    assert f'{option} must be a path, got ""' in refused(
        "generate", "--model", folder, "--prompt", "a", option, "", code=2
    )


def test_no_folder(folder, tmp_path):
    said = refused("chat", "--model", folder, "--prompt-cache", tmp_path / "none" / "cache")
    assert "must be in a folder that exists" in said


def without(key):
    def change(tensors, facts):
        (facts if key in facts else tensors).pop(key)

    return change


def fact(key, value):
    return lambda tensors, facts: facts.__setitem__(key, value)


def test_refused(folder, tmp_path):
    cache, bad = tmp_path / "cache", tmp_path / "bad"
    generate(folder, LONG, cache=cache)
    whole = cache.read_bytes()
    asked = ("generate", "--model", folder, "--prompt", LONG, "--prompt-cache", bad)

    def message(data, *options, model=folder):
        bad.write_bytes(data)
        said = refused(*asked[:2], model, *asked[3:], *options)
        assert said.startswith(f"[{bad}") and said.count("\n") == 1 and bad.read_bytes() == data
        return said

    chance = random.Random(1)
    for _ in range(30):
        at = chance.randrange(8 + int.from_bytes(whole[:8], "little"), len(whole))  # of the data
        flipped = whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
        assert "it is damaged" in message(flipped)
    for size in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        message(whole[:size])
    for at in range(8, 300, 9):  # of the header
        message(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
    assert 'must have precision int8, that of this call, got "float32"' in message(whole, "--precision", "int8")
    assert 'must have cache_precision bfloat16, that of this call, got "float32"' in message(
        whole, "--cache-precision", "bfloat16"
    )
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    tensors = safetensors.numpy.load_file(other / "model.safetensors")
    name = sorted(tensors)[-1]
    tensors[name] = tensors[name] * 1.0001
    safetensors.numpy.save_file(tensors, other / "model.safetensors", {"format": "pt"})
    assert "a prompt cache must have model " in message(whole, model=other)
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    tensors, facts = safetensors.numpy.load_file(cache), header["__metadata__"]
    for change, rule in (
        (fact("version", "0.0.9"), "must have version"),
        (fact("format", "roformer prompt cache 9"), "must be a file that this version's --prompt-cache wrote"),
        (fact("instruction_set", "VAX"), "must have instruction_set"),
        (without("model"), "must have model"),
        (without("data_hash"), "it is damaged"),
        (without("ids"), "it is damaged"),
        (without("1.0.values"), "it is damaged"),
    ):
        now, said = dict(tensors), dict(facts)
        change(now, said)
        safetensors.numpy.save_file(now, bad, said)
        assert rule in message(bad.read_bytes())
    for options in (("--prompt", "a"), ("--input", "-")):
        assert "--prompt-cache must be with one --prompt" in refused(
            "generate", "--model", folder, *(("--prompt", "a") if options[0] == "--prompt" else ()), *options,
            "--prompt-cache", bad, code=2,
        )  # fmt: skip


def test_states_that_change(tmp_path):
    """Sums over keys are no rows that a file could keep."""
    save_linear(tmp_path, "elu", "after_map", head="RfEncoderForCausalLM", is_decoder=True, vocab_size=261)
    results("vocab", "--bytes", "--output", tmp_path)
    asked = ("generate", "--model", tmp_path, "--prompt", "a", "--max-new-tokens", 2)
    assert results(*asked)
    assert "a prompt cache must be of a model whose keys and values stay as a sequence grows" in refused(
        *asked, "--prompt-cache", tmp_path / "cache"
    )
