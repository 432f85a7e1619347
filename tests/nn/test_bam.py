"""BAM's prior by distance (Bianchessi et al. 2025; R-REL-19) against loops in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import parameter
from initial_values import zero
from pair_loops import check_bias, perturb

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
    encoding = perturb(made(trainable_mu=trainable_mu, is_decoder=is_causal))
    bias = lambda h, m, n: -penalty(encoding, n - m)[h]  # noqa: E731
    check_bias(encoding, bias, positions, heads=3, layer=LAYER, is_causal=is_causal)


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
