"""Checks of where parameters start: mean, deviation and range of what a paper or its authors' program draws.

Each takes the values of a parameter and its name. The test file of an encoding lists them as ``STARTS``
(encoding_files.py); tests/nn/test_initial_values.py has the sizes of the model.
"""

import math
from functools import partial

import numpy as np

from tolerances import SIGMAS, T2_RTOL

RANGE = 0.05  # initializer_range; not the default
HEADS, HEAD_DIM, WIDTH = 128, 8, 64


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


# `normal` without more is BERT's N(0, initializer_range^2) (Devlin et al. 2018 section A.2), where the paper of an
# encoding trains a table or a matrix and names no other.
normal, zero, one = check_normal, partial(check_equal, expected=0), partial(check_equal, expected=1)


def equal(expected):
    return partial(check_equal, expected=expected)


def of_linear(fan_in):
    """torch.nn.Linear."""
    return partial(check_uniform, low=-(fan_in**-0.5), high=fan_in**-0.5)


def of_log(high):
    """The logarithm of a uniform draw up to `high` that the authors clamp to 0.01."""
    return lambda values, name: check_uniform(np.exp(values), name, 0, high)
