"""KERPLE's penalties (Chi et al. 2022, section 4) against loops in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import parameter
from initial_values import check_uniform, of_log
from pair_loops import check_bias, perturb
from tolerances import T2_RTOL


def of_logit(values, name):
    """2 sigmoid of it is a uniform draw up to 2, clamped to 0.01."""
    check_uniform(2 / (1 + np.exp(-values)), name, 0, 2)


# The authors' program.
STARTS = {
    "kerple-log": {"log_r1": of_log(2), "log_r2": of_log(1)},
    "kerple-power": {"log_r1": of_log(1), "logit_r2": of_logit},
}

SCATTERED = torch.tensor([3, 0, 1, 40, 39])


def penalty(encoding, distance):
    """Of every head, from the parameters as numbers."""
    r1 = np.exp(parameter(encoding, "log_r1"))
    if encoding.name == "kerple-log":
        return r1 * np.log(1 + np.exp(parameter(encoding, "log_r2")) * abs(distance))
    r2 = 2 / (1 + np.exp(-parameter(encoding, "logit_r2")))
    return r1 * float(abs(distance)) ** r2


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("positions", [torch.arange(5), SCATTERED], ids=["steps", "scattered"])
@pytest.mark.parametrize("name", ["kerple-log", "kerple-power"])
def test_pair_loops(name, positions, is_causal):
    encoding = perturb(roformer_cpp.encoding(name, num_attention_heads=3, head_dim=4, is_decoder=is_causal))
    bias = lambda h, m, n: -penalty(encoding, m - n)[h]  # noqa: E731
    check_bias(encoding, bias, positions, heads=3, is_causal=is_causal)


@pytest.mark.parametrize("name", ["kerple-log", "kerple-power"])
def test_starts_where_the_authors_clamp(name):
    """Of so many draws up to 1 or 2 some are below 0.01."""
    torch.manual_seed(0)
    for key, values in roformer_cpp.encoding(name, num_attention_heads=4000).named_parameters():
        numbers = 2 * values.double().sigmoid() if key == "logit_r2" else values.double().exp()
        assert numbers.min().item() == pytest.approx(0.01, rel=T2_RTOL)
