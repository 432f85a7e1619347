"""The kernels of roformer::rotate, rope and rope_ for GPUs, in Triton's interpreter, against complex multiplication in
float64 (tests/rotation_case.py)."""

import pytest
import torch

from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu.rope import rope, rope_, rotate, rotate_pair
from rotation_case import check_positions, check_rows, normal, rows_of, rows_of_any_strides, strided

LAYOUTS = ["pairs", "halves"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ROWS = [("pairs", 1, "forward", 11), ("pairs", 2, "transpose", 8)]
ROWS += [("halves", 2, "forward", 8), ("halves", 1, "transpose", 5)]


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("layout", "batch", "direction", "pairs"), ROWS)
def test_values_by_rows(layout, batch, direction, pairs, dtype):
    cos, sin = rows_of(batch, 5, pairs, dtype)
    for x in strided(dtype):
        check_rows(rotate(x, cos, sin, layout, direction=direction), x, cos, sin, layout, direction)


def test_rows_of_any_strides():
    x = normal(2, 5, 3, 8)
    for cos, sin in rows_of_any_strides():
        check_rows(rotate(x, cos, sin, "halves"), x, cos, sin, "halves")


@pytest.mark.parametrize("shape", [(2, 300, 3, 4), (3, 1, 70, 4), (1, 2, 1, 520)])
def test_several_blocks_of_tokens_heads_and_elements(shape):
    x = normal(*shape, dtype=torch.float32)
    cos, sin = rows_of(shape[0], shape[1], shape[3] // 2, x.dtype)
    for layout in LAYOUTS:
        check_rows(rotate(x, cos, sin, layout), x, cos, sin, layout)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_queries_and_keys_in_one_launch(layout):
    memory = normal(2, 5, 9, 12, dtype=torch.float32)
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
    x = normal(2, 2, *((3, 5) if heads_first else (5, 3)), 10, dtype=torch.float32)
    for positions, options in [
        (torch.tensor(tokens, dtype=torch.int32 if direction == "forward" else torch.int64), {}),
        (torch.tensor([tokens, tokens[::-1], [-7] * 5, [3] * 5]), {"rotary_dim": 6, "base": 500.0, "scale": 0.7}),
        (torch.tensor(tokens, dtype=torch.float64) / 3, {"freqs": torch.tensor([1.0, 0.1], dtype=torch.float64)}),
    ]:
        arguments = dict(layout=layout, heads_first=heads_first, direction=direction, **options)
        y = rope(x, positions, **arguments)
        assert y.is_contiguous()
        check_positions(y, x, positions, **arguments)
        for given in (x.clone(), x.transpose(-1, 0).contiguous().transpose(-1, 0)):  # the last dimension strided
            assert rope_(given, positions, **arguments) is None
            assert torch.equal(given, y)


def test_in_place_leaves_the_rest_of_the_memory():
    memory = normal(2, 5, 4, 12, dtype=torch.float32)
    given = memory.clone()
    rope_(memory[:, :, 1:3], torch.arange(5), layout="halves", rotary_dim=8)
    assert torch.equal(memory[:, :, 1:3], rope(given[:, :, 1:3], torch.arange(5), layout="halves", rotary_dim=8))
    assert torch.equal(memory[:, :, [0, 3]], given[:, :, [0, 3]]) and torch.equal(memory[..., 8:], given[..., 8:])
    with pytest.raises(RuntimeError, match=r"\[rope\] x must not refer to a single memory location more than once"):
        rope_(torch.zeros(1, 5, 1, 4).expand(2, 5, 1, 4), torch.arange(5), layout="pairs")
    x = torch.arange(12, dtype=torch.float64).reshape(3, 1, 4)
    expected = rope(x, x[:, 0, 0].clone(), layout="pairs")
    rope_(x, x[:, 0, 0], layout="pairs")  # positions share the memory of x
    assert torch.equal(x, expected)


def test_offsets_beyond_int32():
    """Strides within int32 and elements beyond it, over memory that is mostly never touched."""
    far = 2**30
    memory = torch.empty(2 * far + 128, dtype=torch.float16)
    for strides in ((far, 12, 4), (12, far, 4), (36, 12, far)):
        x = memory.as_strided((3, 3, 3, 4), (*strides, 1))
        given = normal(3, 3, 3, 4, dtype=torch.float16)
        cos, sin = rows_of(1, 3, 2, x.dtype)
        x.copy_(given)
        y = rotate(x, cos, sin, "pairs")
        check_rows(y, given, cos, sin, "pairs")
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
        ValueError, match=r"\[rotate\] k must have the dtype and head_dim of q, .*32 and 8, got .*64 an"
    ):
        rotate_pair(x, x.double(), rows, rows, "pairs")
    with pytest.raises(ValueError, match=r"\[rotate\] q must be contiguous in its last dimension, got stride 2"):
        rotate_pair(torch.zeros(2, 5, 3, 16)[..., ::2], x, rows, rows, "pairs", inplace=True)
    with pytest.raises(ValueError, match=r"\[rotate\] cos must be on the device of x, cpu, got meta"):
        rotate(x, rows.to("meta"), rows, "pairs")
    for function in (rope, rope_):
        with pytest.raises(ValueError, match=r"\[rope\] positions must be \[tokens\]"):
            function(x, torch.arange(4), layout="pairs")
