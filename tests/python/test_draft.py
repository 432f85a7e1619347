"""Speculative decoding: a small model proposes tokens, and results are those without it."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import roformer_cpp as rf
import tolerances as tol
from chat_model import save_chat_model
from rotary_decoders import make_tokenizer, oracle_logits

PROMPTS = ["a b", "The people of the land", "one", "x y z " * 9]


def perturb(source, folder, spread):
    """A draft that agrees with a model for some tokens."""
    save_chat_model(folder)
    tensors = load_file(source / "model.safetensors")
    torch.manual_seed(1)
    changed = {name: x + spread * x.std() * torch.randn(x.shape) for name, x in tensors.items()}
    save_file(changed, folder / "model.safetensors", {"format": "pt"})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_chat_model(folder / "model")
    perturb(folder / "model", folder / "draft", 0.05)
    # With fewer rows and positions than the model and its texts have.
    save_chat_model(folder / "small", num_hidden_layers=1, max_position_embeddings=40)
    return folder


@pytest.mark.parametrize("draft", ["model", "draft", "small"])
def test_greedy(draft, models):
    """All numbers are equal, for any number of proposals, in any batch, and with every option that changes scores."""
    schema = {"type": "array", "items": {"type": "integer"}, "maxItems": 3}
    plain = rf.Engine(models / "model")
    engine = rf.Engine(models / "model", draft=models / draft)
    for options in (
        {},
        {"draft_tokens": 1, "batch": 1},
        {"draft_tokens": 9, "batch": 3, "repetition_penalty": 1.4, "min_new_tokens": 5},
        {"max_new_tokens": 1},
        {"stop": ["e"]},
        {"json_schema": schema},
    ):
        options = {"max_new_tokens": 40} | options
        expected = plain.generate(PROMPTS, **{k: v for k, v in options.items() if k != "draft_tokens"})
        assert list(engine.generate(PROMPTS, **options)) == list(expected)
    assert "".join(engine.generate("one", stream=True)) == plain.generate("one")[0]["text"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_precisions(precision, models):
    """Verification has the bits of single steps with rounded caches and weights too."""
    for cache in ("auto", "int8"):
        options = {"precision": precision, "cache_precision": cache}
        plain = rf.Engine(models / "model", **options)
        engine = rf.Engine(models / "model", draft=models / "draft", **options)
        assert list(engine.generate(PROMPTS, max_new_tokens=40)) == list(plain.generate(PROMPTS, max_new_tokens=40))


def test_distribution(models, tmp_path):
    """Texts of three tokens, the second and third from proposals, occur as often as the model's logits say."""
    seeds, top = 4000, 3
    oracle, tokenizer = save_chat_model(tmp_path)
    engine = rf.Engine(models / "model", draft=models / "draft")
    prompt = tokenizer("one", add_special_tokens=False)["input_ids"]
    counts = {}
    options = dict(max_new_tokens=3, temperature=4.0, top_k=top, stop=[], draft_tokens=2)
    for seed in range(seeds):
        (result,) = engine.generate("one", seed=seed, **options)
        counts[tuple(result["ids"])] = counts.get(tuple(result["ids"]), 0) + 1
    expected = {}

    def extend(ids, probability):
        if len(ids) == 3:
            expected[tuple(ids)] = seeds * probability
            return
        logits = oracle_logits(oracle, np.array(prompt + ids))[-1].astype(np.float64) / 4
        best = np.argsort(logits)[-top:]
        shares = np.exp(logits[best] - logits[best].max())
        for token, share in zip(best.tolist(), shares / shares.sum(), strict=True):
            extend([*ids, token], probability * share)

    extend([], 1.0)
    assert set(counts) <= set(expected)
    chi_square = sum((counts.get(ids, 0) - n) ** 2 / n for ids, n in expected.items())
    degrees = top**3 - 1
    assert abs(chi_square - degrees) <= tol.SIGMAS * np.sqrt(2 * degrees)


def test_refused(models, tmp_path):
    engine = rf.Engine(models / "model", draft=models / "draft")
    for options in ({"beams": 2}, {"sample": True, "num_return_sequences": 2}):
        with pytest.raises(ValueError, match="a draft must be without beams and with one result for a prompt, got 2"):
            engine.generate("one", **options)
    with pytest.raises(ValueError, match="draft_tokens must be at least 1, got 0"):
        engine.generate("one", draft_tokens=0)
    save_chat_model(tmp_path / "fewer")
    make_tokenizer(size=320).save(str(tmp_path / "fewer" / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"a draft must have the 330 tokens of the model, got 320: .* is in one alone"):
        rf.Engine(models / "model", draft=tmp_path / "fewer")
    save_chat_model(tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    file.write_text(file.read_text().replace('"<|endoftext|>"', '"<|other|>"'))
    with pytest.raises(ValueError, match=r"a draft must have the tokens of the model, got .* in place of .* for id"):
        rf.Engine(models / "model", draft=tmp_path / "other")
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    save_chat_model(tmp_path / "dynamic", rope_parameters=dynamic, max_position_embeddings=16)
    engine = rf.Engine(tmp_path / "dynamic", draft=models / "draft")
    with pytest.raises(ValueError, match="a draft must be with a model whose keys and values stay"):
        engine.generate("one", max_new_tokens=40)
    with pytest.raises(ValueError, match="draft must be absent for the task embed"):
        rf.Engine(models / "model", task="embed", draft=models / "draft")
