"""Positions that are drawn in training: randomised (Ruoss et al. 2023), shifted (SHAPE, Kiyono et al. 2021) and
augmented (CAPE, Likhomanenko et al. 2021).

A draw is recognised by its hidden states: those of the same model in evaluation at positions that are given. Augmented
positions are no integers; they are found from the hidden states of a model that passes sinusoids on.
"""

from itertools import combinations

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_MODEL, perturbed

LENGTH, MOST = 3, 5
IDS = torch.tensor([[5, 9, 2], [7, 7, 1]])
RANDOMIZED = {"type": "randomized", "max_positions": MOST}
SHIFTED = {"type": "shifted", "max_shift": MOST}
CHOICES = {
    "randomized": [torch.tensor(chosen) for chosen in combinations(range(MOST), LENGTH)],
    "shifted": [torch.arange(LENGTH) + shift for shift in range(MOST + 1)],
}


def model_with(training_positions, encoding="learned", **changes):
    """Without dropout, so that only positions are drawn."""
    config = TINY_MODEL | {"position_encoding": encoding, "training_positions": training_positions}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return perturbed(roformer_cpp.build_model(config | still | changes)).double()


def hidden(model, ids=IDS, **inputs):
    with torch.no_grad():
        return model.encode(ids, **inputs)


@pytest.mark.parametrize("given", [RANDOMIZED, SHIFTED], ids=["randomized", "shifted"])
def test_every_choice_is_drawn_as_often(given):
    """n of L positions in order, or one shift, each as probable as another; a draw for each sequence."""
    model, choices, ids = model_with(given).eval(), CHOICES[given["type"]], IDS[:1].expand(512, -1)
    known = torch.cat([hidden(model, IDS[:1], positions=choice[None]) for choice in choices])
    counts, passes = np.zeros(len(choices)), 8
    for _ in range(passes):
        equal = (hidden(model.train(), ids)[:, None] - known).abs().amax((2, 3)) < tol.MODEL_F64
        assert (equal.sum(1) == 1).all()
        counts += equal.sum(0).numpy()
    draws, share = passes * len(ids), 1 / len(choices)
    assert np.abs(counts - draws * share).max() <= tol.SIGMAS * np.sqrt(draws * share * (1 - share))


def test_the_seed_decides():
    model, both = model_with(RANDOMIZED).train(), []
    for _ in range(2):
        torch.manual_seed(3)
        both.append(torch.stack([hidden(model) for _ in range(8)]))
    assert torch.equal(*both)
    assert len(torch.unique(both[0].flatten(1), dim=0)) > 1


def test_evaluation_reads_the_given_positions():
    plain = model_with(SHIFTED).eval()
    assert torch.equal(hidden(plain), hidden(plain, positions=torch.arange(LENGTH)[None].expand(2, -1)))


def test_a_shift_is_not_seen_by_a_relative_encoding():
    """And keeps the gaps of positions that are given."""
    model, positions = model_with(SHIFTED, encoding="rope"), torch.tensor([[0, 4, 9]]).expand(2, -1)
    drawn, expected = (hidden(each(), positions=positions) for each in (model.train, model.eval))
    torch.testing.assert_close(drawn, expected, atol=tol.MODEL_F64, rtol=0)


def test_packed_sequences_have_draws_of_their_own():
    """Each sequence of a packed row is what it is alone, at some draw."""
    model, found = model_with(RANDOMIZED).eval(), set()
    known = [hidden(model, positions=choice[None].expand(2, -1)) for choice in CHOICES["randomized"]]
    segments = torch.tensor([[0] * LENGTH + [1] * LENGTH], dtype=torch.int32)
    inputs = {"positions": torch.arange(LENGTH).repeat(2)[None], "segments": segments}
    for _ in range(8):
        parts = hidden(model.train(), IDS.view(1, -1), **inputs).view(2, LENGTH, -1)
        found.add(tuple(
            next(i for i, states in enumerate(known) if (states[row] - parts[row]).abs().max() < tol.MODEL_F64)
            for row in range(2)
        ))  # fmt: skip
    assert any(first != second for first, second in found)


def passing(**augmented):
    """A model whose hidden states are the normed sinusoids of its positions."""
    model = model_with({"type": "augmented"} | augmented, encoding="sinusoidal")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float(name.endswith("LayerNorm.weight")))
    return model.train()


