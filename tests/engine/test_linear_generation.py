"""Generation with linear attention: sums over keys in place of a cache. Logits are those of the whole sequence to
rounding, which nn's modules compute here, and their bits follow from the steps in which a sequence came alone."""

import json

import numpy as np
import pytest
import torch

from engine_case import VOCAB, WIDE, assert_close, make_sequences
from engine_modules import save_linear
from rf_engine import EngineError
from rf_generation import CausalEngine, Decoder, check_batches_and_threads, grow

MAPS = ["elu", "shen", "favor", "relu", "cosine"]
SITES = ["none", "before_map", "after_map"]
PROMPTS, _ = make_sequences((1, 13, 70, 2, 200, 7))


def save_causal(directory, feature_map, site="after_map", encoding="rope", **changes):
    return save_linear(directory, feature_map, site, encoding, "RfEncoderForCausalLM", is_decoder=True, **changes)


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.as_tensor(np.asarray(ids))[None].long())["logits"][0].numpy()


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("feature_map", MAPS)
def test_steps_of_any_size(feature_map, site, tmp_path):
    model = save_causal(tmp_path, feature_map, site, options={"eps": 0.01})
    rows, _ = make_sequences((1, 40, 7, 90))
    whole = [logits_of(model, row) for row in rows]
    for longest_step in (1, 60):
        decoder = Decoder(CausalEngine(tmp_path), len(rows), 90)
        steps = grow(decoder, rows, np.random.default_rng(longest_step), longest_step)
        places = [(i, length - 1) for i, length in steps]
        assert_close(np.stack(list(steps.values())), np.stack([whole[i][last] for i, last in places]))


@pytest.mark.parametrize("feature_map", ["shen", "cosine"])
def test_beams(feature_map, tmp_path):
    """Beams go on from the sums of their own tokens: probabilities are those of the whole sequence."""
    model = save_causal(tmp_path, feature_map)
    (results,) = CausalEngine(tmp_path).generate([PROMPTS[1]], "beams", beams=5, return_sequences=5, max_new_tokens=12)
    assert len({tuple(result.ids) for result in results}) == 5
    for result in results:
        tokens = np.append(PROMPTS[1], result.ids)
        rows = torch.tensor(logits_of(model, tokens)).double().log_softmax(-1).numpy()
        expected = sum(rows[len(PROMPTS[1]) - 1 + i, token] for i, token in enumerate(result.ids))
        assert result.log_probability == pytest.approx(expected, rel=1e-4, abs=1e-4)


CALLS = [("elu", "float32", "greedy"), ("elu", "bfloat16", "beams"), ("shen", "bfloat16", "sample")]
CALLS += [("favor", "float32", "beams"), ("relu", "bfloat16", "greedy"), ("cosine", "float32", "sample")]


@pytest.mark.parametrize("feature_map, precision, search", CALLS)
def test_the_batch_and_the_threads_change_nothing(feature_map, precision, search, tmp_path):
    save_causal(tmp_path, feature_map, **WIDE)
    check_batches_and_threads(CausalEngine(tmp_path, precision), PROMPTS, search)


@pytest.mark.parametrize("feature_map", ["elu", "favor"])
def test_copies(feature_map, tmp_path):
    """A copy goes on with the bits of what it was copied from, over whatever was there, and leaves that alone."""
    save_causal(tmp_path, feature_map)
    engine = CausalEngine(tmp_path)
    row, _ = make_sequences((40,))
    alone, decoder = Decoder(engine, 1, 80), Decoder(engine, 3, 80)
    _, seven, more = (alone.append([0], [added]) for added in (row[0], [7], [8, 9]))
    decoder.append([0, 2], [row[0], [3, 4, 5]])
    decoder.copy(0, 2)
    decoder.append([2], [[11]])
    decoder.copy(0, 2)
    decoder.copy(0, 1)
    assert np.array_equal(decoder.append([0, 2], [[7], [7]]), np.concatenate([seven, seven]))
    assert np.array_equal(decoder.append([2], [[8, 9]]), more)
    assert np.array_equal(decoder.append([1], [[7]]), seven)


def test_sequences_begin_anew(tmp_path):
    save_causal(tmp_path, "favor")
    decoder = Decoder(CausalEngine(tmp_path), 2, 40)
    first = decoder.append([1], [[3, 4, 5]])
    decoder.truncate(1, 3)
    with pytest.raises(EngineError, match="truncate must leave 0 or all 3 tokens with linear attention"):
        decoder.truncate(1, 2)
    decoder.append([1], [[6]])
    decoder.truncate(1, 0)
    assert np.array_equal(decoder.append([1], [[3, 4, 5]]), first)


def test_a_call_that_is_refused_changes_nothing(tmp_path):
    save_causal(tmp_path, "elu")
    engine = CausalEngine(tmp_path)
    decoder, expected = Decoder(engine, 1, 5), Decoder(engine, 1, 5)
    for each in (decoder, expected):
        each.append([0], [[3, 4]])
    for added in ([VOCAB], [1, 2, 3, 4], []):
        with pytest.raises(EngineError):
            decoder.append([0], [added])
    assert np.array_equal(decoder.append([0], [[5]]), expected.append([0], [[5]]))


DYNAMIC = {"type": "rope", "rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}


def test_rotations_that_change(tmp_path):
    """Keys are in the sums as they were rotated: a rotation that changes with length is refused from there on."""
    message = "the rotation of a token must not change as its sequence grows, got one that changes within {} tokens"
    save_causal(tmp_path, "elu", encoding={"type": "xpos"})
    with pytest.raises(EngineError, match=message.format(1)):
        Decoder(CausalEngine(tmp_path), 1, 1)
    model = save_causal(tmp_path, "elu", encoding=DYNAMIC)
    length = json.loads((tmp_path / "config.json").read_text())["max_position_embeddings"]
    engine = CausalEngine(tmp_path)
    with pytest.raises(EngineError, match=message.format(length + 1)):
        Decoder(engine, 1, length + 1)
    (row,), _ = make_sequences((length,))
    decoder = Decoder(engine, 1, length)
    decoder.append([0], [row[:-1]])
    assert_close(decoder.append([0], [row[-1:]]), logits_of(model, row)[-1:])
