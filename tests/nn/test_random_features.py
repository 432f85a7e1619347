"""Random features of linear attention (spec R-LIN-04): the draws and redraws. What they estimate is the equation of
tests/nn/test_linear_attention.py; models that are saved go on with their draws in tests/nn/test_model.py."""

import math

import numpy as np
import pytest
import torch

import tolerances
from initial_values import check_normal
from roformer_cpp import LinearAttention, linear_attention, linear_feature_dim, orthogonal_features
from rotation_case import normal

# ---- draws ----


@pytest.mark.parametrize("scaling", [0, 1])
def test_rows_are_orthogonal_in_blocks(scaling):
    size, count = 16, 40
    rows = orthogonal_features(count, size, seed=2, scaling=scaling)
    assert rows.shape == (count, size) and rows.dtype == torch.float64
    lengths = rows.norm(dim=1)
    for first in range(0, count, size):
        unit = (rows / lengths[:, None])[first : first + size]
        gram = unit @ unit.T - torch.eye(len(unit), dtype=torch.float64)
        assert gram.abs().max() < tolerances.ORTHOGONAL
    if scaling == 1:
        np.testing.assert_allclose(lengths.numpy(), math.sqrt(size), rtol=tolerances.LINEAR_F64)
    else:
        assert lengths.std() > 0


def test_lengths_are_those_of_gaussian_vectors():
    """The mean of |w|^2 is D, its variance 2 D / m."""
    size, count = 16, 1600
    squares = orthogonal_features(count, size, seed=4).square().sum(1)
    assert abs(squares.mean() - size) <= tolerances.SIGMAS * math.sqrt(2 * size / count)


def test_independent_vectors_are_normal():
    check_normal(orthogonal_features(5000, 16, seed=1, orthogonal=False).numpy(), "independent", deviation=1.0)


@pytest.mark.parametrize("size", [1, 5])
def test_blocks_are_uniform(size):
    """Half of all orthogonal matrices are reflections; a QR factor as it comes is always of one kind."""
    signs = [torch.linalg.det(orthogonal_features(size, size, seed=seed)).sign().item() for seed in range(100)]
    assert abs(np.mean(signs)) <= tolerances.SIGMAS / math.sqrt(100)


def test_draws_are_functions_of_their_numbers():
    first = orthogonal_features(6, 4, seed=1, layer=2, redraw=3)
    assert torch.equal(first, orthogonal_features(6, 4, seed=1, layer=2, redraw=3))
    torch.manual_seed(5)
    assert torch.equal(first, orthogonal_features(6, 4, seed=1, layer=2, redraw=3))
    for other in ({"seed": 2}, {"layer": 3}, {"redraw": 4}, {"seed": 2, "layer": 1}, {"orthogonal": False}):
        assert not torch.equal(first, orthogonal_features(6, 4, **{"seed": 1, "layer": 2, "redraw": 3, **other}))


@pytest.mark.parametrize(("head_dim", "count"), [(64, 266), (1, 2), (2, 2), (8, 16), (9, 20)])
def test_default_number_of_features(head_dim, count):
    """R-LIN-04: int(D ln D) rounded up to even (R-CFG-4: 266 for 64)."""
    assert LinearAttention(head_dim, feature_map="favor").projection.shape == (count, head_dim)


def test_size_that_rotations_turn():
    assert linear_feature_dim(64) == 64
    assert linear_feature_dim(64, feature_map="favor") == 266
    assert linear_feature_dim(64, feature_map="relu", num_features=32) == 32
    assert linear_feature_dim(64, feature_map="favor", rope_site="before_map") == 64
    assert linear_feature_dim(64, feature_map="cosine", rope_site="after_map") == 64


# ---- redraws ----

X = normal(1, 3, 1, 4).float()


@pytest.mark.parametrize(("name", "every"), [("favor", 3), ("relu", 3), ("favor", 0)])
def test_redraw_schedule(name, every):
    """Calls in training count; the vectors of call i are those of redraw i // redraw_every, or of the first draw."""
    module = LinearAttention(4, 7, feature_map=name, num_features=6, redraw_every=every, seed=5).train()
    for call in range(8):
        module(X, X, X)
        expected = orthogonal_features(6, 4, seed=5, layer=7, redraw=call // every if every else 0).float()
        assert torch.equal(module.projection, expected)
        module.eval()
        module(X, X, X)
        module.train()
    assert module.calls.item() == 8 and module.redraws.item() == (2 if every else 0)


@pytest.mark.parametrize("stop", [1, 2])
def test_resume_continues_identically(stop):
    options = {"feature_map": "favor", "num_features": 6, "redraw_every": 2, "seed": 9}
    module = LinearAttention(4, 1, **options).train()
    for _ in range(stop):
        module(X, X, X)
    saved = {name: value.clone() for name, value in module.state_dict().items()}
    assert set(saved) == {"projection", "redraws", "calls"}
    straight = [module(X, X, X) for _ in range(5)]
    resumed = LinearAttention(4, 1, **options).train()
    resumed.load_state_dict(saved)
    assert all(torch.equal(out, resumed(X, X, X)) for out in straight)


def test_backward_after_a_redraw():
    """Gradients of a call are those of its own vectors, drawn over or not."""
    options = {"feature_map": "favor", "num_features": 6, "redraw_every": 1}
    module, x = LinearAttention(4, **options).train(), X.clone().requires_grad_()
    late = [module(x, x, X).square().sum() for _ in range(3)]
    for redraw, gradient in enumerate([torch.autograd.grad(loss, x)[0] for loss in late]):
        y = X.clone().requires_grad_()
        projection = orthogonal_features(6, 4, seed=0, redraw=redraw).float()
        linear_attention(y, y, X, "favor", projection=projection).square().sum().backward()
        assert torch.equal(gradient, y.grad)
