"""The kernel of roformer::rope_table for GPUs, in Triton's interpreter, against the CPU's tables and mpmath."""

import random

import mpmath
import pytest
import torch

import tolerances
from roformer_cpp import rope_table as on_cpu
from roformer_cpp.gpu.rope_table import frequencies, rope_table

CPU = torch.device("cpu")
GENERATOR = random.Random(0)
POSITIONS = [0, 1, 2, 511, -7, 131071, 2**31 - 1, 2**53, -(2**53)]
POSITIONS += [GENERATOR.randrange(2 ** GENERATOR.randrange(1, 53)) for _ in range(200)]


@pytest.mark.usefixtures("implementation")
def test_float32_rows_are_the_rows_of_the_cpu():
    """Both round a float64 result that is off by 2e-16 at most, so one row in some 10^8 may differ in its last bit."""
    freqs = frequencies(10000.0, 64, CPU)
    for positions in (torch.tensor(POSITIONS), torch.tensor(POSITIONS, dtype=torch.float64) / 3):
        for scale in (1.0, 1.3):
            ours = rope_table(positions, *freqs, scale)
            for mine, theirs in zip(ours, on_cpu(positions, *freqs, scale=scale), strict=True):
                assert mine.dtype == torch.float32 and torch.equal(mine, theirs)


@pytest.mark.usefixtures("implementation")
def test_values_in_float64():
    cos, sin = rope_table(torch.tensor(POSITIONS), *frequencies(500000.0, 10, CPU), dtype=torch.float64)
    with mpmath.workdps(60):
        for i, position in enumerate(POSITIONS):
            for pair in range(5):
                angle = position * mpmath.power(500000, mpmath.mpf(-pair) / 5)
                error = max(abs(cos[i, pair].item() - mpmath.cos(angle)), abs(sin[i, pair].item() - mpmath.sin(angle)))
                assert error <= tolerances.TABLE_F64, (position, pair)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize(
    ("positions_shape", "freqs_shape"),
    [((), (3,)), ((2, 4), (3,)), ((2, 4), (2, 1, 3)), ((2, 4), (1, 4, 3)), ((2, 4), (2, 4, 3)), ((2, 4), (1, 1, 3)),
     ((3, 2, 4), (3, 1, 1, 3)), ((3, 2, 4), (1, 2, 1, 3)), ((2, 300), (2, 1, 3)), ((0, 4), (1, 1, 3))],
)  # fmt: skip
def test_frequencies_by_token(positions_shape, freqs_shape, low):
    positions = torch.arange(torch.Size(positions_shape).numel()).reshape(positions_shape) * 7
    freqs = torch.rand(freqs_shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    freqs_lo = freqs * 2.0**-55 if low else None
    for mine, theirs in zip(rope_table(positions, freqs, freqs_lo), on_cpu(positions, freqs, freqs_lo), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.usefixtures("implementation")
def test_rows_that_are_not_exact_are_not_numbers_and_a_scale_of_0_is_refused():
    freqs = torch.tensor([1.0, 2.0**-10], dtype=torch.float64)
    whole = torch.tensor([2**53, 2**53 + 2, -(2**63)])
    real = torch.tensor([2.0**60, 2.0**61, float("nan")], dtype=torch.float64)
    for positions, expected in [(whole, [[0, 0], [1, 1], [1, 1]]), (real, [[0, 0], [1, 0], [1, 1]])]:
        for rows in rope_table(positions, freqs):
            assert rows.isnan().tolist() == expected
    with pytest.raises(ValueError, match=r"\[rope_table\] scale must be finite and not 0, got 0"):
        rope_table(whole, freqs, scale=0.0)


@pytest.mark.parametrize(("base", "rotary_dim"), [(10000.0, 64), (1e6, 6), (0.5, 2)])
def test_frequencies(base, rotary_dim):
    high, low = frequencies(base, rotary_dim, CPU)
    with mpmath.workdps(60):
        for i in range(rotary_dim // 2):
            exact = mpmath.power(base, mpmath.mpf(-2 * i) / rotary_dim)
            got = mpmath.mpf(high[i].item()) + mpmath.mpf(low[i].item())
            assert abs(got / exact - 1) <= tolerances.FREQUENCY_RELATIVE
