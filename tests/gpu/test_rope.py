"""The kernels of roformer::rotate, rope and rope_ for GPUs, in Triton's interpreter, against complex multiplication in
float64 (tests/rope_reference.py)."""

import numpy as np
import pytest
import torch

import rope_reference
import tolerances
from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu.rope import rope, rope_, rotate, rotate_pair

LAYOUTS = ["pairs", "halves"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def rows_of(batch, tokens, pairs, dtype):
    row_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    return [random(batch, tokens, pairs, dtype=row_dtype, seed=seed) for seed in (1, 2)]


def check(y, x, expected, layout, rotary_dim, largest=1.0):
    """``y`` is within the bound of its dtype; elements past ``rotary_dim`` are those of ``x``."""
    assert y.dtype == x.dtype and y.shape == x.shape
    size = rope_reference.magnitude(x.double().numpy(), layout=layout, rotary_dim=rotary_dim)
    bound = tolerances.ROPE_EPS_FACTOR * torch.finfo(y.dtype).eps * max(largest, 1.0) * size
    error = np.abs(y.double().numpy() - expected)
    assert (error <= bound).all(), f"error {error.max():.3g}"
    assert torch.equal(y[..., rotary_dim:], x[..., rotary_dim:])


def check_rows(y, x, cos, sin, layout, direction):
    cos, sin = cos.double(), sin.double() * (1 if direction == "forward" else -1)
    expected = rope_reference.turned(x.double().numpy(), (cos.numpy(), sin.numpy()), layout)
    check(y, x, expected, layout, 2 * cos.size(-1), float(torch.stack([cos, sin]).abs().max()))


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("layout", "batch", "direction", "pairs"),
    [
        ("pairs", 1, "forward", 11),
        ("pairs", 2, "transpose", 8),
        ("halves", 2, "forward", 8),
        ("halves", 1, "transpose", 5),
    ],
)
def test_values_by_rows(layout, batch, direction, pairs, dtype):
    cos, sin = rows_of(batch, 5, pairs, dtype)
    qkv = random(2, 5, 3, 3, 22, dtype=dtype)
    for x in (
        qkv[:, :, 1],  # a slice of a fused projection
        qkv[:, :, 0].transpose(1, 2).contiguous().transpose(1, 2),  # heads first in memory
        qkv[:, :, 2].transpose(-1, -2).contiguous().transpose(-1, -2),  # the last dimension strided
    ):
        y = rotate(x, cos, sin, layout, direction=direction)
        assert y.is_contiguous()
        check_rows(y, x, cos, sin, layout, direction)


def test_rows_of_any_strides():
    x, rows = random(2, 5, 3, 8), random(2, 5, 8)
    for cos, sin in [
        (rows[..., :4], rows[..., 4:]),
        (rows[..., ::2], rows[..., 1::2]),
        (rows[:1, :, :4].expand(2, 5, 4), rows[..., 4:]),
        (rows[:1, :1, :4].expand(1, 5, 4), rows[:1, :1, 4:].expand(1, 5, 4)),
    ]:
        check_rows(rotate(x, cos, sin, "halves"), x, cos, sin, "halves", "forward")


