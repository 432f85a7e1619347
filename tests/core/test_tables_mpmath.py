"""Rotary frequencies and tables of the C library against mpmath."""

import ctypes

import mpmath
import numpy as np
import pytest

import tolerances

POSITIONS = [0, 1, 2, 511, 512, 4095, 16383, 131071, 1048575, 2**31 - 1, 2**31, -(2**31) + 7, 12345.678, -0.25]
BASES = [10000.0, 500000.0, 10.0, 1e6]


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def call(core, name, *arguments):
    assert getattr(core, name)(*arguments) == 0, core.rf_last_error().decode()


def frequencies(core, base, rotary_dim):
    hi, lo = np.empty(rotary_dim // 2), np.empty(rotary_dim // 2)
    call(core, "rf_rope_frequencies", ctypes.c_double(base), ctypes.c_int64(rotary_dim), pointer(hi), pointer(lo))
    return hi, lo


def table(core, name, dtype, hi, lo, scale=1.0):
    positions = np.array(POSITIONS, dtype=np.float64)
    cos = np.empty((len(positions), len(hi)), dtype=dtype)
    sin = np.empty_like(cos)
    low = None if lo is None else pointer(lo)
    call(core, name, pointer(hi), low, ctypes.c_int64(len(hi)), ctypes.c_double(scale), pointer(positions),
         ctypes.c_int64(len(positions)), pointer(cos), pointer(sin))  # fmt: skip
    return cos, sin


def worst_error(cos, sin, theta, scale=1):
    worst = mpmath.mpf(0)
    for t, position in enumerate(POSITIONS):
        for i, frequency in enumerate(theta):
            angle = mpmath.mpf(position) * frequency
            worst = max(worst, abs(scale * mpmath.cos(angle) - mpmath.mpf(float(cos[t, i]))),
                        abs(scale * mpmath.sin(angle) - mpmath.mpf(float(sin[t, i]))))  # fmt: skip
    return float(worst)


def exact_theta(base, rotary_dim):
    return [mpmath.power(mpmath.mpf(base), -mpmath.mpf(2 * i) / rotary_dim) for i in range(rotary_dim // 2)]


@pytest.mark.parametrize("base", [*BASES, 1e-5, 3.0, 1e300])
@pytest.mark.parametrize("rotary_dim", [2, 6, 64, 128])
def test_frequencies_in_double_double(core, base, rotary_dim):
    with mpmath.workdps(60):
        hi, lo = frequencies(core, base, rotary_dim)
        for i, theta in enumerate(exact_theta(base, rotary_dim)):
            error = abs((mpmath.mpf(hi[i]) + mpmath.mpf(lo[i])) / theta - 1)
            assert error <= tolerances.FREQUENCY_RELATIVE, (i, mpmath.nstr(error, 3))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name, dtype, bound", [
    ("rf_rope_table_f32", np.float32, "TABLE_F32"),
    ("rf_rope_table_f64", np.float64, "TABLE_F64"),
])  # fmt: skip
def test_table_of_a_base(core, base, name, dtype, bound):
    with mpmath.workdps(60):
        for rotary_dim in (6, 64):
            hi, lo = frequencies(core, base, rotary_dim)
            cos, sin = table(core, name, dtype, hi, lo)
            assert worst_error(cos, sin, exact_theta(base, rotary_dim)) <= getattr(tolerances, bound)


def test_table_of_given_frequencies_without_low_parts(core):
    theta = np.array([1.0, 0.3, 1e-7, 3.0, 0.0, -0.7])
    with mpmath.workdps(60):
        exact = [mpmath.mpf(value) for value in theta]
        cos, sin = table(core, "rf_rope_table_f32", np.float32, theta, None)
        assert worst_error(cos, sin, exact) <= tolerances.TABLE_F32
        cos, sin = table(core, "rf_rope_table_f64", np.float64, theta, None)
        assert worst_error(cos, sin, exact) <= tolerances.TABLE_F64


def test_scale_enters_before_the_rounding(core):
    with mpmath.workdps(60):
        hi, lo = frequencies(core, 10000.0, 16)
        cos, sin = table(core, "rf_rope_table_f32", np.float32, hi, lo, scale=0.75)
        assert worst_error(cos, sin, exact_theta(10000, 16), scale=mpmath.mpf("0.75")) <= tolerances.TABLE_F32
