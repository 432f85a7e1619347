"""roformer::rope against float64 complex multiplication (spec R-ROPE-04..13)."""

import concurrent.futures
import math

import pytest
import torch

import roformer_cpp
from rotation_case import check_positions, normal

LAYOUTS = ["pairs", "halves"]
DIRECTIONS = ["forward", "transpose", "inverse"]
POSITIONS = [0, 1, 2, 511, 512, 4095, -7, 131071, 2**31 - 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_mode(layout, heads_first, direction, dtype):
    x_BHTD = normal([2, 3, 9, 24], dtype=dtype)
    positions = torch.tensor(POSITIONS)
    x = x_BHTD if heads_first else x_BHTD.transpose(1, 2).contiguous()
    options = {"layout": layout, "heads_first": heads_first, "direction": direction, "scale": 1.3, "rotary_dim": 16}
    y = roformer_cpp.rope(x, positions, **options)
    assert y.is_contiguous()
    check_positions(y, x, positions, **options)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.float64])
def test_position_types(dtype):
    x = normal([4, 2, 8], dtype=torch.float32)
    positions = torch.tensor([3, 0, 100, 41])
    y = roformer_cpp.rope(x, positions.to(dtype), layout="pairs")
    assert torch.equal(y, roformer_cpp.rope(x, positions, layout="pairs"))


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("leading", [(), (6,), (2, 3), (1, 6, 1)])
def test_positions_by_row(leading, heads_first):
    x_BTHD = normal([*leading, 5, 2, 8], dtype=torch.float32)
    rows = math.prod(leading)
    positions = (torch.arange(10 * rows).reshape(rows, 10) * 7 % 11)[:, ::2]
    x = x_BTHD.transpose(-2, -3).contiguous() if heads_first else x_BTHD
    y = roformer_cpp.rope(x, positions, layout="pairs", heads_first=heads_first)
    check_positions(y, x, positions, layout="pairs", heads_first=heads_first)


@pytest.mark.parametrize(("layout", "dtype"), [("pairs", torch.float32), ("halves", torch.bfloat16)])
def test_views_equal_their_copies(layout, dtype):
    positions = torch.arange(7)
    qkv = normal([2, 7, 3, 4, 16], dtype=dtype)
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
        qkv = normal([2, 7, 3, 4, 16], dtype=torch.float32)
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
    x, positions = normal([5, 2, 16], dtype=torch.float32), torch.tensor([0, 1, 9, 100, 3000])
    freqs = torch.linspace(0.001, 2.0, 6, dtype=torch.float64)
    y = roformer_cpp.rope(x, positions, layout=layout, freqs=freqs, rotary_dim=rotary_dim)
    check_positions(y, x, positions, layout=layout, freqs=freqs.numpy())


def test_frequencies_are_compared_by_value():
    x, positions = normal([3, 1, 4], dtype=torch.float32), torch.tensor([1, 2, 3])
    freqs = torch.tensor([1.0, 0.5], dtype=torch.float64)
    first = roformer_cpp.rope(x, positions, layout="pairs", freqs=freqs)
    freqs[1] = 0.25
    second = roformer_cpp.rope(x, positions, layout="pairs", freqs=freqs)
    assert torch.equal(first[..., :2], second[..., :2]) and not torch.equal(first, second)


def test_more_bases_than_the_registry_holds():
    x, positions = normal([3, 1, 8], dtype=torch.float32), torch.tensor([5, 0.5, -7.5], dtype=torch.float64)
    for base in [100.0 + i % 80 for i in range(160)]:
        check_positions(
            roformer_cpp.rope(x, positions, layout="pairs", base=base), x, positions, layout="pairs", base=base
        )


def test_calls_from_many_threads():
    x, positions = normal([64, 2, 16], dtype=torch.float32), torch.arange(64) * 97
    bases = [1000.0 + i % 80 for i in range(400)]
    expected = {base: roformer_cpp.rope(x, positions, layout="pairs", base=base) for base in set(bases)}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda base: roformer_cpp.rope(x, positions, layout="pairs", base=base), bases)
    assert all(torch.equal(y, expected[base]) for base, y in zip(bases, results, strict=True))


def test_autocast_leaves_the_type_alone():
    x = normal([4, 2, 8], dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = roformer_cpp.rope(x, torch.arange(4), layout="pairs")
    assert torch.equal(y, roformer_cpp.rope(x, torch.arange(4), layout="pairs"))
