"""Rotary frequencies under every scaling, in mpmath, from their definitions.

default: arXiv 2104.09864 Eq. 15; linear: 2306.15595; ntk and dynamic: the posts of bloc97 and emozilla (2023),
restated in 2309.00071 section 3; yarn: 2309.00071 section 3.2 and 3.4; longrope: 2402.13753 Eq. 3; llama3 and
proportional: the definitions that transformers documents; hope: 2410.21216, pairs whose period is shorter than the
training length; clipped: 2602.05258 and its program, with shares that are rounded to float64. Numbers of the
configuration are exact doubles.
"""

import mpmath
from mpmath import mpf

DIGITS = 60
OURS = ("ntk", "hope", "clipped")  # what transformers lacks


def rotary_dim(parameters, head_dim):
    share = 1.0 if parameters["rope_type"] == "proportional" else parameters.get("partial_rotary_factor", 1.0)
    return int(head_dim * share)


def base_of(parameters, dim, length, max_position_embeddings):
    base, factor = mpf(parameters.get("rope_theta", 10000.0)), mpf(parameters.get("factor", 1.0))
    power = mpf(dim) / (dim - 2) if dim > 2 else None
    if parameters["rope_type"] == "ntk":
        return base * factor**power
    if parameters["rope_type"] == "dynamic" and length > max_position_embeddings:
        return base * (factor * length / max_position_embeddings - (factor - 1)) ** power
    return base


