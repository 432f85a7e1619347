"""Numbers by distance that are added to scores, outside the scale, against loops in float64: ALiBi (Press et al. 2022,
section 3), KERPLE (Chi et al. 2022, section 4), BAM (Bianchessi et al. 2025; R-REL-19), Sandwich (Chi et al. 2023)."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import check_uniform, of_log, zero
from tolerances import T2_RTOL

SWEEP_KEYS = {"bam": {"trainable_mu": True}}
REFUSED = {"sandwich": [
    ({"bar_d": 7}, "sandwich.bar_d must be even, a sine and a cosine for each frequency, got 7"),
    ({"bar_d": 0}, "sandwich.bar_d must be an integer from 2 .* got 0"),
]}  # fmt: skip


def of_logit(values, name):
    """2 sigmoid of it is a uniform draw up to 2, clamped to 0.01."""
    check_uniform(2 / (1 + np.exp(-values)), name, 0, 2)


# The authors' programs; of BAM a factor of 1 and an exponent of 0, which is the prior of no encoding.
STARTS = {
    "kerple-log": {"log_r1": of_log(2), "log_r2": of_log(1)},
    "kerple-power": {"log_r1": of_log(1), "logit_r2": of_logit},
    "bam": {"theta_alpha": zero, "theta_beta": zero},
}

LAYER = 1
# For 8 heads the paper prints 1/2, 1/4, .., 1/256; for 16 it interpolates geometrically: 1/2^0.5, 1/2, 1/2^1.5, ...
# Twelve heads take the eight, then every second of the sixteen.
SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    8: [2**-x for x in range(1, 9)],
    12: [2**-x for x in range(1, 9)] + [2**-x for x in (0.5, 1.5, 2.5, 3.5)],
    16: [2 ** -(x / 2) for x in range(1, 17)],
}


def alibi(case, encoding, m, n):
    return -abs(m - n) * np.array(SLOPES[case.heads])


def kerple_log(case, encoding, m, n):
    r1, r2 = (np.exp(parameter(encoding, f"log_{name}")) for name in ("r1", "r2"))
    return -r1 * np.log(1 + r2 * abs(m - n))


def kerple_power(case, encoding, m, n):
    r2 = 2 / (1 + np.exp(-parameter(encoding, "logit_r2")))
    return -np.exp(parameter(encoding, "log_r1")) * float(abs(m - n)) ** r2


def bam(case, encoding, m, n):
    """(|r - mu| / alpha)^beta for the place r of the key from the query, alpha from its definition."""
    theta = {name.split("_")[-1]: x.detach().numpy() for name, x in encoding.named_parameters() if f".{LAYER}." in name}
    mu, alpha = 2 * np.sinh(theta.get("mu", 0.0)), np.exp(-theta["alpha"] / theta["beta"])
    return -(((np.abs(n - m - mu) + 1e-5) / alpha) ** theta["beta"])


def sandwich(case, encoding, m, n, bar_d=128):
    """Sinusoids of two positions multiplied, over 8/H, 16/H, .. 8. The softmax does not see the constant."""
    waves = 10000.0 ** (-2 * np.arange(bar_d // 2) / bar_d)
    p, q = (np.concatenate([np.sin(at * waves), np.cos(at * waves)]) for at in (m, n))
    return p @ q / (np.arange(1, case.heads + 1) * 8 / case.heads)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", [range(5), [3, 0, 1, 400, 39]], ids=["steps", "scattered"])
@pytest.mark.parametrize(("name", "bias", "heads", "keys"), [
    *[("alibi", alibi, heads, {}) for heads in SLOPES],
    ("kerple-log", kerple_log, 3, {}),
    ("kerple-power", kerple_power, 3, {}),
    ("bam", bam, 3, {}),
    ("bam", bam, 3, {"trainable_mu": True}),
    ("sandwich", sandwich, 1, {}),
    ("sandwich", sandwich, 3, {"bar_d": 16}),
    ("sandwich", sandwich, 8, {}),
])  # fmt: skip
def test_pair_loops(name, bias, heads, keys, positions, causal):
    case, at = Case(tokens=5, heads=heads), list(positions)
    encoding = case.encoding(name, num_hidden_layers=2, is_decoder=causal, **keys)
    options = keys if name == "sandwich" else {}
    score = lambda b, h, m, n: case.product(b, h, m, n) + bias(case, encoding, at[m], at[n], **options)[h]  # noqa: E731
    case.check(encoding, score, at, layer=LAYER, causal=causal)


def test_a_token_has_no_bias_to_itself():
    bias = roformer_cpp.encoding("sandwich", num_attention_heads=2).terms(torch.arange(3)).bias
    assert (bias.lo, bias.hi) == (-2, 2)
    assert (bias.rows[:, 2] == 0).all() and (bias.rows[:, :2] < 0).all()


@pytest.mark.parametrize("name", ["kerple-log", "kerple-power"])
def test_starts_where_the_authors_clamp(name):
    """Of so many draws up to 1 or 2 some are below 0.01."""
    torch.manual_seed(0)
    for key, values in roformer_cpp.encoding(name, num_attention_heads=4000).named_parameters():
        numbers = 2 * values.double().sigmoid() if key == "logit_r2" else values.double().exp()
        assert numbers.min().item() == pytest.approx(0.01, rel=T2_RTOL)


@pytest.mark.parametrize("theta", [-30.0, 30.0])
def test_numbers_stay_finite(theta):
    """A token alone has the whole weight, whatever its number is."""
    encoding = roformer_cpp.encoding("bam", num_attention_heads=1, head_dim=4)
    with torch.no_grad():
        encoding.get_parameter("layer.0.theta_beta").fill_(theta)
    x, at = torch.ones(1, 1, 1, 4), torch.tensor([0])
    assert torch.equal(roformer_cpp.attention(x, x, x, encoding.terms(at), positions=at), x)
    assert encoding.terms(torch.arange(100)).bias.rows.isfinite().all()
