"""`--prompt-cache` of `roformer generate` and `roformer chat`: the same texts, with fewer tokens computed."""

import json
import random
import re
import shutil

import pytest
import safetensors.numpy

from chat_model import save_chat_model
from cli_support import refused, results, run
from engine_case import change_config
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
    if not options:
        tensors = safetensors.numpy.load_file(cache)
        assert tensors["ids"].shape[0] == tensors["2.0.keys"].shape[0] == kept[4][1]
        assert tensors["2.0.keys"].dtype == "float32"


def test_chat(folder, tmp_path):
    cache = tmp_path / "cache"
    options = ("chat", "--model", folder, "--max-new-tokens", 8, "--system", LONG * 4)
    plain = run(*options, stdin="fox\ndogs\n")
    for _ in range(2):
        done = run(*options, "--prompt-cache", cache, stdin="fox\ndogs\n")
        assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    _, tokens, kept = generate(folder, "fox", "--chat", "--system", LONG * 4, cache=cache)
    assert kept == tokens - 1
    # Refused before a token is computed, as the prompt leaves less room: there is nothing to keep.
    none = tmp_path / "none"
    given = ("chat", "--model", folder, "--min-new-tokens", 2048, "--prompt-cache", none)
    assert "min_new_tokens must be in 0.." in refused(*given, stdin="fox\n") and not none.exists()


def test_rotations_that_change_with_the_length(folder, tmp_path):
    """A prompt within the trained length does not decide the keys of one beyond it: nothing is kept or read."""
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    change_config(model, max_position_embeddings=32, rope_parameters=dynamic)
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
    changed = {name: 1.1 * x for name, x in weights.items()}
    safetensors.numpy.save_file(changed, model / "weights-1.safetensors", {"format": "pt"})
    said = refused("generate", "--model", model, "--prompt", LONG, "--prompt-cache", cache)
    assert "must have model" in said
    gguf, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    write_gguf(make_decoder("llama", vocab_size=330), gguf, "F32", (make_tokenizer(330), "smollm"))
    assert generate(gguf, LONG + "a", cache=tmp_path / "of-gguf")[2] == 0
    gguf.rename(other)
    text, tokens, kept = generate(other, LONG + "b", cache=tmp_path / "of-gguf")
    assert text == generate(other, LONG + "b") and kept == tokens - 1


def test_bad_paths(folder, tmp_path):
    for option in ("--draft", "--prompt-cache"):
        said = refused("generate", "--model", folder, "--prompt", "a", option, "", code=2)
        assert f'{option} must be a path, got ""' in said
    said = refused("chat", "--model", folder, "--prompt-cache", tmp_path / "none" / "cache")
    assert "must be in a folder that exists" in said


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
    for name, precision in (("precision", "int8"), ("cache_precision", "bfloat16")):
        said = message(whole, f"--{name.replace('_', '-')}", precision)
        assert f'must have {name} {precision}, that of this call, got "float32"' in said
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    tensors = safetensors.numpy.load_file(other / "model.safetensors")
    name = sorted(tensors)[-1]
    tensors[name] = tensors[name] * 1.0001
    safetensors.numpy.save_file(tensors, other / "model.safetensors", {"format": "pt"})
    assert "a prompt cache must have model " in message(whole, model=other)
    size = int.from_bytes(whole[:8], "little")
    content = safetensors.numpy.load_file(cache) | json.loads(whole[8 : 8 + size])["__metadata__"]
    for key, value, rule in (  # of tensors and of texts about them; None: it is missing
        ("version", "0.0.9", "must have version"),
        ("format", "roformer prompt cache 9", "must be a file that this version's --prompt-cache wrote"),
        ("instruction_set", "VAX", "must have instruction_set"),
        ("model", None, "must have model"),
        *((key, None, "it is damaged") for key in ("data_hash", "ids", "1.0.values")),
    ):
        changed = {name: x for name, x in (content | {key: value}).items() if x is not None}
        facts = {name: x for name, x in changed.items() if isinstance(x, str)}
        safetensors.numpy.save_file({name: changed[name] for name in changed.keys() - facts}, bad, facts)
        assert rule in message(bad.read_bytes())
    for given in (["--prompt", "a", "--prompt", "a"], ["--input", "-"]):
        said = refused("generate", "--model", folder, *given, "--prompt-cache", bad, code=2)
        assert "--prompt-cache must be with one --prompt" in said


def test_states_that_change(tmp_path):
    """Sums over keys are no rows that a file could keep."""
    save_linear(tmp_path, "elu", "after_map", head="RfEncoderForCausalLM", is_decoder=True, vocab_size=261)
    results("vocab", "--bytes", "--output", tmp_path)
    asked = ("generate", "--model", tmp_path, "--prompt", "a", "--max-new-tokens", 2)
    assert results(*asked)
    said = refused(*asked, "--prompt-cache", tmp_path / "cache")
    assert "a prompt cache must be of a model whose keys and values stay as a sequence grows" in said
