"""The kernels of attention for GPUs, in Triton's interpreter, against core's float64 loops."""

import pytest
import torch

import tolerances
from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu import attention_call
from roformer_cpp.gpu.attention_backward import attention_kernel_backward
from roformer_cpp.gpu.attention_call import INPUTS, TABLES, TERMS, Shape
from roformer_cpp.gpu.attention_forward import attention_kernel
from term_list import NUMBERS, PAIRS, shape

on_cpu = torch.ops.roformer.attention_kernel
backward_on_cpu = torch.ops.roformer.attention_kernel_backward
POSITIONS = 40  # rows by position
SEQUENCES = dict(cu_seqlens_q=torch.tensor([0, 5, 5, 18, 19]), cu_seqlens_k=torch.tensor([0, 9, 12, 22, 23]))


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several tiles for few tokens."""
    monkeypatch.setattr(attention_call, "shapes", lambda kernel, call: [Shape(16, 16, 4, 1)])


class Case:
    """Random inputs with the terms of these names; tables by distance have rows for lo .. hi."""

    def __init__(
        self, *terms, batch=1, queries=19, keys=23, heads=2, key_heads=1, head_dim=16, value_dim=None, mask=None,
        positions=None, lo=-5, hi=7, dtype=torch.float32, **options,
    ):  # fmt: skip
        generator = torch.Generator().manual_seed(0)
        value_dim = value_dim or head_dim

        def normal(*shape):
            return torch.randn(*shape, generator=generator)

        rows = hi - lo + 1
        shapes = {name: shape(name, heads, POSITIONS, head_dim, rows) for name in (*NUMBERS, *PAIRS, *TABLES)}
        shapes |= {"query_table": (1, rows, head_dim), "value_table": (heads, rows, value_dim)}
        shapes |= {"gate": (heads, rows, 1), "wide_gate": (1, rows, head_dim)}
        shapes |= {"query_cos": (1, queries, head_dim // 2 - 2), "key_cos": (batch, keys, key_heads, head_dim // 2)}
        shapes |= {"value_cos": (1, keys, 1, head_dim // 2)}
        shapes |= {"key_score": (batch, heads, keys), "pair_bias": (1, heads, queries, keys)}
        shapes |= {name.replace("cos", "sin"): shape for name, shape in shapes.items() if name.endswith("cos")}
        given = {name: normal(*shapes[name]) for name in terms}
        if "wide_gate" in given:
            given["gate"] = given.pop("wide_gate")
        self.q, self.k = normal(batch, queries, heads, head_dim), normal(batch, keys, key_heads, head_dim)
        self.v = normal(batch, keys, key_heads, value_dim)
        self.positions = torch.arange(queries)[None] + keys - queries, torch.arange(keys).repeat(batch, 1)
        if positions == "even":
            self.positions = [2 * each for each in self.positions]
        elif positions == "random":
            of_side = ((batch, queries), (1, keys))
            self.positions = [torch.randint(0, POSITIONS, shape, generator=generator) for shape in of_side]
        self.mask = None if mask is None else torch.rand(*mask, generator=generator) < 0.6
        self.terms = [given.get(name) for name in TERMS]
        self.options, self.ranges = options, [lo, hi] * len(TABLES)
        self.q, self.k, self.v = (x.to(dtype) for x in (self.q, self.k, self.v))

    def arguments(self, wide=False):
        """The operators' arguments, in float64 if `wide`."""
        vectors = [x.double() if wide else x for x in (self.q, self.k, self.v)]
        terms = [x if x is None or not wide else x.double() for x in self.terms]
        return *vectors, *self.positions, self.mask, terms, self.ranges

    @property
    def wanted(self):
        return [True] * 3 + [x is not None for x in self.terms]


