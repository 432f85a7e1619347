"""Linear attention on GPUs: ``roformer::linear_attention_kernel`` and its backward.

core/include/rf/linear_attention.h has the equation. With f and g the features of queries and keys, d the denominators,
y the gradient of out, a_m = y_m / d_m and c_m = -(y_m . out_m) / d_m:

    out_m = (R f_m) . S / d_m     d_m = f_m . z + eps     S = sum_n (R g_n) v_n^T    z = sum_n g_n
    d(R f_m) = S a_m              df_m += c_m z
    d(R g_n) = P v_n              dg_n += c'              P = sum_m (R f_m) a_m^T    c' = sum_m c_m f_m
    dv_n = P^T (R g_n)

Products use bfloat16 numbers for bfloat16 data; tf32 numbers for float16 data, because sums and quotients leave the
range of float16; and numbers split into tf32 parts for float32 data. All are added in float32. Sums over chunks are
added in float64. float64 data is computed in float64.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import linear_attention_kernels as kernels
from . import tiles as tile
from .launch import checked_results, on_device
from .linear_attention_tiles import Chunks, Exponents, Side, Spec

# Tokens of a tile of 16-bit data, tiles of a chunk, and columns of features and of values in a tile.
# feature_gradients_kernel halves the tiles, because it keeps more tiles in registers.
_TILE, _TILES, _BLOCK = 64, 4, 64
_LAUNCH = {"num_warps": 8, "num_stages": 1}
_BLOCK_SUMS = 256  # numbers that a program of scan_kernel adds
_MAX_SUM, _MAX_HEADS = 2**22, 2**16 - 1  # of a sum, features * (value_dim + 1): both limit grids


@dataclass
class _Call:
    """The forward's arguments, which the backward has too, except the states."""

    q: Tensor
    k: Tensor
    v: Tensor
    feature_map: str
    direction: str
    denominator: str = "plain"
    query_cos: Tensor | None = None
    query_sin: Tensor | None = None
    key_cos: Tensor | None = None
    key_sin: Tensor | None = None
    layout: str = "pairs"
    key_mask: Tensor | None = None
    eps: float = 0.0
    key_exponents: Tensor | None = None
    cu_seqlens_q: Tensor | None = None
    cu_seqlens_k: Tensor | None = None
    state: Tensor | None = None
    state_exponents: Tensor | None = None

    @property
    def sequences(self) -> int:
        return self.q.size(0) if self.cu_seqlens_q is None else self.cu_seqlens_q.size(0) - 1


def _require(is_true: bool, rule: str, got: object) -> None:
    if not is_true:
        raise ValueError(f"[linear_attention] {rule}, got {got}")


