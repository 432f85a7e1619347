"""BAM's prior by distance (Bianchessi et al. 2025; R-REL-19) against loops in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, check_gradients, parameter
from initial_values import zero
from pair_loops import assert_t1, draw_qkv, pair_loops, perturb
from tolerances import T1_ATOL, T1_RTOL

SWEEP_KEYS = {"bam": {"trainable_mu": True}}
# The authors' program: a factor of 1 and an exponent of 0, which is the prior of no encoding.
STARTS = {"bam": {"theta_alpha": zero, "theta_beta": zero}}

LAYER = 1
SCATTERED = torch.tensor([3, 0, 1, 40, 39])


def made(heads=3, **keys):
    shape = {"num_attention_heads": heads, "head_dim": 4, "num_hidden_layers": 2}
    return roformer_cpp.encoding("bam", **shape, **keys)


def penalty(encoding, key_less_query):
    """Of every head: (|r - mu| / alpha)^beta for the place of the key from the query, alpha from its definition."""
    alpha, beta = (parameter(encoding, f"layer.{LAYER}.theta_{name}") for name in ("alpha", "beta"))
    mu = 0.0
    if f"layer.{LAYER}.theta_mu" in dict(encoding.named_parameters()):
        mu = 2 * np.sinh(parameter(encoding, f"layer.{LAYER}.theta_mu"))
    return ((np.abs(key_less_query - mu) + 1e-5) / np.exp(-alpha / beta)) ** beta


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("positions", [torch.arange(5), SCATTERED], ids=["steps", "scattered"])
@pytest.mark.parametrize("trainable_mu", [False, True])
def test_pair_loops(trainable_mu, positions, is_causal):
    """softmax(q_i k_j / sqrt(D) - penalty): outside the scale, of another form for each head and layer."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(5, 3, 4)
    encoding = perturb(made(trainable_mu=trainable_mu, is_decoder=is_causal))
    at = positions.tolist()
    expected = pair_loops(
        q,
        k,
        v,
        lambda h, i, j, q_i, k_j: q_i @ k_j / np.sqrt(4) - penalty(encoding, at[j] - at[i])[h],
        is_causal=is_causal,
    )
    terms = encoding.terms(positions, layer=LAYER, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, positions=positions, is_causal=is_causal), expected)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("trainable_mu", [False, True])
def test_gradients(trainable_mu, is_causal):
    case = Case(batch=1, tokens=4)
    encoding = case.encoding("bam", num_hidden_layers=2, trainable_mu=trainable_mu)
    check_gradients(case, encoding, torch.tensor([0, 0, 1, 5]), layer=LAYER, causal=is_causal)


def rows(encoding, tokens=6):
    return encoding.terms(torch.arange(tokens), layer=LAYER, dtype=torch.float64).bias.rows


def test_beta_of_1_is_alibi():
    alibi = roformer_cpp.encoding("alibi", num_attention_heads=4, num_hidden_layers=2).double()
    slopes = -rows(alibi)[:, -1] / 5
    encoding = made(4).double()
    with torch.no_grad():
        encoding.get_parameter(f"layer.{LAYER}.theta_alpha").copy_(slopes.log())
        encoding.get_parameter(f"layer.{LAYER}.theta_beta").fill_(1)
    np.testing.assert_allclose(
        rows(encoding).detach(), rows(alibi) - 1e-5 * slopes[:, None], rtol=T1_RTOL, atol=T1_ATOL
    )


def test_starts_as_no_encoding():
    """Every distance has the same number, and mu is 0."""
    for keys in ({}, {"trainable_mu": True}):
        assert torch.equal(rows(made(**keys).double()), -torch.ones(3, 11, dtype=torch.float64))


def test_a_positive_mu_prefers_later_keys():
    encoding = made(trainable_mu=True).double()
    with torch.no_grad():
        encoding.get_parameter(f"layer.{LAYER}.theta_beta").fill_(2)
        encoding.get_parameter(f"layer.{LAYER}.theta_mu").fill_(np.arcsinh(1.0))  # mu = 2
    assert (rows(encoding).argmax(-1) - 5 == -2).all()  # query minus key


@pytest.mark.parametrize("theta", [-30.0, 30.0])
def test_numbers_stay_finite(theta):
    """A token alone has the whole weight, whatever its number is."""
    encoding = made(1)
    with torch.no_grad():
        encoding.get_parameter(f"layer.{LAYER}.theta_beta").fill_(theta)
    x = torch.ones(1, 1, 1, 4)
    at = torch.tensor([0])
    out = roformer_cpp.attention(x, x, x, encoding.terms(at, layer=LAYER), positions=at)
    assert torch.equal(out, x)
    assert encoding.terms(torch.arange(100), layer=LAYER).bias.rows.isfinite().all()


def test_too_many_distances():
    with pytest.raises(ValueError, match="distances must span at most 16777216 rows, got"):
        made().terms(torch.tensor([0, 1 << 24]))