@pytest.mark.parametrize("shape", [(2, 300, 3, 4), (3, 1, 70, 4), (1, 2, 1, 520)])
def test_several_blocks_of_tokens_heads_and_elements(shape):
    x = random(*shape, dtype=torch.float32)
    cos, sin = rows_of(shape[0], shape[1], shape[3] // 2, x.dtype)
    for layout in LAYOUTS:
        check_rows(rotate(x, cos, sin, layout), x, cos, sin, layout, "forward")


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_queries_and_keys_in_one_launch(layout):
    memory = random(2, 5, 9, 12, dtype=torch.float32)
    q, k = memory[:, :, :5], memory[:, :, 5:7]  # the last two heads are the values
    cos, sin = rows_of(1, 5, 4, q.dtype)
    results = rotate_pair(q, k, cos, sin, layout, direction="transpose")
    given = memory.clone()
    in_place = rotate_pair(q, k, cos, sin, layout, direction="transpose", inplace=True)
    assert in_place[0] is q and in_place[1] is k and torch.equal(memory[:, :, 7:], given[:, :, 7:])
    for x, y, same in zip((given[:, :, :5], given[:, :, 5:7]), results, in_place, strict=True):
        check_rows(y, x, cos, sin, layout, "transpose")
        assert torch.equal(y, same)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("direction", ["forward", "transpose", "inverse"])
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_by_positions(layout, heads_first, direction):
    """Positions of one sequence, of each sequence, and fractions; given frequencies; a part of the head."""
    tokens = [0, 1, 511, 131071, 2**31 - 1]
    x = random(2, 2, *((3, 5) if heads_first else (5, 3)), 10, dtype=torch.float32)
    for positions, options in [
        (torch.tensor(tokens, dtype=torch.int32 if direction == "forward" else torch.int64), {}),
        (torch.tensor([tokens, tokens[::-1], [-7] * 5, [3] * 5]), {"rotary_dim": 6, "base": 500.0, "scale": 0.7}),
        (torch.tensor(tokens, dtype=torch.float64) / 3, {"freqs": torch.tensor([1.0, 0.1], dtype=torch.float64)}),
    ]:
        arguments = dict(layout=layout, heads_first=heads_first, direction=direction, **options)
        y = rope(x, positions, **arguments)
        assert y.is_contiguous()
        expected = rope_reference.rope(x.double().numpy(), positions.numpy(), **arguments)
        rotary_dim = 2 * len(options["freqs"]) if "freqs" in options else options.get("rotary_dim", 10)
        scale = options.get("scale", 1.0)
        check(y, x, expected, layout, rotary_dim, max(scale, 1 / scale))
        for given in (x.clone(), x.transpose(-1, 0).contiguous().transpose(-1, 0)):  # the last dimension strided
            assert rope_(given, positions, **arguments) is None
            assert torch.equal(given, y)


def test_in_place_leaves_the_rest_of_the_memory():
    memory = random(2, 5, 4, 12, dtype=torch.float32)
    given = memory.clone()
    rope_(memory[:, :, 1:3], torch.arange(5), layout="halves", rotary_dim=8)
    assert torch.equal(memory[:, :, 1:3], rope(given[:, :, 1:3], torch.arange(5), layout="halves", rotary_dim=8))
    assert torch.equal(memory[:, :, [0, 3]], given[:, :, [0, 3]]) and torch.equal(memory[..., 8:], given[..., 8:])
    with pytest.raises(RuntimeError, match=r"\[rope\] x must not refer to a single memory location more than once"):
        rope_(torch.zeros(1, 5, 1, 4).expand(2, 5, 1, 4), torch.arange(5), layout="pairs")


def test_positions_that_share_the_memory_of_x():
    x = torch.arange(12, dtype=torch.float64).reshape(3, 1, 4)
    expected = rope(x, x[:, 0, 0].clone(), layout="pairs")
    rope_(x, x[:, 0, 0], layout="pairs")
    assert torch.equal(x, expected)


def test_offsets_beyond_int32():
    """Strides within int32 and elements beyond it, over memory that is mostly never touched."""
    far = 2**30
    memory = torch.empty(2 * far + 128, dtype=torch.float16)
    for strides in ((far, 12, 4), (12, far, 4), (36, 12, far)):
        x = memory.as_strided((3, 3, 3, 4), (*strides, 1))
        given = random(3, 3, 3, 4, dtype=torch.float16)
        cos, sin = rows_of(1, 3, 2, x.dtype)
        x.copy_(given)
        y = rotate(x, cos, sin, "pairs")
        check_rows(y, given, cos, sin, "pairs", "forward")
        rotate_pair(x, x[:, :, :0], cos, sin, "pairs", inplace=True)
        assert torch.equal(x, y)


@pytest.mark.parametrize("shape", [(0, 3, 2, 4), (2, 0, 2, 4), (2, 3, 0, 4)])
def test_empty(shape):
    x, rows = torch.zeros(shape), torch.zeros(1, shape[1], 2)
    assert rotate(x, rows, rows, "pairs").shape == shape
    assert rope(x, torch.arange(shape[1]), layout="halves").shape == shape
    rope_(x, torch.arange(shape[1]), layout="halves")


def test_bad_arguments():
    """The rules are those of the CPU, because the operators' own checks run (tests/ops); one of each function."""
    x, rows = torch.zeros(2, 5, 3, 8), torch.zeros(1, 5, 4)
    with pytest.raises(ValueError, match=r"\[rotate\] layout must be"):
        rotate(x, rows, rows, "interleaved")
    with pytest.raises(
        ValueError, match=r"\[rotate\] k must have the dtype and head_dim of q, .*32 and 8, got .*64 and 8"
    ):
        rotate_pair(x, x.double(), rows, rows, "pairs")
    with pytest.raises(ValueError, match=r"\[rotate\] q must be contiguous in its last dimension, got stride 2"):
        rotate_pair(torch.zeros(2, 5, 3, 16)[..., ::2], x, rows, rows, "pairs", inplace=True)
    with pytest.raises(ValueError, match=r"\[rotate\] cos must be on the device of x, cpu, got meta"):
        rotate(x, rows.to("meta"), rows, "pairs")
    for function in (rope, rope_):
        with pytest.raises(ValueError, match=r"\[rope\] positions must be \[tokens\]"):
            function(x, torch.arange(4), layout="pairs")
