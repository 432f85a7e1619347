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


# Views of [2, 7, 3, 4, 16], whether heads are first, and whether no two elements share memory.
VIEWS = {
    "slice of a fused qkv": (lambda qkv: qkv[:, :, 1], False, True),
    "every second head": (lambda qkv: qkv[:, :, 0, ::2], False, True),
    "heads first": (lambda qkv: qkv[:, :, 2].transpose(1, 2), True, True),
    "expanded batch": (lambda qkv: qkv[:1, :, 0].expand(5, 7, 4, 16), False, False),
    "last dimension strided": (lambda qkv: qkv[:, :, 0, :, ::2], False, True),
    "leading dimensions that do not merge": (lambda qkv: qkv.permute(0, 2, 1, 3, 4)[:, :2], False, True),
    "the same with heads first": (lambda qkv: qkv.permute(0, 2, 3, 1, 4)[:, :2], True, True),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(("layout", "dtype"), [("pairs", torch.float32), ("halves", torch.bfloat16)])
def test_views_equal_their_copies_and_in_place_leaves_the_rest(layout, dtype, name):
    (view, heads_first, apart), qkv = VIEWS[name], normal([2, 7, 3, 4, 16], dtype=dtype)
    x, options = view(qkv), {"layout": layout, "heads_first": heads_first}
    assert not x.is_contiguous()
    y = roformer_cpp.rope(x, torch.arange(7), **options)
    assert y.is_contiguous() and torch.equal(y, roformer_cpp.rope(x.contiguous(), torch.arange(7), **options))
    if apart:
        expected = qkv.clone()
        view(expected).copy_(y)
        roformer_cpp.rope(x, torch.arange(7), **options, inplace=True)
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
    for _ in range(2):
        y = roformer_cpp.rope(x, positions, layout=layout, freqs=freqs, rotary_dim=rotary_dim)
        check_positions(y, x, positions, layout=layout, freqs=freqs.numpy())
        freqs[1] *= 0.25  # what is kept is found by values


def test_more_bases_than_the_registry_holds_from_many_threads():
    x, positions = normal([8, 1, 6], dtype=torch.float32), torch.arange(8).double() * 97.5
    bases = [1000.0 + i % 80 for i in range(400)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda base: roformer_cpp.rope(x, positions, layout="pairs", base=base), bases)
    for base, y in zip(bases, results, strict=True):
        check_positions(y, x, positions, layout="pairs", base=base)


def test_autocast_leaves_the_type_alone():
    x = normal([4, 2, 8], dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = roformer_cpp.rope(x, torch.arange(4), layout="pairs")
    assert torch.equal(y, roformer_cpp.rope(x, torch.arange(4), layout="pairs"))