def _check(call: _Call) -> None:
    """Checks the rules that the operator's Meta kernel leaves to core, except for values of tensors on the device."""
    (batch, queries, heads, features), keys = call.q.shape, call.k.size(1)
    key_heads, value_dim = call.v.shape[2:]
    for name, size in {"heads": heads, "key_heads": key_heads, "features": features, "value_dim": value_dim}.items():
        _require(size >= 1, f"{name} must be >= 1", size)
    _require(heads % key_heads == 0, f"heads must be a multiple of key_heads = {key_heads}", heads)
    _require(heads <= _MAX_HEADS, f"heads must be <= {_MAX_HEADS} on a GPU", heads)
    size = features * (value_dim + 1)
    _require(size <= _MAX_SUM, f"features * (value_dim + 1) must be <= {_MAX_SUM} on a GPU", size)
    _require(math.isfinite(call.eps) and call.eps >= 0, "eps must be finite and >= 0", call.eps)
    for name, cos in {"query": call.query_cos, "key": call.key_cos}.items():
        if cos is not None:
            _require(cos.size(0) in (1, batch), f"{name}.batch must be 1 or batch = {batch}", cos.size(0))
            _require(1 <= cos.size(2) <= features // 2, f"{name}.pairs must be in 1..{features // 2}", cos.size(2))
    if call.cu_seqlens_q is not None:
        _require(batch == 1, "batch must be 1 with packed sequences", batch)
    if call.state is not None:
        _require(call.direction == "causal", 'direction must be "causal" with a state', call.direction)
        _require(queries == keys, f"queries must equal keys = {keys} with a state", queries)
        if call.key_exponents is not None:
            _require(call.state_exponents is not None, "state_exponents must be given with key_exponents", None)
    if call.key_exponents is not None:
        _require(call.direction == "causal", 'direction must be "causal" with key_exponents', call.direction)
        _require(call.feature_map == "given", 'feature_map must be "given" with key_exponents', call.feature_map)


# How numbers are multiplied: their dtype, and the precision of tl.dot.
_PRODUCTS = {
    torch.bfloat16: (tl.bfloat16, "ieee"),
    torch.float16: (tl.float32, "tf32" if torch.version.hip is None else "ieee"),
    torch.float32: (tl.float32, "tf32x3" if torch.version.hip is None else "ieee"),
    torch.float64: (tl.float64, "ieee"),
}


def _spec(call: _Call) -> Spec:
    dtype = call.q.dtype
    features, value_dim = call.q.size(3), call.v.size(3)
    is_double = dtype == torch.float64
    block = _BLOCK // 2 if is_double else _BLOCK
    factor, precision = _PRODUCTS[dtype]
    is_rotated = call.query_cos is not None or call.key_cos is not None
    spec = {
        "features": features,
        "value_dim": value_dim,
        "feature_map": call.feature_map,
        "pairs": call.layout == "pairs",
        "causal": call.direction == "causal",
        "rotated_denominator": call.denominator == "rotated",
        "separate": call.denominator == "plain" and is_rotated,
        "eps": call.eps,
        "tile": _TILE * 2 // dtype.itemsize,
        "tiles": _TILES,
        "block_features": min(tile.padded(features), block),
        "block_values": min(tile.padded(value_dim), block),
        "real": tl.float64 if is_double else tl.float32,
        "factor": factor,
        "precision": precision,
    }
    return Spec(**{name: tl.constexpr(value) for name, value in spec.items()})


def _side(x: Tensor, group: int, cos: Tensor | None, sin: Tensor | None, cu_seqlens: Tensor | None) -> Side:
    cu_seqlens = None if cu_seqlens is None else cu_seqlens.contiguous()
    return Side(tile.rows_of(x), x.size(1), x.size(2), tl.constexpr(group), tile.rotation_rows_of(cos, sin), cu_seqlens)


def _sides(call: _Call) -> tuple[Side, Side]:
    """Queries, whose values only the backward has, and keys."""
    group = call.q.size(2) // call.k.size(2)
    queries = _side(call.q, group, call.query_cos, call.query_sin, call.cu_seqlens_q)
    keys = _side(call.k, 1, call.key_cos, call.key_sin, call.cu_seqlens_k)._replace(value_rows=tile.rows_of(call.v))
    if call.key_mask is None:
        return queries, keys
    mask = call.key_mask.expand(call.q.size(0), -1).view(torch.uint8)
    return queries, keys._replace(mask=mask, mask_stride_b=mask.stride(0), mask_stride_t=mask.stride(1))


def _chunks(call: _Call, tokens: int) -> tuple[Chunks, int]:
    """The chunks of ``tokens`` coordinates, and their number. For packed sequences it is an upper bound, because the
    lengths are on the device."""
    queries, keys = call.q.size(1), call.k.size(1)
    if call.cu_seqlens_q is None:
        count = triton.cdiv(max(queries, keys), tokens)
        return Chunks(count, None, None), call.sequences * count
    if call.sequences == 0:
        return Chunks(0, None, None), 0
    is_shared = call.cu_seqlens_q.data_ptr() == call.cu_seqlens_k.data_ptr()
    lengths = torch.maximum(call.cu_seqlens_q.diff(), call.cu_seqlens_k.diff()).clamp(min=0)
    first, sequence = tile.blocks_of(lengths, queries if is_shared else queries + keys, tokens)
    return Chunks(0, first.int(), sequence.int()), len(sequence)


class _Launcher:
    """The kernels for one call."""

    def __init__(self, call: _Call):
        self.call = call
        self.spec = _spec(call)
        self.queries, self.keys = _sides(call)
        self.chunks, self.chunk_count = _chunks(call, self.spec.tile.value * self.spec.tiles.value)
        self.real = torch.promote_types(call.q.dtype, torch.float32)
        self.exponents = Exponents(None, None, 0, 0)
        if call.key_exponents is not None:
            before = None if call.state is None else call.state_exponents.contiguous()
            self.exponents = Exponents(call.key_exponents.contiguous(), before, call.k.size(1), call.k.size(2))

    def _arguments(self, is_key: bool) -> tuple:
        sides = (self.keys, self.queries) if is_key else (self.queries, self.keys)
        return *sides, self.chunks, self.exponents

    def _feature_blocks(self) -> int:
        return triton.cdiv(self.call.q.size(3), self.spec.block_features.value)

    def _value_blocks(self) -> int:
        return triton.cdiv(self.call.v.size(3), self.spec.block_values.value)

    def sums(self, is_key: bool, state_after: Tensor | None = None) -> Tensor:
        """The sums of keys or of queries that the other side reads: of each chunk, or not causal of each sequence."""
        call, spec = self.call, self.spec
        key_heads, size = call.k.size(2), call.q.size(3) * (call.v.size(3) + 1)
        sums = call.q.new_empty(self.chunk_count, key_heads, size, dtype=self.real)
        grid = self.chunk_count, key_heads, self._feature_blocks() * self._value_blocks()
        kernels.chunk_sums_kernel[grid](*self._arguments(is_key), sums, spec, is_key, **_LAUNCH)
        totals = None if spec.causal.value else sums.new_empty(call.sequences, key_heads, size)
        state = None if call.state is None else call.state.contiguous()
        grid = call.sequences, key_heads, triton.cdiv(size, _BLOCK_SUMS)
        kernels.scan_kernel[grid](
            *self._arguments(is_key), sums, totals, state, state_after, spec, is_key, BLOCK=_BLOCK_SUMS
        )
        return sums if totals is None else totals

    def values(self, is_key: bool, sums: Tensor, out: Tensor, denominators: Tensor | None = None) -> None:
        """Writes out and the denominators of queries, or the gradient of v."""
        grid = self.chunk_count * self.spec.tiles.value, out.size(2), self._value_blocks()
        arguments = *self._arguments(is_key), sums, tile.rows_of(out), denominators, self.spec, is_key
        kernels.values_kernel[grid](*arguments, **_LAUNCH)

    def feature_gradients(self, is_key: bool, sums: Tensor, gradients: Tensor) -> None:
        """Writes the gradient of q or of k."""
        whole = self.spec.tile.value
        halved = max(whole // 2, 16)
        tiles = self.spec.tiles.value * whole // halved
        spec = self.spec._replace(tile=tl.constexpr(halved), tiles=tl.constexpr(tiles))
        grid = self.chunk_count * tiles, gradients.size(2), self._feature_blocks()
        kernels.feature_gradients_kernel[grid](
            *self._arguments(is_key), sums, tile.rows_of(gradients), spec, is_key, **_LAUNCH
        )

    def set_output_gradients(self, grad_out: Tensor, out: Tensor, denominators: Tensor) -> None:
        """Gives the queries their values y, scaled by 1 / d, and their weights c."""
        batch, tokens, heads, _ = out.shape
        y = tile.rows_of(grad_out)
        denominators = denominators.contiguous()
        inverses, weights = torch.empty_like(denominators), torch.empty_like(denominators)
        grid = batch * triton.cdiv(tokens, self.spec.tile.value), heads
        if out.numel() > 0:
            kernels.output_gradients_kernel[grid](
                y, tile.rows_of(out), denominators, inverses, weights, tokens, self.spec
            )
        self.queries = self.queries._replace(value_rows=y, scale=inverses, weight=weights)


def linear_attention_kernel(*args: Tensor, **options: object) -> tuple[Tensor, Tensor, Tensor]:
    """``roformer::linear_attention_kernel``: arguments and results as ops/src/linear_attention_operator.h has them.

    Values of ``cu_seqlens`` and ``key_exponents`` are not checked, because that would wait for the device; no row
    outside of a tensor is read or written for any.

    Raises:
        ValueError: an argument outside the operator's rules, or a size that no kernel has.
    """
    call = _Call(*args, **options)
    out, denominators, state_after = checked_results("linear_attention_kernel", **vars(call))
    _check(call)
    with on_device(call.q):
        if call.state is not None:
            state_after.copy_(call.state)
        _forward(_Launcher(call), out, denominators, state_after if call.state is not None else None)
    return out, denominators, state_after


def _forward(launcher: _Launcher, out: Tensor, denominators: Tensor, state_after: Tensor | None) -> None:
    if launcher.chunk_count == 0:
        return
    if denominators.numel() == 0:  # the operator returns no denominators for float64
        denominators = _float64_denominators(out)
    launcher.values(False, launcher.sums(True, state_after), out, denominators)


def _float64_denominators(out: Tensor) -> Tensor:
    return out.new_empty(out.size(0), out.size(2), out.size(1))


def linear_attention_kernel_backward(
    grad_out: Tensor, out: Tensor, denominators: Tensor, wanted: list[bool], *args: Tensor, **options: object
) -> list[Tensor]:
    """``roformer::linear_attention_kernel_backward``, as the forward; the sums of keys are computed again."""
    call = _Call(*args, **options)
    arguments = {name: value for name, value in vars(call).items() if not name.startswith("state")}
    given = {"grad_out": grad_out, "out": out, "denominators": denominators, "wanted": wanted}
    results = checked_results("linear_attention_kernel_backward", **given, **arguments)
    _check(call)
    with on_device(call.q):
        launcher = _Launcher(call)
        if launcher.chunk_count == 0:
            return results
        if denominators.numel() == 0:
            denominators = _float64_denominators(out)
            _forward(launcher, torch.empty_like(out), denominators, None)
        launcher.set_output_gradients(grad_out, out, denominators)
        gradients = iter(results)
        dq, dk, dv = (next(gradients) if is_wanted else None for is_wanted in wanted)
        if dq is not None:
            launcher.feature_gradients(False, launcher.sums(True), dq)
        if dk is not None or dv is not None:
            sums = launcher.sums(False)
            if dk is not None:
                launcher.feature_gradients(True, sums, dk)
            if dv is not None:
                launcher.values(True, sums, dv)
    return results
