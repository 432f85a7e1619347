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


def table(core, dtype, hi, lo, scale):
    positions = np.array(POSITIONS, dtype=np.float64)
    cos = np.empty((len(positions), len(hi)), dtype=dtype)
    sin = np.empty_like(cos)
    low = None if lo is None else pointer(lo)
    name = "rf_rope_table_f32" if dtype == np.float32 else "rf_rope_table_f64"
    call(core, name, pointer(hi), low, ctypes.c_int64(len(hi)), ctypes.c_double(scale), pointer(positions),
         ctypes.c_int64(len(positions)), pointer(cos), pointer(sin))  # fmt: skip
    return cos, sin


def worst_error(cos, sin, theta, scale):
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


@pytest.mark.parametrize("dtype, bound", [(np.float32, tolerances.TABLE_F32), (np.float64, tolerances.TABLE_F64)])
def test_tables(core, dtype, bound):
    """Of bases, with a scale, which enters before the rounding, and of frequencies without low parts."""
    given = np.array([1.0, 0.3, 1e-7, 3.0, 0.0, -0.7])
    with mpmath.workdps(60):
        cases = [(*frequencies(core, base, dim), exact_theta(base, dim), 1.0) for base in BASES for dim in (6, 64)]
        cases.append((*frequencies(core, 10000.0, 16), exact_theta(10000, 16), 0.75))
        cases.append((given, None, [mpmath.mpf(value) for value in given], 1.0))
        for hi, lo, exact, scale in cases:
            cos, sin = table(core, dtype, hi, lo, scale)
            assert worst_error(cos, sin, exact, mpmath.mpf(scale)) <= bound
