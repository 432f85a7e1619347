"""Where the parameters of every encoding start: the mean, the deviation and the range of what its paper or its authors'
program draws. A comparison of encodings after few steps depends on it."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import parameter
from tolerances import SIGMAS, T2_RTOL

RANGE = 0.05  # initializer_range; not the default
SIZES = {"num_attention_heads": 128, "head_dim": 8, "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 300,
         "max_position_embeddings": 64, "initializer_range": RANGE}  # fmt: skip


def check_normal(values, name, mean=0.0, deviation=RANGE):
    spread = deviation / math.sqrt(values.size)
    assert abs(values.mean() - mean) < SIGMAS * spread, name
    assert abs((values - mean).std() / deviation - 1) < SIGMAS / math.sqrt(2 * values.size), name
    # A normal distribution has 31.7 % of its values beyond one deviation; a uniform one of this deviation 42.3 %.
    beyond = (np.abs(values - mean) > deviation).mean()
    assert abs(beyond - math.erfc(1 / math.sqrt(2))) < SIGMAS * 0.466 / math.sqrt(values.size), name


def check_uniform(values, name, low, high):
    width = high - low
    slack = T2_RTOL * width
    assert low - slack <= values.min() and values.max() <= high + slack, name
    assert abs(values.mean() - (low + high) / 2) < SIGMAS * width / math.sqrt(12 * values.size), name
    # The variance of (x - mean)^2 is width^4 / 180.
    assert abs(values.var() / (width**2 / 12) - 1) < SIGMAS * 12 / math.sqrt(180 * values.size), name


def check_equal(values, name, expected):
    np.testing.assert_allclose(
        values, np.broadcast_to(expected, values.shape), rtol=T2_RTOL, atol=T2_RTOL, err_msg=name
    )


normal, zero, one = check_normal, partial(check_equal, expected=0), partial(check_equal, expected=1)


def of_linear(fan_in):
    """torch.nn.Linear."""
    return partial(check_uniform, low=-(fan_in**-0.5), high=fan_in**-0.5)


def of_log(high):
    """The logarithm of a uniform draw up to `high` that the authors clamp to 0.01."""
    return lambda values, name: check_uniform(np.exp(values), name, 0, high)


def of_logit(values, name):
    """2 sigmoid of it is a uniform draw up to 2, clamped to 0.01."""
    check_uniform(2 / (1 + np.exp(-values)), name, 0, 2)


def around(places, deviation):
    """Ones at (k, d) = places of [H, K, d], and a normal draw added everywhere."""

    def check(values, name):
        values = values.copy()
        for k, d in places:
            values[:, k, d] -= 1
        check_normal(values, name, deviation=deviation)

    return check


def mixed(values, name):
    """[2, H, D/2]: each head has a direction of uniform angle, and the second half of its pairs is at a right angle."""
    x, y = values
    pairs = x + 1j * y
    np.testing.assert_allclose(np.abs(pairs), np.tile([1, 10.0**-0.5], (len(x), 2)), rtol=T2_RTOL, err_msg=name)
    np.testing.assert_allclose(pairs[:, 2:], 1j * pairs[:, :2], atol=T2_RTOL, err_msg=name)
    check_uniform(np.angle(pairs[:, 0]) % (2 * math.pi), name, 0, 2 * math.pi)


TUPE = {"pos": normal, "pos_ln_weight": one, "pos_ln_bias": zero, "pos_q_weight": normal, "pos_q_bias": zero,
        "pos_k_weight": normal, "pos_k_bias": zero}  # fmt: skip
XL = {"r_w_bias": normal, "r_r_bias": normal, "r_weight": normal}
KERPLE_LOG = {"log_r1": of_log(2), "log_r2": of_log(1)}
NO_PARAMETERS = ("none", "sinusoidal", "nezha", "alibi", "sandwich", "rope", "axial", "axial-nd", "rerope", "mrope",
                 "xpos", "log-n")  # fmt: skip
HEADS, WIDTH = SIZES["num_attention_heads"], SIZES["hidden_size"]

# Of each parameter, by its name without "layer.<i>.". `normal` without more is BERT's N(0, initializer_range^2)
# (Devlin et al. 2018 section A.2), where the paper of an encoding trains a table or a matrix and names no other.
STARTS = {
    **{name: {} for name in NO_PARAMETERS},
    "learned": {"weight": normal},
    # Wang et al. 2020, program of the authors: frequencies of dimensions are those of sinusoids.
    "complex": {"word_freqs": partial(check_equal, expected=10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2)))},
    # Liu et al. 2020, program of the authors: Xavier's normal draw, and biases 0.
    "floater": {
        "start": normal,
        **{f"h.{i}.weight": partial(normal, deviation=math.sqrt(2 / (2 * WIDTH + 1))) for i in (0, 1)},
        **{f"h.{i}.bias": zero for i in (0, 1)},
    },
    "shaw": {"key": normal, "value": normal},
    "shaw-literal": {"key": normal, "value": normal},
    "music": {"key": normal},
    # Gates of 1 leave scores as they are.
    **{f"huang-m{i}": {"gate": partial(normal, mean=1)} for i in (1, 2, 3)},
    "huang-m4": {"key_query": normal},
    # Chi et al. 2022, program of the authors.
    "kerple-log": KERPLE_LOG,
    "kerple-power": {"log_r1": of_log(1), "logit_r2": of_logit},
    # Li et al. 2024, appendix A: c 0.1, and torch's linear layers of 1 and of 32 inputs.
    "fire": {"c": partial(check_equal, expected=0.1), "L_multiplier": one, "mlp_0_weight": of_linear(1),
             "mlp_0_bias": of_linear(1), "mlp_2_weight": of_linear(32)},
    "fox": {"fgate_proj_weight": normal, "fgate_proj_bias": zero},
    "transformer-xl": XL,
    "transformer-xl-literal": XL,
    "dai-literal": {"r_weight": normal},
    "t5": {"relative_attention_bias": normal},
    "tupe-a": TUPE,
    "tupe-r": {**TUPE, "relative_attention_bias": normal},
    "deberta": {"rel_embeddings": normal, "pos_key_proj_weight": normal, "pos_key_proj_bias": zero,
                "pos_query_proj_weight": normal, "pos_query_proj_bias": zero},
    "deberta-literal": {"rel_embeddings": normal},
    # Heo et al. 2024, program of the authors, with base 10.
    "rope-mixed": {"freqs": mixed},
    # Hua et al. 2024, program of the authors: 1 at the pair's own frequency, and 0.3 of Glorot's draw for [H, K, d].
    "fope": {name: around([(0, 0), (1, 1), (2, 2), (3, 3)], 0.3 * math.sqrt(2 / (HEADS * 4 + 4 * 4)))
             for name in ("cos_coef", "sin_coef")},
    # Golovneva et al. 2024, listing 1.
    "cope": {"pos_emb": zero},
    # Zheng et al. 2024, program of the authors: torch's linear layers of scores and biases of the heads.
    "dape": {**{f"bias.{name}": check for name, check in KERPLE_LOG.items()},
             "mlp2_0_weight": of_linear(2 * HEADS), "mlp2_0_bias": of_linear(2 * HEADS),
             "mlp2_2_weight": of_linear(32), "mlp2_2_bias": of_linear(32)},
    "path": {"w_proj_0_weight": normal, "w_proj_1_weight": normal, "w_conv1d_weight": normal,
             "bt_proj_weight": normal, "bt_proj_bias": zero},
}  # fmt: skip

KEYS = {
    "axial": {"grid_width": 5},
    "axial-nd": {"grid_shape": [-1, 5]},
    "mrope": {"rope_parameters": {"mrope_section": [2, 1, 1]}},
    "rope-mixed": {"grid_width": 5},
    "fope": {"num_inv_freq": 4, "output_dim": 4},
}
INFOS = {info["name"]: info for info in roformer_cpp.encodings()}


def test_every_encoding_is_here():
    assert STARTS.keys() == INFOS.keys()


@pytest.mark.parametrize("name", INFOS)
def test_starts_as_its_paper_does(name):
    torch.manual_seed(3)
    keys = {**SIZES, **KEYS.get(name, {}), "is_decoder": INFOS[name]["needs_causal"]}
    encoding = roformer_cpp.encoding(name, **keys)
    found = set()
    for full_name, values in encoding.named_parameters():
        layer, own_name = full_name.split(".", 2)[:2], full_name
        if layer[0] == "layer":
            own_name = full_name.split(".", 2)[2]
        STARTS[name][own_name](parameter(encoding, full_name).astype(float), f"{name}: {full_name}")
        found.add(own_name)
        assert values.dtype == torch.float32
    assert found == STARTS[name].keys()


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize(("position_encoding", "scales"), [
    ("rope", True), ({"type": "t5", "scale": "sqrt"}, True), ("t5", False), (["t5", "learned"], False)])  # fmt: skip
def test_projections_start_at_the_range_where_scores_are_scaled(position_encoding, scales, is_decoder):
    """tests/oracles/test_t5.py has those of T5 beside transformers' own."""
    heads, width = 4, 64
    config = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 64, "num_hidden_layers": 2,
              "vocab_size": 50, "initializer_range": RANGE, "is_decoder": is_decoder}  # fmt: skip

    def weights(encoding):
        torch.manual_seed(3)
        model = roformer_cpp.build_model({**config, "position_encoding": encoding})
        return dict(model.named_parameters())

    plain, model = weights("rope"), weights(position_encoding)
    for name, values in plain.items():
        factor = 1.0
        if not scales and name.endswith("attention.self.query.weight"):
            factor = 1 / (RANGE * math.sqrt(width * width / heads))
        if not scales and name.endswith("attention.self.key.weight"):
            factor = 1 / (RANGE * math.sqrt(width))
        torch.testing.assert_close(model[name], values * factor, rtol=T2_RTOL, atol=0)
    check_normal(plain["encoder.layer.1.attention.self.query.weight"].detach().double().numpy(), "query")