def yarn_shares(parameters, dim):
    """How far pair i is interpolated: 0 not at all, 1 by the whole factor."""
    base, length = mpf(parameters.get("rope_theta", 10000.0)), parameters["original_max_position_embeddings"]

    def pair_with(rotations):
        return dim * mpmath.log(length / (2 * mpmath.pi * mpf(rotations))) / (2 * mpmath.log(base))

    low, high = pair_with(parameters.get("beta_fast", 32)), pair_with(parameters.get("beta_slow", 1))
    if parameters.get("truncate", True):
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(dim - 1))
    if low == high:
        high += mpf(0.001)
    return [min(max((i - low) / (high - low), mpf(0)), mpf(1)) for i in range(dim // 2)]


def llama3_share(theta, parameters):
    """The weight of the unscaled frequency, by how often it turns in the original length."""
    rotations = parameters["original_max_position_embeddings"] * theta / (2 * mpmath.pi)
    low, high = mpf(parameters["low_freq_factor"]), mpf(parameters["high_freq_factor"])
    return min(max((rotations - low) / (high - low), mpf(0)), mpf(1))


def frequencies(parameters, head_dim, length=0, max_position_embeddings=512):
    """theta_i, i < R/2, as mpf; call within mpmath.workdps(DIGITS)."""
    kind, factor = parameters["rope_type"], mpf(parameters.get("factor", 1.0))
    dim = rotary_dim(parameters, head_dim)
    base = base_of(parameters, dim, length, max_position_embeddings)
    theta = [base ** (-mpf(2 * i) / dim) for i in range(dim // 2)]
    if kind == "linear":
        return [t / factor for t in theta]
    if kind == "yarn":
        return [t * (1 - s + s / factor) for t, s in zip(theta, yarn_shares(parameters, dim), strict=True)]
    if kind == "longrope":
        is_long = length > parameters["original_max_position_embeddings"]
        divisors = parameters["long_factor" if is_long else "short_factor"]
        return [t / mpf(d) for t, d in zip(theta, divisors, strict=True)]
    if kind == "llama3":
        shares = [llama3_share(t, parameters) for t in theta]
        return [t * (s + (1 - s) / factor) for t, s in zip(theta, shares, strict=True)]
    if kind == "hope":
        trained = parameters["original_max_position_embeddings"]
        return [t if 2 * mpmath.pi / t < trained else mpf(0) for t in theta]
    if kind == "clipped":
        count = parameters["clip_low_n"]
        shares = [float((1 + mpmath.cospi(mpf(j) / (count - 1))) / 2) for j in range(count)]
        return theta[:-count] + [t * mpf(s) for t, s in zip(theta[-count:], shares, strict=True)]
    if kind == "proportional":
        turning = int(parameters.get("partial_rotary_factor", 1.0) * head_dim // 2)
        return [t / factor if i < turning else mpf(0) for i, t in enumerate(theta)]
    return theta


def attention_factor(parameters, max_position_embeddings=512):
    """The scale of cos and sin."""
    if parameters.get("attention_factor") is not None:
        return mpf(parameters["attention_factor"])
    if parameters["rope_type"] == "yarn":
        factor = mpf(parameters["factor"])

        def scale(weight):
            return 1 if factor <= 1 else mpf("0.1") * mpf(weight) * mpmath.log(factor) + 1

        if "mscale" in parameters:
            return scale(parameters["mscale"]) / scale(parameters["mscale_all_dim"])
        return scale(1)
    if parameters["rope_type"] == "longrope":
        original = parameters["original_max_position_embeddings"]
        factor = mpf(parameters.get("factor", max_position_embeddings / original))
        return mpf(1) if factor <= 1 else mpmath.sqrt(1 + mpmath.log(factor) / mpmath.log(original))
    return mpf(1)


# Configurations that reach every branch of every type, for a head of 24.
HEAD_DIM = 24
_RAMP = [1.0 + 0.25 * i for i in range(HEAD_DIM // 2)]
_STEEP = [1.5 + 3.5 * i for i in range(HEAD_DIM // 2)]
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CONFIGURATIONS = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "default-partial": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "linear-odd": {"rope_type": "linear", "rope_theta": 12345.5, "factor": 2.7, "partial_rotary_factor": 0.75},
    "ntk": {"rope_type": "ntk", "rope_theta": 10000.0, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    "dynamic-odd": {"rope_type": "dynamic", "rope_theta": 1e6, "factor": 3.3, "partial_rotary_factor": 0.5},
    "yarn": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4096},
    "yarn-real": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 24.0, "beta_slow": 1.5,
                  "truncate": False, "original_max_position_embeddings": 4096},
    "yarn-mscale": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "mscale": 0.707,
                    "mscale_all_dim": 0.9, "original_max_position_embeddings": 2048},
    "yarn-equal": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "beta_fast": 4.0, "beta_slow": 4.0,
                   "truncate": False, "attention_factor": 1.25, "original_max_position_embeddings": 1024},
    "longrope": {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": _RAMP, "long_factor": _STEEP,
                 "original_max_position_embeddings": 256},
    "longrope-factor": {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": _RAMP[:6],
                        "long_factor": _STEEP[:6], "factor": 32.0, "partial_rotary_factor": 0.5,
                        "original_max_position_embeddings": 256},
    "longrope-attention": {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": _RAMP,
                           "long_factor": _STEEP, "attention_factor": 1.19, "original_max_position_embeddings": 256},
    "llama3": _LLAMA3 | {"rope_theta": 500000.0, "original_max_position_embeddings": 8192},
    "llama3-low": _LLAMA3 | {"rope_theta": 500.0, "factor": 3.0, "original_max_position_embeddings": 300},
    "proportional": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    "proportional-factor": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.6,
                            "factor": 8.0},
    "hope": {"rope_type": "hope", "rope_theta": 10000.0, "original_max_position_embeddings": 512},
    # Periods of the pairs: 2 pi 10000^(i / 12) = 6.3, 13.5, 29.2, 62.8, 135, ..
    "hope-62": {"rope_type": "hope", "rope_theta": 10000.0, "original_max_position_embeddings": 62},
    "hope-63": {"rope_type": "hope", "rope_theta": 10000.0, "original_max_position_embeddings": 63},
    "hope-all": {"rope_type": "hope", "rope_theta": 500.0, "original_max_position_embeddings": 100000,
                 "partial_rotary_factor": 0.5},
    "clipped": {"rope_type": "clipped", "rope_theta": 10000.0, "clip_low_n": 5},
    "clipped-all": {"rope_type": "clipped", "rope_theta": 5e5, "clip_low_n": 6, "partial_rotary_factor": 0.5},
    "hope-one": {"rope_type": "hope", "rope_theta": 1e6, "original_max_position_embeddings": 7},
}  # fmt: skip
