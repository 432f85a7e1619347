"""roformer::rope against float64 complex multiplication (spec R-ROPE-04..13)."""

import concurrent.futures

import numpy as np
import pytest
import torch

import roformer_cpp
import rope_reference
import tolerances

LAYOUTS = ["pairs", "halves"]
DIRECTIONS = ["forward", "transpose", "inverse"]
POSITIONS = [0, 1, 2, 511, 512, 4095, 16383, 131071, 1048575]

# Spec appendix A.2: x = (1, .., 8), base 10000.
GOLDEN = {
    ("pairs", 1): "-1.142639663748 1.922075596544 2.585678829247 4.279516911053 "
    "4.939751002078 6.049699169171 6.991996501334 8.006995998834",
    ("pairs", 3): "-1.27223251272 -1.838864985141 1.683928640731 4.707906576486 "
    "4.81777716753 6.147277703506 6.975968536024 8.020963968527",
    ("pairs", 1000): "-1.091380004773 1.951637693113 4.612419181302 1.930178565821 "
    "-0.931230980046 -7.754534728906 -2.949651737386 10.2127153406",
    ("pairs", 100000): "-1.070858403382 -1.962972816904 -1.634008549224 -4.725464639701 "
    "-2.149381861739 7.508672160404 10.08715723489 3.353991490533",
    ("halves", 3): "-1.6955925369 0.1375517382832 2.788681599829 3.975982036013 "
    "-4.808842474942 6.323059348076 7.08683673685 8.011963982027",
}


def random(shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def check(y, x, positions, **arguments):
    """The error of y = rope(x, positions, ..) is within the bound of its dtype."""
    assert y.dtype == x.dtype and y.shape == x.shape
    expected = rope_reference.rope(x.double().numpy(), positions.numpy(), **arguments)
    scale = abs(arguments.get("scale", 1.0))
    if arguments.get("direction") == "inverse":
        scale = 1 / scale
    freqs = arguments.get("freqs")
    rotary_dim = arguments.get("rotary_dim") or (2 * len(freqs) if freqs is not None else None)
    size = rope_reference.magnitude(x.double().numpy(), layout=arguments["layout"], rotary_dim=rotary_dim)
    bound = tolerances.ROPE_EPS_FACTOR * torch.finfo(x.dtype).eps * max(scale, 1.0) * size
    error = np.abs(y.double().numpy() - expected)
    worst = np.argmax(error - bound)
    assert (error <= bound).all(), f"error {error.flat[worst]:.3g}, allowed {bound.flat[worst]:.3g}"


@pytest.mark.parametrize(("layout", "position"), GOLDEN)
def test_golden_numbers(layout, position):
    x = torch.arange(1.0, 9.0, dtype=torch.float64).reshape(1, 1, 8)
    y = roformer_cpp.rope(x, torch.tensor([position]), layout=layout)
    expected = [float(number) for number in GOLDEN[layout, position].split()]
    np.testing.assert_allclose(y.flatten().numpy(), expected, rtol=tolerances.GOLDEN_RTOL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_mode(layout, heads_first, direction, dtype):
    x_BHTD = random([2, 3, 9, 24], dtype)
    positions = torch.tensor(POSITIONS)
    x = x_BHTD if heads_first else x_BHTD.transpose(1, 2).contiguous()
    options = {"layout": layout, "heads_first": heads_first, "direction": direction, "scale": 1.3, "rotary_dim": 16}
    y = roformer_cpp.rope(x, positions, **options)
    assert y.is_contiguous()
    check(y, x, positions, **options)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.float64])
