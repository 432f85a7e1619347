"""rf_rope_scaled_frequencies of the C library against mpmath (R-CONV-12), and the arguments it refuses."""

import ctypes

import mpmath
import numpy as np
import pytest

import rope_scaling_reference as reference
import tolerances
from rope_scaling_reference import CONFIGURATIONS, HEAD_DIM

TYPES = ["none", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional"]
TRAINED = 512
IN_CORE = [name for name, parameters in CONFIGURATIONS.items() if parameters["rope_type"] != "clipped"]


class Scaling(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("base", ctypes.c_double),
        ("factor", ctypes.c_double), ("trained_length", ctypes.c_int64), ("length", ctypes.c_int64),
        ("beta_fast", ctypes.c_double), ("beta_slow", ctypes.c_double), ("truncate", ctypes.c_int32),
        ("low_freq_factor", ctypes.c_double), ("high_freq_factor", ctypes.c_double),
        ("divisors", ctypes.POINTER(ctypes.c_double)), ("rotating_pairs", ctypes.c_int64),
    ]  # fmt: skip


def turning_pairs(parameters, dim):
    if parameters["rope_type"] != "hope":
        return int(parameters.get("partial_rotary_factor", 1.0) * HEAD_DIM // 2)
    theta = parameters["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    return int((theta > 2 * np.pi / parameters["original_max_position_embeddings"]).sum())


def scaling_of(parameters, dim, length):
    kind = parameters["rope_type"]
    divisors = None
    if kind == "longrope":
        is_long = length > parameters["original_max_position_embeddings"]
        divisors = (ctypes.c_double * (dim // 2))(*parameters["long_factor" if is_long else "short_factor"])
    return Scaling(
        ctypes.sizeof(Scaling), TYPES.index({"default": "none", "hope": "proportional"}.get(kind, kind)) + 1,
        parameters["rope_theta"],
        parameters.get("factor", 1.0), parameters.get("original_max_position_embeddings", TRAINED), length,
        parameters.get("beta_fast", 32), parameters.get("beta_slow", 1), parameters.get("truncate", True),
        parameters.get("low_freq_factor", 0), parameters.get("high_freq_factor", 0), divisors,
        turning_pairs(parameters, dim),
    )  # fmt: skip


def frequencies(core, scaling, dim):
    """The status, hi and lo."""
    hi, lo = np.empty(dim // 2), np.empty(dim // 2)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (hi, lo)]
    return core.rf_rope_scaled_frequencies(ctypes.byref(scaling), ctypes.c_int64(dim), *pointers), hi, lo


@pytest.mark.parametrize("length", [1, 513, 5000, 2**31])
@pytest.mark.parametrize("name", IN_CORE)
def test_in_double_double(core, name, length):
    parameters = CONFIGURATIONS[name]
    dim = reference.rotary_dim(parameters, HEAD_DIM)
    status, hi, lo = frequencies(core, scaling_of(parameters, dim, length), dim)
    assert status == 0, core.rf_last_error().decode()
    with mpmath.workdps(reference.DIGITS):
        for i, theta in enumerate(reference.frequencies(parameters, HEAD_DIM, length, TRAINED)):
            error = abs(mpmath.mpf(hi[i]) + mpmath.mpf(lo[i]) - theta)
            assert error <= tolerances.FREQUENCY_RELATIVE * theta, (i, mpmath.nstr(error, 3))


@pytest.mark.parametrize("name, field, value, dim, words", [
    ("linear", "struct_size", 8, 24, "struct_size of scaling must be in"),
    ("linear", "type", 9, 24, "got 9"),
    ("linear", "base", -1.0, 24, "base must be finite and > 0, got -1"),
    ("linear", "factor", 0.5, 24, "factor must be finite and >= 1, got 0.5"),
    ("linear", "factor", 2.0, 23, "rotary_dim must be even"),
    ("ntk", "factor", 2.0, 2, "at least 4 for NTK scaling, got 2"),
    ("dynamic", "trained_length", 0, 24, "trained_length must be >= 1, got 0"),
    ("yarn", "base", 1.0, 24, "base must be > 1 for YaRN, got 1"),
    ("yarn", "beta_slow", 64.0, 24, "beta_fast must be finite and >= beta_slow > 0, got 32 and 64"),
    ("llama3", "low_freq_factor", 4.0, 24, "high_freq_factor must be finite and > low_freq_factor > 0, got 4 and 4"),
    ("longrope", "divisors", None, 24, "divisors must not be NULL"),
    ("longrope", "divisors", (ctypes.c_double * 12)(1, 1, 0), 24, "divisors must be finite and > 0, got 0"),
    ("proportional", "rotating_pairs", 13, 24, "rotating_pairs must be in 0..12, got 13"),
])  # fmt: skip
def test_refuses(core, name, field, value, dim, words):
    scaling = scaling_of(CONFIGURATIONS[name], 24, 1)
    setattr(scaling, field, value)
    status, _, _ = frequencies(core, scaling, dim)
    assert status == 1
    assert words in core.rf_last_error().decode()
