"""Keys and values that generation keeps in bfloat16 or int8, beside transformers with the same rounding."""

import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

import tolerances as tol
from engine_case import assert_refused, make_oracle
from engine_modules import save_linear
from rf_engine import EngineError
from rf_generation import CausalEngine, Decoder, check_batches_and_threads, check_grown
from rope_scaling_reference import DIGITS, frequencies
from rotary_decoders import make_decoder, make_rows, oracle_logits

CACHES = ("bfloat16", "int8")


def rounded(x, cache):
    """[.., head_dim]"""
    if cache == "none":
        return x
    if cache == "bfloat16":
        return x.bfloat16().float()
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale) * scale


def round_cache(oracle, cache, monkeypatch):
    """Keys before their rotation, and values, of every layer of a model of transformers."""
    module = sys.modules[type(oracle).__module__]
    rotate = module.apply_rotary_pos_emb
    monkeypatch.setattr(module, "apply_rotary_pos_emb", lambda q, k, *args: rotate(q, rounded(k, cache), *args))
    for layer in oracle.model.layers:
        head_dim = layer.self_attn.head_dim

        def hook(_module, _inputs, values, head_dim=head_dim):
            return rounded(values.unflatten(-1, (-1, head_dim)), cache).flatten(-2)

        layer.self_attn.v_proj.register_forward_hook(hook)


# Grouped queries; soft caps and windows; a norm of the keys; sinks, windows, YaRN and experts.
@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3", "gpt_oss"])
@pytest.mark.parametrize("cache", CACHES)
def test_logits(family, cache, tmp_path, monkeypatch):
    """Ours differ from those of rounded keys and values by much less than these from those without."""
    oracle = make_decoder(family, tmp_path, spread=0.1)
    row = make_rows((40,))[0]
    exact = oracle_logits(oracle, row)
    round_cache(oracle, cache, monkeypatch)
    expected = oracle_logits(oracle, row)
    decoder = Decoder(CausalEngine(tmp_path, cache=cache), 1, len(row))
    ours = np.concatenate([decoder.append([0], [[token]]) for token in row])
    assert np.linalg.norm(ours - expected) <= tol.CACHE_ROUNDING_SHARE * np.linalg.norm(exact - expected)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("cache", CACHES)
def test_bits(cache, precision, tmp_path):
    """They do not depend on steps, neighbours, threads, and on what a sequence was before."""
    make_decoder("llama", tmp_path, max_position_embeddings=150)
    engine = CausalEngine(tmp_path, precision, cache=cache)
    rows = make_rows((1, 64, 3, 65, 33, 140))
    whole = {}
    for i, row in enumerate(rows):
        decoder = Decoder(engine, 1, len(row))
        for length in range(1, len(row) + 1):
            whole[i, length] = decoder.append([0], [row[length - 1 : length]])[0]
    check_grown(engine, rows, 50, lambda i, length: whole[i, length])
    decoder = Decoder(engine, 2, 140)
    decoder.append([0, 1], [rows[5], rows[3]])
    decoder.truncate(0, 100)
    decoder.copy(0, 1)
    assert np.array_equal(decoder.append([1], [rows[5][100:]])[0], whole[5, 140])
    check_batches_and_threads(engine, rows[:4], "greedy")


def test_numbers_that_rows_cannot_hold(tmp_path):
    """Rows of zeros, of subnormal numbers; numbers that are not finite are an error as without a cache."""
    import safetensors.torch

    make_decoder("llama", tmp_path, num_hidden_layers=1)
    file, layer = tmp_path / "model.safetensors", "model.layers.0."
    tensors = safetensors.torch.load_file(file)
    for keys, norm, is_finite in ((0, 1, True), (1e-42, 1, True), (1e37, 1e4, False)):
        factors = {layer + "self_attn.k_proj.weight": keys, layer + "input_layernorm.weight": norm}
        changed = {name: tensors[name] * factor for name, factor in factors.items()}
        safetensors.torch.save_file(tensors | changed, file, {"format": "pt"})
        engine = CausalEngine(tmp_path, cache="int8")
        if is_finite:
            assert len(engine.generate([[5, 6, 7]])[0][0].ids) == 20
        else:
            with pytest.raises(EngineError, match="logits must be finite"):
                engine.generate([[5, 6, 7]])


