"""The engine against transformers 5: RoFormer and BERT, without padding, on random perturbed models."""

import numpy as np
import pytest
import torch
from transformers.activations import ACT2FN

import tolerances as tol
from engine_case import WIDE, assert_close, assert_low_precision, make_oracle, make_sequences, run_oracle, set_threads
from rf_engine import Engine, EngineError
from rotary_decoders import make_decoder


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
def test_hidden_states_and_logits(family, tmp_path):
    """tests/oracles/test_saved_models.py has every head."""
    ids, types = make_sequences()
    for head in ("Model", "ForMaskedLM"):
        oracle = make_oracle(family, head)
        oracle.save_pretrained(tmp_path)
        engine, outputs = Engine(tmp_path, token_budget=16), list(run_oracle(oracle, ids, types))
        name = "last_hidden_state" if head == "Model" else "logits"
        ours = (engine.hidden if head == "Model" else engine.logits)(ids, types=types)
        assert_close(ours, np.concatenate([output[name][0].numpy() for output in outputs]))
        if "pooler_output" in outputs[0]:
            theirs = np.concatenate([output.pooler_output.numpy() for output in outputs])
            assert_close(engine.pooled(ids, "pooler", types=types), theirs)
    chosen = [0, 3, 14, 15, 42]
    assert np.array_equal(engine.vocabulary_logits(ids, chosen, types=types), ours[chosen])


def test_the_last_position_is_refused(tmp_path):
    """Its successor is no number of 64 bits."""
    make_decoder("llama", tmp_path)
    ids, _ = make_sequences((3,))
    with pytest.raises(EngineError, match=r"positions must be from 0 to 2\^63 - 2, got 9223372036854775807 at token 2"):
        Engine(tmp_path).hidden(ids, positions=[np.array([0, 1, 2**63 - 1])])


def test_every_name_of_an_activation_that_is_computed(tmp_path):
    """Of transformers' ACT2FN: the same logits, or refused because no formula of ours gives them."""
    ids, types = make_sequences((13,))
    x = torch.linspace(-20, 20, 1001)
    formulas = [ACT2FN[name](x) for name in ("gelu", "gelu_new", "relu", "relu2", "silu", "tanh")]
    for name in ACT2FN:
        if ACT2FN[name](x).shape != x.shape:  # those that gate
            continue
        oracle = make_oracle("RoFormer", "ForMaskedLM", hidden_act=name)
        oracle.save_pretrained(tmp_path)
        same = min((ACT2FN[name](x) - each).abs().max() for each in formulas) <= tol.T4_MAX
        if same:
            (output,) = run_oracle(oracle, ids, types)
            assert_close(Engine(tmp_path).logits(ids, types=types), output.logits[0].numpy())
        else:
            with pytest.raises(EngineError, match="hidden_act"):
                Engine(tmp_path)


def test_masked_tokens(tmp_path):
    """Padding with a mask, as others pass it, changes nothing for the tokens that are attended to."""
    make_oracle("Bert", "Model").save_pretrained(tmp_path)
    ids, types = make_sequences((9,))
    padded, padded_types = ([np.append(rows[0], np.zeros(4, np.int32))] for rows in (ids, types))
    given, engine = {"types": padded_types, "attend": [np.array([1] * 9 + [0] * 4)]}, Engine(tmp_path)
    assert_close(engine.hidden(padded, **given)[:9], engine.hidden(ids, types=types))
    assert_close(engine.pooled(padded, "mean", **given), engine.pooled(ids, "mean", types=types))


@pytest.mark.parametrize("family, precision", [("RoFormer", "bfloat16"), ("Bert", "int8")])
def test_low_precision(family, precision, tmp_path):
    """Weights as a model's initialisation draws them, twice: hidden states keep their directions."""
    oracle = make_oracle(family, "Model", hidden_size=96, intermediate_size=192, spread=0.04)
    oracle.save_pretrained(tmp_path)
    ids, types = make_sequences()
    theirs = np.concatenate([o.last_hidden_state[0].numpy() for o in run_oracle(oracle, ids, types)])
    ours = Engine(tmp_path, precision).hidden(ids, types=types)
    assert_low_precision(ours, theirs, Engine(tmp_path).hidden(ids, types=types))


BATCH_LENGTHS = [1, 2, 1, 17, 64, 65, 3, 130, 1, 31, 256, 5, 16, 15, 90, 1]


@pytest.mark.parametrize("family, precision", [("RoFormer", "float32"), ("RoFormer", "bfloat16"), ("Bert", "int8")])
def test_batches(family, precision, tmp_path):
    """The vector of a sequence has the same bits with any other sequences, in any order, on any number of threads."""
    make_oracle(family, "Model", **WIDE).save_pretrained(tmp_path)
    ids, types = make_sequences(BATCH_LENGTHS)
    alone_engine = Engine(tmp_path, precision)
    set_threads(1)
    alone = [alone_engine.hidden([i], types=[t]) for i, t in zip(ids, types, strict=True)]
    vectors = [alone_engine.pooled([i], types=[t]) for i, t in zip(ids, types, strict=True)]
    random = np.random.default_rng(5)
    for budget, threads in ((1, 1), (40, 2), (200, 3), (4096, 2), (4096, 1)):
        engine = Engine(tmp_path, precision, token_budget=budget)
        set_threads(threads)
        some = random.permutation(len(ids))[: random.integers(1, len(ids) + 1)]
        rows, kinds, whole, pooled = ([x[i] for i in some] for x in (ids, types, alone, vectors))
        assert np.array_equal(engine.hidden(rows, types=kinds), np.concatenate(whole))
        assert np.array_equal(engine.pooled(rows, types=kinds), np.concatenate(pooled))
