"""KERPLE's penalties (Chi et al. 2022, section 4) against loops in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, check_gradients, parameter
from initial_values import check_uniform, of_log
from pair_loops import assert_t1, draw_qkv, pair_loops, perturb


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


names = pytest.mark.parametrize("name", ["kerple-log", "kerple-power"])


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("positions", [torch.arange(5), SCATTERED], ids=["steps", "scattered"])
@names
def test_pair_loops(name, positions, is_causal):
    """softmax(q_i k_j / sqrt(D) - penalty): outside the scale, of another size for each head."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(5, 3, 4)
    encoding = perturb(roformer_cpp.encoding(name, num_attention_heads=3, head_dim=4, is_decoder=is_causal))
    at = positions.tolist()
    expected = pair_loops(
        q,
        k,
        v,
        lambda h, i, j, q_i, k_j: q_i @ k_j / np.sqrt(4) - penalty(encoding, at[i] - at[j])[h],
        is_causal=is_causal,
    )
    terms = encoding.terms(positions, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, positions=positions, is_causal=is_causal), expected)


@names
def test_gradients_of_both_numbers(name):
    """At distance 0 too, where a power has no derivative of its own."""
    case = Case(batch=1, tokens=4)
    check_gradients(case, case.encoding(name), torch.tensor([0, 0, 1, 5]))


@names
def test_starts_in_the_authors_ranges(name):
    """r1 and r2 are uniform up to 2 or 1, and at least 0.01, where the authors clamp."""
    torch.manual_seed(0)
    encoding = roformer_cpp.encoding(name, num_attention_heads=4000)
    first = np.exp(parameter(encoding, "log_r1").astype(float))
    if name == "kerple-log":
        second, ends = np.exp(parameter(encoding, "log_r2").astype(float)), (2, 1)
    else:
        second, ends = 2 / (1 + np.exp(-parameter(encoding, "logit_r2").astype(float))), (1, 2)
    for numbers, end in zip((first, second), ends, strict=True):
        assert numbers.shape == (4000,)
        assert pytest.approx(numbers.min(), rel=1e-5) == 0.01 and 0.99 * end < numbers.max() < end * (1 + 1e-6)
        assert numbers.mean() == pytest.approx(end / 2, abs=5 * end / np.sqrt(12 * 4000))


@names
def test_too_many_distances(name):
    with pytest.raises(ValueError, match="distances must span at most 16777216 rows, got"):
        roformer_cpp.encoding(name).terms(torch.tensor([0, 1 << 24]))