ROTATIONS = [f"{side}_{part}" for side in ("query", "key", "value") for part in ("cos", "sin")]
CASES = {
    "plain": Case(heads=4, key_heads=2),
    "rotations": Case(*ROTATIONS, batch=2),
    "rotation by halves": Case(*ROTATIONS[:4], layout="halves"),
    "u, w, K": Case("content_bias", "position_bias", "key_table"),
    "Q": Case("query_table"),
    "V": Case("value_table", head_dim=24),
    "b": Case("bias", right=0),
    "G": Case("gate"),
    "G of width D": Case("wide_gate", heads=1, queries=7),
    "a, c": Case("position_query", "position_key", positions="random"),
    "resets": Case("position_query", "position_key", "reset_row", "reset_col", "bias", queries=23),
    "one reset": Case("reset_col", "key_table"),
    "kappa, P": Case("key_score", "pair_bias", head_dim=24, value_dim=40),
    "any positions": Case("key_table", "query_table", "value_table", "bias", queries=17, keys=5, heads=1,
                          positions="random"),
    # Blocks of rows whose nearest and furthest keys are the first and the last of a tile.
    "b of far distances": Case("bias", queries=37, keys=37, heads=1, lo=-33, hi=0),
    "K of far distances": Case("key_table", queries=37, keys=37, heads=1, lo=-30, hi=40),
    # Limits at which a tile is whole, or is needed, by one key.
    "b of even positions": Case("bias", heads=1, positions="even"),
    "window": Case("bias", queries=37, keys=37, heads=1, left=1, right=14),
    "left window": Case(queries=37, keys=37, heads=1, left=14),
    "right window": Case(queries=37, keys=37, heads=1, right=14),
    "prefix": Case(batch=2, queries=37, keys=37, heads=1, right=0, prefix=torch.tensor([4, 21])),
    "mask": Case("bias", batch=2, mask=(2, 2, 19, 23)),
    "packed": Case("bias", "key_table", "query_table", "value_table", heads=1, **SEQUENCES),
    "packed and causal": Case(right=0, left=4, **SEQUENCES),
    "more queries": Case(queries=37, keys=18, heads=1, left=2, right=1),
    "dropout": Case("value_table", dropout=0.3, seed=-77, stream=2**40 + 5),
    "dropout of 8": Case(keys=24, dropout=0.3, seed=123456789123, stream=7),
    "dropout of packed": Case(dropout=0.3, seed=1, right=0, **SEQUENCES),
    "all": Case(*TERMS, heads=1, right=3, mask=(1, 1, 19, 23)),
}  # fmt: skip


def relative(found, expected):
    """The largest error, relative to the largest number. That of reset_row's gradient is 0, a sum of numbers near 1."""
    return ((found.double() - expected).abs().max() / expected.abs().max().clamp(min=0.1)).item()


def check(case, limit):
    """Values and gradients, and the logs of sums. Dropout has no float64 loops: it is compared with the CPU's tiles."""
    arguments, wide_arguments = case.arguments(), case.arguments("dropout" not in case.options)
    expected, expected_log_sum = on_cpu(*wide_arguments, **case.options)
    out, log_sum = attention_kernel(*arguments, **case.options)
    assert out.dtype == case.q.dtype and relative(out, expected) < limit
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    forward = grad.to(expected.dtype), expected, expected_log_sum, case.wanted
    expected_grads = backward_on_cpu(*forward, *wide_arguments, **case.options)
    grads = attention_kernel_backward(grad, out, log_sum, case.wanted, *arguments, **case.options)
    given = [(name, x) for name, x in zip(INPUTS, (*arguments[:3], *case.terms), strict=True) if x is not None]
    for gradient, expected_gradient, (name, x) in zip(grads, expected_grads, given, strict=True):
        assert gradient.shape == expected_gradient.shape and gradient.dtype == x.dtype, name
        assert relative(gradient, expected_gradient) < limit, name
    return log_sum


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    case = CASES[name]
    _, log_sum = on_cpu(*case.arguments(), **case.options)
    torch.testing.assert_close(check(case, tolerances.GPU_FLOAT32), log_sum, rtol=0, atol=tolerances.GPU_LOG_SUM)


def test_queries_and_keys_with_the_same_rows_are_rotated_in_one_launch(monkeypatch):
    case = Case("query_cos", "query_sin", queries=21, keys=21)
    monkeypatch.setattr(attention_call, "rotate", None)
    for part in ("cos", "sin"):
        case.terms[TERMS.index(f"key_{part}")] = case.terms[TERMS.index(f"query_{part}")]
    expected, _ = on_cpu(*case.arguments(wide=True))
    assert relative(attention_kernel(*case.arguments())[0], expected) < tolerances.GPU_FLOAT32


@pytest.mark.parametrize("terms", [(), (*ROTATIONS, "content_bias", "position_bias", *TABLES)])
def test_half_precision(terms):
    """The error is that of float16, measured at the tiles of the CPU."""
    case = Case(*(name for name in terms if name != "gate"), queries=7, dtype=torch.float16)
    check(case, tolerances.LOW_PRECISION_RATIO * torch.finfo(torch.float16).eps)


def test_wanted_gradients_only():
    case = Case("bias", "key_table", heads=1)
    out, log_sum = attention_kernel(*case.arguments())
    everything = attention_kernel_backward(out, out, log_sum, case.wanted, *case.arguments())
    given = [name for name, wanted in zip(INPUTS, case.wanted, strict=True) if wanted]
    for chosen in ({"q"}, {"v"}, {"bias"}, {"k", "key_table"}):
        wanted = [name in chosen for name in INPUTS]
        grads = attention_kernel_backward(out, out, log_sum, wanted, *case.arguments())
        expected = [x for name, x in zip(given, everything, strict=True) if name in chosen]
        assert all(torch.equal(a, b) for a, b in zip(grads, expected, strict=True))