def sinusoids(positions, width=TINY_MODEL["hidden_size"]):
    """Vaswani et al. 2017 section 3.5, normed."""
    angles = np.asarray(positions)[..., None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    rows = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(*angles.shape[:-1], width)
    rows = rows - rows.mean(-1, keepdims=True)
    return rows / rows.std(-1, keepdims=True)


def positions_of(hidden, lowest=-20, highest=40):
    grid = np.linspace(lowest, highest, 20 * (highest - lowest) + 1)
    near = sinusoids(grid)
    found = np.stack([grid[((near - row) ** 2).sum(-1).argmin()] for row in hidden.reshape(-1, near.shape[-1])])
    for _ in range(4):  # Gauss and Newton
        slope = (sinusoids(found + 1e-4) - sinusoids(found - 1e-4)) / 2e-4
        left = hidden.reshape(slope.shape) - sinusoids(found)
        found = found + (slope * left).sum(-1) / (slope**2).sum(-1)
    assert np.abs(sinusoids(found) - hidden.reshape(-1, near.shape[-1])).max() < 1e-6
    return found.reshape(hidden.shape[:-1])


def assert_uniform(draws, most):
    """Bounds, mean and mean square of -most .. most."""
    count = draws.size
    assert np.abs(draws).max() <= most and np.abs(draws).max() > 0.97 * most
    assert np.abs(draws.mean()) <= tol.SIGMAS * most / np.sqrt(3 * count)
    assert abs((draws**2).mean() - most**2 / 3) <= tol.SIGMAS * most**2 * np.sqrt(4 / 45 / count)


def test_augmented_positions():
    """a (p + g + e): g and a of the sequence, e of the token (their section 3)."""
    ids, places = torch.full((400, 6), 3), np.arange(6)
    model = passing(max_global_shift=5.0, max_global_scaling=1.5)
    found = positions_of(hidden(model, ids).numpy())
    factor = found[:, 1] - found[:, 0]
    shift = found[:, 0] / factor
    np.testing.assert_allclose(found, factor[:, None] * (places + shift[:, None]), atol=tol.READ_POSITIONS)
    assert_uniform(np.log(factor), np.log(1.5))
    assert_uniform(shift, 5.0)
    assert abs(np.corrcoef(factor, shift)[0, 1]) < 0.2
    found = positions_of(hidden(passing(max_local_shift=0.5), ids).numpy()) - places
    assert_uniform(found, 0.5)
    assert np.abs(np.corrcoef(found.T) - np.eye(6)).max() < 0.3


def test_augmented_sequences_of_a_row_and_evaluation():
    model = passing(max_global_shift=5.0)
    inputs = {"positions": torch.tensor([[0, 1, 2, 0, 1, 2]]), "segments": torch.tensor([[0, 0, 0, 1, 1, 1]]).int()}
    ids = torch.full((1, 6), 3)
    found = positions_of(hidden(model, ids, **inputs).numpy())[0]
    np.testing.assert_allclose(found[:3] - found[0], [0, 1, 2], atol=tol.READ_POSITIONS)
    np.testing.assert_allclose(found[3:] - found[3], [0, 1, 2], atol=tol.READ_POSITIONS)
    assert abs(found[0] - found[3]) > 1e-3
    torch.manual_seed(2)
    first = hidden(model, ids)
    torch.manual_seed(2)
    assert torch.equal(first, hidden(model, ids)) and not torch.equal(first, hidden(model, ids))
    found = positions_of(hidden(model.eval(), ids).numpy())[0]
    np.testing.assert_allclose(found, np.arange(6), atol=tol.READ_POSITIONS)


@pytest.mark.parametrize("encoding", ["rope", ["sinusoidal", "rope"]])
def test_augmented_positions_are_for_sinusoids(encoding):
    with pytest.raises(ValueError, match="type augmented must go with position_encoding sinusoidal alone"):
        model_with({"type": "augmented", "max_local_shift": 0.5}, encoding=encoding)


@pytest.mark.parametrize("given, words", [
    ({"type": "augmented"}, "must have a shift above 0 or a max_global_scaling above 1, got none"),
    ({"type": "augmented", "max_global_scaling": 0.5}, "training_positions.max_global_scaling must be"),
    ({"type": "augmented", "max_shift": 3}, "max_shift"),
    ({"type": "randomised", "max_positions": 4}, r"training_positions.type must be one of randomized, shifted"),
    ({"max_positions": 4}, "training_positions.type must be there, got none"),
    ({"type": "randomized"}, "training_positions.max_positions must be there, got none"),
    ({"type": "shifted", "max_shift": 0}, "training_positions.max_shift must be an integer from 1 .* got 0"),
    ({"type": "shifted", "max_shift": 4, "max_positions": 3}, "max_positions"),
    (7, "training_positions must be an object, got 7"),
])  # fmt: skip
def test_refuses(given, words):
    with pytest.raises(ValueError, match=words):
        model_with(given)


def test_refuses_long_sequences_and_positions_on_axes():
    message = r"\[training_positions\] a sequence must have at most the 2 positions of max_positions, got 3"
    with pytest.raises(ValueError, match=message):
        hidden(model_with({"type": "randomized", "max_positions": 2}).train())
    encoding = {"type": "mrope", "rope_parameters": {"mrope_section": [2, 1, 1]}}
    with pytest.raises(ValueError, match=r"\[training_positions\] positions must have one axis, got 3"):
        hidden(model_with(SHIFTED, encoding=encoding).train(), positions=torch.zeros(1, LENGTH, 3, dtype=torch.long))


def test_saved_with_the_model(tmp_path):
    """A key that transformers does not know: the model is an rf_encoder."""
    model_with(RANDOMIZED, encoding="rope").save(tmp_path)
    again = roformer_cpp.load_model(tmp_path)
    assert again.config["training_positions"] == RANDOMIZED and again.config["model_type"] == "rf_encoder"
    with pytest.raises(ValueError, match=r"no key that transformers would not honour .* got training_positions"):
        roformer_cpp.build_model(TINY_MODEL | {"model_type": "roformer", "training_positions": RANDOMIZED})