def test_position_types(dtype):
    x = random([4, 2, 8], torch.float32)
    positions = torch.tensor([3, 0, 100, 41])
    y = roformer_cpp.rope(x, positions.to(dtype), layout="pairs")
    assert torch.equal(y, roformer_cpp.rope(x, positions, layout="pairs"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [10000.0, 500000.0, 10.0])
def test_positions_large_negative_and_between_integers(base, dtype):
    numbers = [2**31 - 1, 2**31, 10**5, -(2**31), 0.5, 1000.125, -7.5]
    x, positions = random([7, 2, 64], dtype), torch.tensor(numbers, dtype=torch.float64)
    y = roformer_cpp.rope(x, positions, layout="pairs", base=base)
    check(y, x, positions, layout="pairs", base=base)


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("leading", [(6,), (2, 3), (1, 6, 1)])
def test_positions_by_row(leading, heads_first):
    x_BTHD = random([*leading, 5, 2, 8], torch.float32)
    positions = torch.arange(30).reshape(6, 5) * 7 % 11
    x = x_BTHD.transpose(-2, -3).contiguous() if heads_first else x_BTHD
    y = roformer_cpp.rope(x, positions, layout="pairs", heads_first=heads_first)
    check(y, x, positions, layout="pairs", heads_first=heads_first)


def test_one_row_of_positions_without_leading_dimensions():
    x, positions = random([5, 2, 8], torch.float32), torch.arange(5)
    y = roformer_cpp.rope(x, positions[None], layout="pairs")
    assert torch.equal(y, roformer_cpp.rope(x, positions, layout="pairs"))


def test_strided_positions():
    x, positions = random([2, 4, 2, 8]), torch.arange(16).reshape(2, 8)[:, ::2]
    assert torch.equal(
        roformer_cpp.rope(x, positions, layout="pairs"), roformer_cpp.rope(x, positions.clone(), layout="pairs")
    )


@pytest.mark.parametrize(("layout", "dtype"), [("pairs", torch.float32), ("halves", torch.bfloat16)])
def test_views_equal_their_copies(layout, dtype):
    positions = torch.arange(7)
    qkv = random([2, 7, 3, 4, 16], dtype)
    views = {
        "slice of a fused qkv": (qkv[:, :, 1], False),
        "every second head": (qkv[:, :, 0, ::2], False),
        "heads first": (qkv[:, :, 2].transpose(1, 2), True),
        "expanded batch": (qkv[:1, :, 0].expand(5, 7, 4, 16), False),
        "last dimension strided": (qkv[:, :, 0].repeat_interleave(2, -1)[..., ::2], False),
        "leading dimensions that do not merge": (qkv.permute(0, 2, 1, 3, 4)[:, :2], False),
    }
    for name, (x, heads_first) in views.items():
        assert not x.is_contiguous(), name
        y = roformer_cpp.rope(x, positions, layout=layout, heads_first=heads_first)
        copy = roformer_cpp.rope(x.contiguous(), positions, layout=layout, heads_first=heads_first)
        assert y.is_contiguous() and torch.equal(y, copy), name


def test_in_place_on_views_leaves_the_rest():
    positions = torch.arange(7)
    for view, heads_first in [
        (lambda t: t[:, :, 1], False),
        (lambda t: t[:, :, 1].transpose(1, 2), True),
        (lambda t: t.permute(0, 2, 1, 3, 4)[:, :2], False),
        (lambda t: t.permute(0, 2, 3, 1, 4)[:, :2], True),
        (lambda t: t[:, :, 0, :, ::2], False),
    ]:
        qkv = random([2, 7, 3, 4, 16], torch.float32)
        expected = qkv.clone()
        rotated = roformer_cpp.rope(view(qkv), positions, layout="pairs", heads_first=heads_first)
        view(expected).copy_(rotated)
        roformer_cpp.rope(view(qkv), positions, layout="pairs", heads_first=heads_first, inplace=True)
        assert torch.equal(qkv, expected)


def test_in_place_on_the_memory_of_the_positions():
    x = torch.arange(256.0, dtype=torch.float64)[:, None, None].repeat(1, 1, 2) * 500
    positions = x.flatten()[:256]
    assert positions.data_ptr() == x.data_ptr()
    expected = roformer_cpp.rope(x.clone(), positions.clone(), layout="pairs")
    assert torch.equal(roformer_cpp.rope(x, positions, layout="pairs", inplace=True), expected)


@pytest.mark.parametrize("shape", [(0, 4, 2, 8), (3, 0, 2, 8), (3, 4, 0, 8), (0, 2, 8)])
@pytest.mark.parametrize("inplace", [False, True])
def test_empty(shape, inplace):
    x = torch.empty(shape)
    y = roformer_cpp.rope(x, torch.arange(shape[-3]), layout="pairs", inplace=inplace)
    assert y.shape == x.shape
    assert (y is x) == inplace


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rotary_dim", [None, 12])
def test_given_frequencies(layout, rotary_dim):
    x, positions = random([5, 2, 16], torch.float32), torch.tensor([0, 1, 9, 100, 3000])
    freqs = torch.linspace(0.001, 2.0, 6, dtype=torch.float64)
    y = roformer_cpp.rope(x, positions, layout=layout, freqs=freqs, rotary_dim=rotary_dim)
    check(y, x, positions, layout=layout, freqs=freqs.numpy())


def test_frequencies_are_compared_by_value():
    x, positions = random([3, 1, 4], torch.float32), torch.tensor([1, 2, 3])
    freqs = torch.tensor([1.0, 0.5], dtype=torch.float64)
    first = roformer_cpp.rope(x, positions, layout="pairs", freqs=freqs)
    freqs[1] = 0.25
    second = roformer_cpp.rope(x, positions, layout="pairs", freqs=freqs)
    assert torch.equal(first[..., :2], second[..., :2]) and not torch.equal(first, second)


def test_more_bases_than_the_registry_holds():
    x, positions = random([3, 1, 8], torch.float32), torch.tensor([5, 50, 500])
    for base in [100.0 + i % 80 for i in range(160)]:
        check(roformer_cpp.rope(x, positions, layout="pairs", base=base), x, positions, layout="pairs", base=base)


def test_calls_from_many_threads():
    x, positions = random([64, 2, 16], torch.float32), torch.arange(64) * 97
    bases = [1000.0 + i % 80 for i in range(400)]
    expected = {base: roformer_cpp.rope(x, positions, layout="pairs", base=base) for base in set(bases)}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda base: roformer_cpp.rope(x, positions, layout="pairs", base=base), bases)
    assert all(torch.equal(y, expected[base]) for base, y in zip(bases, results, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_depend_on_the_distance_alone(layout):  # R-ROPE-01
    q, k = random([1, 64], seed=1), random([1, 64], seed=2)
    m, n = torch.arange(0, 64, 9), torch.arange(0, 64, 7)

    def scores(shift):
        q_TD = roformer_cpp.rope(q.expand(len(m), 1, 64), m + shift, layout=layout)[:, 0]
        k_SD = roformer_cpp.rope(k.expand(len(n), 1, 64), n + shift, layout=layout)[:, 0]
        return q_TD @ k_SD.T / (q.norm() * k.norm())

    for shift in (1, 7, 1000):
        np.testing.assert_allclose(scores(shift), scores(0), atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inverse_undoes_forward(layout):  # R-ROPE-04, R-ROPE-07
    x, positions = random([9, 2, 64]), torch.tensor(POSITIONS)
    y = roformer_cpp.rope(x, positions, layout=layout, scale=1.7)
    back = roformer_cpp.rope(y, positions, layout=layout, scale=1.7, direction="inverse")
    np.testing.assert_allclose(back, x, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)


def test_layouts_are_a_permutation_of_each_other():  # R-ROPE-09
    x, positions = random([4, 2, 16], torch.float32), torch.tensor([0, 3, 50, 999])
    to_halves = torch.cat([torch.arange(0, 16, 2), torch.arange(1, 16, 2)])
    pairs = roformer_cpp.rope(x, positions, layout="pairs")
    halves = roformer_cpp.rope(x[..., to_halves].contiguous(), positions, layout="halves")
    assert torch.equal(pairs[..., to_halves], halves)


def test_every_head_has_the_same_angles():  # R-ROPE-13
    x = random([1, 4, 1, 16], torch.float32).expand(3, 4, 5, 16)
    y = roformer_cpp.rope(x, torch.arange(4), layout="pairs")
    assert torch.equal(y, y[:1, :, :1].expand_as(y))


def test_autocast_leaves_the_type_alone():
    x = random([4, 2, 8], torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = roformer_cpp.rope(x, torch.arange(4), layout="pairs")
    assert torch.equal(y, roformer_cpp.rope(x, torch.arange(4), layout="pairs"))