def test_what_no_query_attends_to_is_not_read():
    """Slices of a tensor of queries, keys and values, with NaN in masked keys."""
    qkv = torch.randn(2, 21, 3, 1, 16, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 1, 1, 21, dtype=torch.bool)
    mask[0, ..., -3:] = False
    mask[1, ..., :18] = False
    positions = torch.arange(21)[None]
    terms = [torch.randn(1, 9, 16) if name == "query_table" else None for name in TERMS]
    arguments = [positions, positions, mask, terms, [-4, 4] * len(TABLES)]
    wanted = [True] * 3 + [x is not None for x in terms]

    def results():
        out, log_sum = attention_kernel(*qkv.unbind(2), *arguments)
        return out, *attention_kernel_backward(out, out, log_sum, wanted, *qkv.unbind(2), *arguments)

    clean = results()
    for part in (1, 2):
        qkv[:, :, part][~mask[:, 0, 0]] = float("nan")
    assert all(torch.equal(a, b) for a, b in zip(results(), clean, strict=True))
    assert all(x.isfinite().all() for x in clean)


def test_vectors_with_any_strides():
    case = Case("key_table", "query_table", queries=7)
    arguments = case.arguments()
    out, log_sum = attention_kernel(*arguments)
    expected = out, *attention_kernel_backward(out, out, log_sum, case.wanted, *arguments)
    strided = [x.mT.contiguous().mT for x in arguments[:3]]
    found, _ = attention_kernel(*strided, *arguments[3:])
    grad = out.mT.contiguous().mT
    found = found, *attention_kernel_backward(grad, out, log_sum, case.wanted, *strided, *arguments[3:])
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_query_without_keys_has_output_0():
    case = Case("key_table", mask=(2, 1, 19, 23), batch=2, heads=1)
    case.mask[0, :, 3] = False
    out, log_sum = attention_kernel(*case.arguments())
    assert out[0, 3].abs().max() == 0 and (log_sum[0, :, 3] == float("-inf")).all()
    grads = attention_kernel_backward(out + 1, out, log_sum, case.wanted, *case.arguments())
    assert grads[0][0, 3].abs().max() == 0 and all(x.isfinite().all() for x in grads)


def test_positions_far_apart():
    """Distances beyond 32 bits, and positions of a tile that differ by more."""
    case = Case("bias", "key_table", queries=3, keys=5, heads=1)
    far, near, apart = 2**40 + torch.arange(5), torch.arange(5), torch.tensor([0, 2**40 + 1, 2**50])
    for queries, keys in ((far, far), (far, near), (apart, torch.tensor([1, 2**40, 2**50 + 3, -(2**50), 0]))):
        case.positions = queries[None, :3], keys[None]
        expected, _ = on_cpu(*case.arguments(wide=True))
        assert relative(attention_kernel(*case.arguments())[0], expected) < tolerances.GPU_FLOAT32


def test_offsets_beyond_32_bits():
    """Tokens 2^27 elements apart, in memory that is never touched between them."""
    case = Case("bias", heads=1, dtype=torch.float16)
    near, _ = attention_kernel(*case.arguments())
    memory = torch.empty(23 * 2**27, dtype=torch.float16)
    for number, name in enumerate(("q", "k", "v")):
        x = getattr(case, name)
        far = memory.as_strided(x.shape, (0, 2**27, 16, 1), 16 * number)
        setattr(case, name, far.copy_(x))
    assert torch.equal(attention_kernel(*case.arguments())[0], near)


@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0)])
def test_no_tokens(queries, keys):
    case = Case("bias", queries=queries, keys=keys)
    out, log_sum = attention_kernel(*case.arguments())
    assert out.shape == (1, queries, 2, 16) and not out.any()
    assert not any(x.any() for x in attention_kernel_backward(out, out, log_sum, case.wanted, *case.arguments()))


def test_bad_arguments():
    case = Case("bias")
    with pytest.raises(ValueError, match=r"\[attention\] q must be float32, bfloat16 or float16 on a GPU, got torch"):
        attention_kernel(*case.arguments(wide=True))
    with pytest.raises(ValueError, match=r"\[attention\] bias must have"):
        attention_kernel(*case.arguments()[:-1], [0, 1] * len(TABLES))
    out, log_sum = attention_kernel(*case.arguments())
    absent = [name == "gate" for name in INPUTS]
    with pytest.raises(ValueError, match="wanted must name terms that are given, got the absent gate"):
        attention_kernel_backward(out, out, log_sum, absent, *case.arguments())


def test_a_gpu_without_enough_memory_takes_smaller_tiles(monkeypatch):
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(attention_call, "shapes", lambda kernel, call: [Shape(64, 64, 4, 3), Shape(16, 16, 4, 1)])
    monkeypatch.setattr(attention_call, "_FITTING", {})
    taken = []

    def launch(shape):
        taken.append(shape.M)
        if shape.M == 64:
            raise triton.runtime.errors.OutOfResources(200_000, 100_000, "shared memory")
        return "done"

    call = attention_call.Call(*Case().arguments())
    assert [attention_call.launch_fitting("forward", call, launch) for _ in range(2)] == ["done", "done"]
    assert taken == [64, 16, 16]
