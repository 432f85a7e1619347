"""The engine against transformers 5: every head of RoFormer and BERT, without padding, on random perturbed models."""

import numpy as np
import pytest
import torch

import tolerances as tol
from engine_case import assert_close, make_oracle, make_sequences, run_oracle
from rf_engine import Engine

HEADS = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
@pytest.mark.parametrize("head", HEADS)
def test_heads(family, head, tmp_path):
    oracle = make_oracle(family, head)
    oracle.save_pretrained(tmp_path)
    ids, types = make_sequences()
    outputs = list(run_oracle(oracle, ids, types))
    engine = Engine(tmp_path, token_budget=16)
    if head == "Model":
        assert_close(engine.hidden(ids, types=types), np.concatenate([o.last_hidden_state[0].numpy() for o in outputs]))
        if family == "Bert":
            theirs = np.concatenate([o.pooler_output.numpy() for o in outputs])
            assert_close(engine.pooled(ids, "pooler", types=types), theirs)
        return
    ours = engine.logits(ids, types=types)
    if head == "ForQuestionAnswering":
        theirs = np.concatenate([torch.stack([o.start_logits[0], o.end_logits[0]], -1).numpy() for o in outputs])
    else:
        theirs = np.concatenate([o.logits[0].numpy() if o.logits.ndim == 3 else o.logits.numpy() for o in outputs])
    assert_close(ours, theirs)
    if head == "ForMaskedLM":
        chosen = [0, 3, 14, 15, 42]
        assert np.array_equal(engine.vocabulary_logits(ids, chosen, types=types), ours[chosen])


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max", "mean-sqrt-len"])
def test_poolings(pooling, tmp_path):
    oracle = make_oracle("RoFormer", "Model")
    oracle.save_pretrained(tmp_path)
    ids, types = make_sequences()
    hidden = [o.last_hidden_state[0].double() for o in run_oracle(oracle, ids, types)]
    formula = {
        "mean": lambda x: x.mean(0),
        "cls": lambda x: x[0],
        "last": lambda x: x[-1],
        "max": lambda x: x.max(0).values,
        "mean-sqrt-len": lambda x: x.sum(0) / len(x) ** 0.5,
    }[pooling]
    assert_close(Engine(tmp_path).pooled(ids, pooling, types=types), torch.stack([formula(x) for x in hidden]).numpy())


def test_masked_tokens(tmp_path):
    """Padding with a mask, as others pass it, changes nothing for the tokens that are attended to."""
    oracle = make_oracle("Bert", "Model")
    oracle.save_pretrained(tmp_path)
    ids, types = make_sequences((9,))
    padded = [np.concatenate([ids[0], np.zeros(4, np.int32)])]
    padded_types = [np.concatenate([types[0], np.zeros(4, np.int32)])]
    attend = [np.array([1] * 9 + [0] * 4, np.uint8)]
    engine = Engine(tmp_path)
    alone = engine.hidden(ids, types=types)
    assert_close(engine.hidden(padded, types=padded_types, attend=attend)[:9], alone)
    assert_close(
        engine.pooled(padded, "mean", types=padded_types, attend=attend), engine.pooled(ids, "mean", types=types)
    )


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float64])
def test_stored_types(stored, tmp_path):
    oracle = make_oracle("Bert", "Model").to(stored)
    oracle.save_pretrained(tmp_path)
    ids, types = make_sequences()
    theirs = np.concatenate([o.last_hidden_state[0].numpy() for o in run_oracle(oracle.to(torch.float32), ids, types)])
    assert_close(Engine(tmp_path).hidden(ids, types=types), theirs)


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_low_precision(family, precision, tmp_path):
    """Weights as a model's initialisation draws them, twice: hidden states keep their directions."""
    oracle = make_oracle(family, "Model", hidden_size=96, intermediate_size=192, spread=0.04)
    oracle.save_pretrained(tmp_path)
    ids, types = make_sequences()
    theirs = np.concatenate([o.last_hidden_state[0].numpy() for o in run_oracle(oracle, ids, types)])
    ours = Engine(tmp_path, precision).hidden(ids, types=types)
    cosine = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(theirs, axis=-1)
    assert cosine.min() >= tol.LOW_PRECISION_COSINE
    assert not np.array_equal(ours, Engine(tmp_path).hidden(ids, types=types))