def test_long_prompts(tmp_path):
    """A prompt is computed in parts of 4,096 tokens, with the bits of one call."""
    make_decoder("llama", tmp_path, spread=0.1, num_hidden_layers=2, max_position_embeddings=10000)
    engine = CausalEngine(tmp_path)
    prompts = make_rows((9000, 3, 4097))
    for prompt, (result,) in zip(prompts, engine.generate(prompts, max_new_tokens=3), strict=True):
        logits = Decoder(engine, 1, 10000).append([0], [prompt])[0].astype(np.float64)
        assert result.ids[0] == logits.argmax()
        assert result == engine.generate([prompt], max_new_tokens=3)[0][0]
        first = engine.generate([prompt], max_new_tokens=1)[0][0]
        assert first.log_probability == pytest.approx(logits.max() - np.logaddexp.reduce(logits), rel=tol.T2_RTOL)


LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # of Llama 3.2 1B  # fmt: skip


def last_logits(oracle, ids, cache):
    """Of a model with one layer and one head: the last token's, in float64, with exact angles."""
    oracle = oracle.double()
    layer, model = oracle.model.layers[0], oracle.model
    with torch.no_grad(), mpmath.workdps(DIGITS):
        x = model.embed_tokens(torch.tensor(ids).long())
        read = layer.input_layernorm(x)
        keys, values = (
            rounded(project(read), cache).double() for project in (layer.self_attn.k_proj, layer.self_attn.v_proj)
        )
        theta = torch.tensor([float(f) for f in frequencies(LLAMA3, keys.shape[-1])]).double()
        turns = torch.polar(torch.ones(()).double(), torch.arange(len(ids)).double()[:, None] * theta)
        half = len(theta)
        query = layer.self_attn.q_proj(read[-1:])
        rotated_query = torch.complex(query[:, :half], query[:, half:]) * turns[-1]
        rotated_keys = torch.complex(keys[:, :half], keys[:, half:]) * turns
        scores = (rotated_keys * rotated_query.conj()).real.sum(-1) / np.sqrt(2 * half)
        y = x[-1] + layer.self_attn.o_proj(torch.softmax(scores, 0) @ values)
        y = y + layer.mlp(layer.post_attention_layernorm(y))
        return oracle.lm_head(model.norm(y)).numpy()


def test_long_context(tmp_path):
    """32,768 tokens with the scaling of the file: the last token reads keys at every position."""
    tokens = 32768
    shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
    oracle = make_decoder("llama", tmp_path, **shape, max_position_embeddings=tokens, rope_parameters=LLAMA3)
    (row,) = make_rows((tokens,))
    decoder = Decoder(CausalEngine(tmp_path, cache="int8"), 1, tokens)
    for part in np.split(row, 32):
        ours = decoder.append([0], [part])[0]
    expected, exact = last_logits(oracle, row, "int8"), last_logits(oracle, row, "none")
    assert np.linalg.norm(ours - expected) <= tol.CACHE_ROUNDING_SHARE * np.linalg.norm(exact - expected)


def test_refused(tmp_path):
    make_oracle("Bert", "Model").save_pretrained(tmp_path / "encoder")
    save_linear(tmp_path / "sums", "shen", "after_map", {"type": "rope"}, "RfEncoderForCausalLM", is_decoder=True)
    for folder, message in (("encoder", "without a causal language model"), ("sums", "linear attention")):
        assert_refused(tmp_path / folder, f"cache_precision must be auto .*{message}", options={"cache": "int8"})


MEMORY = """
import os
import sys
import numpy as np
from rf_generation import CausalEngine, Decoder

def memory():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

for cache in sys.argv[2:]:
    if not (child := os.fork()):
        break
    assert os.waitpid(child, 0)[1] == 0
else:
    sys.exit()
engine = CausalEngine(sys.argv[1], cache=cache)
rows = np.random.default_rng(0).integers(3, 70, (16, 256)).astype(np.int32)
decoder = Decoder(engine, 1, 2048)
decoder.append([0], [rows[0]])
before = memory()
for row in rows[1:8]:
    decoder.append([0], [row])
print((memory() - before) / (7 * 256))
"""


def test_memory(tmp_path):
    """Bytes of a token: keys and values of 12 layers and 4 heads of 128, each with a float in int8. Each cache has a
    process, a fork of one that has imported what all need."""
    sizes = dict(num_hidden_layers=12, num_key_value_heads=4, head_dim=128, max_position_embeddings=2048)
    make_decoder("llama", tmp_path, **sizes)
    row_sizes = {"auto": 512, "bfloat16": 256, "int8": 132}
    command = [sys.executable, "-c", MEMORY, tmp_path, *row_sizes]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True)
    for (cache, row_bytes), grown in zip(row_sizes.items(), map(float, done.stdout.split()), strict=True):
        expected = 2 * 12 * 4 * row_bytes
        assert expected <= grown + 1024 and grown <= tol.CACHE_MEMORY_SHARE * expected, (cache, grown, expected)
