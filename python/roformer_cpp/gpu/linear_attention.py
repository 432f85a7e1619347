"""Linear attention on GPUs: ``roformer::linear_attention_kernel`` and its backward.

core/include/rf/linear_attention.h has the equation. With f and g the features of queries and keys, d the denominators,
y the gradient of out, a_m = y_m / d_m and c_m = -(y_m . out_m) / d_m:

    out_m = (R f_m) . S / d_m     d_m = f_m . z + eps     S = sum_n (R g_n) v_n^T    z = sum_n g_n
    d(R f_m) = S a_m              df_m += c_m z
    d(R g_n) = P v_n              dg_n += c'              P = sum_m (R f_m) a_m^T    c' = sum_m c_m f_m
    dv_n = P^T (R g_n)

The forward and dv multiply features with a sum, and dq and dk values with a sum, so three kernels compute everything:
``_chunk_sums`` the sums of chunks of tokens, ``_values`` the products with features, and ``_feature_gradients`` the
products with values; ``_scan`` adds the chunks in order. In causal calls a token reads the sum of the chunks before it
(S) or after it (P), and multiplies the pairs within its chunk. Memory is linear in the number of tokens: a sum for each
chunk. There are no atomic operations, so results have the same bits in every run.

Queries and keys of a sequence end together: at coordinate x, 0 <= x < L = max(T, S), are query x - (L - T) and key
x - (L - S). Exponents M of keys shrink a product by e^-|M_x - M_y|, and sums are divided by the exponential of the
exponent at the border of their chunk, as in core/src/linear_attention/running_sums-inl.h.

Products of bfloat16 data are of bfloat16 numbers; those of float16 data of tf32 numbers, because sums and quotients
leave the range of float16; those of float32 data of numbers split into tf32 parts. All are added in float32. Sums over
chunks are added in float64. float64 data is computed in float64.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import checked_results, on_device
from .tiles import (
    RotationRows,
    Rows,
    blocks_of,
    load_halves_rotation,
    load_pairs_rotation,
    load_rows,
    padded,
    pair_partners,
    rotation_rows_of,
    rows_of,
    store_rows,
    swap_pairs,
)

# Tokens of a tile of 16-bit data, tiles of a chunk, and columns of features and of values in a tile. _feature_gradients
# halves the tiles, because it keeps more tiles in registers.
_TILE, _TILES, _BLOCK = 64, 4, 64
_LAUNCH = {"num_warps": 8, "num_stages": 1}
_BLOCK_SUMS = 256  # numbers that a program of _scan adds
_MAX_SUM, _MAX_HEADS = 2**22, 2**16 - 1  # of a sum, features * (value_dim + 1): both limit grids

# Lower exponents, -inf too, count as this one, so that differences are finite.
_LOWEST_EXPONENT = tl.constexpr(-1e30)


class _Side(NamedTuple):
    """Queries or keys, and the rows that are multiplied with them: v of keys, y of queries."""

    features: Rows
    tokens: int
    heads: int
    group: tl.constexpr  # heads of a key head
    rotation: RotationRows
    cu_seqlens: Tensor | None
    value_rows: Rows | None = None
    scale: Tensor | None = None  # [B, H, T] of the values: 1 / d of queries
    weight: Tensor | None = None  # [B, H, T] of the features in the sums of denominators: c of queries
    mask: Tensor | None = None  # uint8 [B, T] with any strides
    mask_stride_b: int = 0
    mask_stride_t: int = 0


class _Chunks(NamedTuple):
    """Which sequence a chunk belongs to: ``count`` chunks for each, or the tensors of packed sequences."""

    count: int
    first: Tensor | None  # [sequences + 1]
    sequence: Tensor | None  # [chunks]


class _Exponents(NamedTuple):
    pointer: Tensor | None  # [B, S, Hk]
    before: Tensor | None  # [sequences, Hk], of the state
    tokens: int
    heads: int


class _Spec(NamedTuple):
    features: tl.constexpr
    value_dim: tl.constexpr
    feature_map: tl.constexpr
    pairs: tl.constexpr  # of the layout "pairs", else "halves"
    causal: tl.constexpr
    rotated_denominator: tl.constexpr
    separate: tl.constexpr  # whether denominators have other features than numerators
    eps: tl.constexpr
    tile: tl.constexpr
    tiles: tl.constexpr
    block_features: tl.constexpr
    block_values: tl.constexpr
    real: tl.constexpr  # the dtype of sums
    factor: tl.constexpr  # and that of the factors of products
    precision: tl.constexpr


# ---- tiles of a chunk ----


@triton.jit
def _locate(chunk, x, y, chunks, spec):
    """Place of a chunk: its sequence, the entry of the batch, first token and number of tokens of x and of y in the
    sequence, its length L, and the chunk's first coordinate and end."""
    if chunks.sequence is None:
        sequence = chunk // chunks.count
        within = chunk % chunks.count
        entry = sequence.to(tl.int64)
        x_first = tl.full([], 0, tl.int32)
        x_count = x_first + x.tokens
        y_first = x_first
        y_count = x_first + y.tokens
    else:
        sequence = tl.load(chunks.sequence + chunk)
        within = chunk - tl.load(chunks.first + sequence)
        entry = tl.full([], 0, tl.int64)
        x_first, x_count = _packed_tokens(x, sequence)
        y_first, y_count = _packed_tokens(y, sequence)
    length = tl.maximum(x_count, y_count)
    begin = within * spec.tile * spec.tiles
    end = tl.minimum(begin + spec.tile * spec.tiles, length)
    return sequence, entry, x_first, x_count, y_first, y_count, length, begin, end


@triton.jit
def _packed_tokens(side, sequence):
    first = tl.maximum(tl.load(side.cu_seqlens + sequence), 0)
    end = tl.minimum(tl.load(side.cu_seqlens + sequence + 1), side.tokens)
    return first.to(tl.int32), tl.maximum(end - first, 0).to(tl.int32)


@triton.jit
def _exist(count, length, coordinates):
    row = coordinates - (length - count)
    return (row >= 0) & (row < count)


@triton.jit
def _tokens(side, entry, first, count, length, coordinates):
    """The int64 tokens at the coordinates, and which of them exist and are not masked."""
    tokens = (first + coordinates - (length - count)).to(tl.int64)
    exist = _exist(count, length, coordinates)
    if side.mask is None:
        return tokens, exist
    else:
        at = entry * side.mask_stride_b + tokens * side.mask_stride_t
        return tokens, tl.load(side.mask + at, mask=exist, other=0) != 0


@triton.jit
def _exponents(exponents, place, key_head, coordinates, X_IS_KEY: tl.constexpr):
    """The exponent of the last key at or before each coordinate; of the first key where there is none."""
    sequence, entry, x_first, x_count, y_first, y_count, length, _, _ = place
    first = x_first if X_IS_KEY else y_first
    count = x_count if X_IS_KEY else y_count
    row = tl.minimum(coordinates - (length - count), count - 1)
    at = (entry * exponents.tokens + first + tl.maximum(row, 0)) * exponents.heads + key_head
    exponent = tl.load(exponents.pointer + at, mask=row < count, other=0.0)
    if exponents.before is not None:
        earlier = tl.load(exponents.before + sequence * exponents.heads + key_head).to(exponent.dtype)
        exponent = tl.where(row < 0, earlier, exponent)
    return tl.maximum(exponent, _LOWEST_EXPONENT)


@triton.jit
def _decay(a, b):
    return tl.exp(-tl.abs(a - b))


@triton.jit
def _border_decay(exponents, place, key_head, coordinates, X_IS_KEY: tl.constexpr):
    """Between tokens of a chunk and the border where they are added to a sum and read one: the end for keys, the
    begin for queries."""
    _, _, _, _, _, _, _, begin, end = place
    at_border = _exponents(exponents, place, key_head, end - 1 if X_IS_KEY else begin - 1, X_IS_KEY)
    return _decay(_exponents(exponents, place, key_head, coordinates, X_IS_KEY), at_border)


@triton.jit
def _pair_factors(exponents, place, key_head, x_coordinates, y_coordinates, spec, X_IS_KEY: tl.constexpr):
    """``[x, y]``: the factor of a pair, 0 where the query does not see the key."""
    ahead = x_coordinates[:, None] - y_coordinates[None, :]
    seen = ahead <= 0 if X_IS_KEY else ahead >= 0
    if exponents.pointer is None:
        return tl.where(seen, 1.0, 0.0).to(spec.real)
    else:
        of_x = _exponents(exponents, place, key_head, x_coordinates, X_IS_KEY)
        of_y = _exponents(exponents, place, key_head, y_coordinates, X_IS_KEY)
        return tl.where(seen, _decay(of_x[:, None], of_y[None, :]), 0.0)


@triton.jit
def _mapped(x, feature_map: tl.constexpr):
    if feature_map == "elu":
        return tl.where(x > 0, x + 1, tl.exp(tl.minimum(x, 0.0)))
    elif feature_map == "relu":
        return tl.maximum(x, 0.0)
    else:
        return x


@triton.jit
def _times_slope(gradient, x, feature_map: tl.constexpr):
    if feature_map == "elu":
        return tl.where(x > 0, gradient, gradient * tl.exp(tl.minimum(x, 0.0)))
    elif feature_map == "relu":
        return tl.where(x > 0, gradient, 0.0)
    else:
        return gradient


@triton.jit
def _load_mapped(side, spec, entry, head, tokens, valid, columns):
    given = load_rows(side.features, entry, head, tokens, valid, columns, spec.features).to(spec.real)
    exists = valid[:, None] & (columns < spec.features)[None, :]
    return tl.where(exists, _mapped(given, spec.feature_map), 0.0)


@triton.jit
def _load_rotation(side, spec, entry, tokens, valid, first_column, columns):
    if spec.pairs:
        return load_pairs_rotation(side.rotation, entry, tokens, valid, first_column, spec.block_features)
    else:
        return load_halves_rotation(side.rotation, entry, tokens, valid, columns)


@triton.jit
def _load_features(side, spec, entry, head, tokens, valid, first_column, columns):
    """Rotated features, and the features of denominators. In the layout "pairs", columns begin with first_column."""
    plain = _load_mapped(side, spec, entry, head, tokens, valid, columns)
    if side.rotation.cos is None:
        return plain, plain
    else:
        cos, sin = _load_rotation(side, spec, entry, tokens, valid, first_column, columns)
        if spec.pairs:
            partner = swap_pairs(plain)
        else:
            partners = pair_partners(columns, side.rotation.pairs)
            partner = _load_mapped(side, spec, entry, head, tokens, valid, partners)
        rotated = cos * plain + sin * partner
        if spec.rotated_denominator:
            return rotated, rotated
        else:
            return rotated, plain


@triton.jit
def _load_numbers(numbers, side, spec, entry, head, tokens, valid):
    """One number for each row of ``[B, H, T]``; None: ones."""
    if numbers is None:
        return tl.where(valid, 1.0, 0.0).to(spec.real)
    else:
        return tl.load(numbers + (entry * side.heads + head) * side.tokens + tokens, mask=valid, other=0.0)


@triton.jit
def _load_values(side, spec, entry, head, tokens, valid, columns):
    values = load_rows(side.value_rows, entry, head, tokens, valid, columns, spec.value_dim).to(spec.real)
    if side.scale is not None:
        values *= _load_numbers(side.scale, side, spec, entry, head, tokens, valid)[:, None]
    return values


@triton.jit
def _sums_at(sums, place_index, key_head, key_heads, spec):
    size: tl.constexpr = spec.features * (spec.value_dim + 1)
    return sums + (place_index.to(tl.int64) * key_heads + key_head) * size


@triton.jit
def _load_matrix(sums, spec, columns, value_columns):
    at = columns[:, None] * spec.value_dim + value_columns[None, :]
    mask = (columns < spec.features)[:, None] & (value_columns < spec.value_dim)[None, :]
    return tl.load(sums + at, mask=mask, other=0.0)


@triton.jit
def _load_vector(sums, spec, columns):
    at = spec.features * spec.value_dim + columns
    return tl.load(sums + at, mask=columns < spec.features, other=0.0)


@triton.jit
def _product(a, b, total, spec):
    return tl.dot(a.to(spec.factor), b.to(spec.factor), total, input_precision=spec.precision, out_dtype=spec.real)


# ---- kernels ----


@triton.jit
def _chunk_sums(x, y, chunks, exponents, sums, spec, X_IS_KEY: tl.constexpr):
    """sums[chunk, key head]: sum of (R f) w^T ``[F, Dv]``, then the sum of the denominators' features ``[F]``."""
    chunk = tl.program_id(0)
    key_head = tl.program_id(1)
    value_blocks: tl.constexpr = (spec.value_dim + spec.block_values - 1) // spec.block_values
    value_block = tl.program_id(2) % value_blocks
    first_column = tl.program_id(2) // value_blocks * spec.block_features
    columns = first_column + tl.arange(0, spec.block_features)
    value_columns = value_block * spec.block_values + tl.arange(0, spec.block_values)
    place = _locate(chunk, x, y, chunks, spec)
    _, entry, first, count, _, _, length, begin, end = place
    if begin >= length:
        return
    matrix = tl.zeros([spec.block_features, spec.block_values], spec.real)
    vector = tl.zeros([spec.block_features], spec.real)
    for start in range(begin, end, spec.tile):
        coordinates = start + tl.arange(0, spec.tile)
        tokens, valid = _tokens(x, entry, first, count, length, coordinates)
        for i in range(0, x.group):
            head = key_head * x.group + i
            rotated, plain = _load_features(x, spec, entry, head, tokens, valid, first_column, columns)
            values = _load_values(x, spec, entry, head, tokens, valid, value_columns)
            weight = _load_numbers(x.weight, x, spec, entry, head, tokens, valid)
            if exponents.pointer is not None:
                decay = _border_decay(exponents, place, key_head, coordinates, X_IS_KEY)
                rotated *= decay[:, None]
                weight *= decay
            matrix = _product(tl.trans(rotated), values, matrix, spec)
            vector += tl.sum(plain * weight[:, None], 0)
    to = _sums_at(sums, chunk, key_head, tl.num_programs(1), spec)
    mask = columns < spec.features
    at = columns[:, None] * spec.value_dim + value_columns[None, :]
    tl.store(to + at, matrix, mask=mask[:, None] & (value_columns < spec.value_dim)[None, :])
    if value_block == 0:
        tl.store(to + spec.features * spec.value_dim + columns, vector, mask=mask)


@triton.jit
def _scan(x, y, chunks, exponents, sums, totals, state, state_after, spec, X_IS_KEY: tl.constexpr, BLOCK: tl.constexpr):
    """Replaces the sums of chunks by the sums over the chunks before each (of keys) or after it (of queries).

    Not causal: writes the sums over all chunks of a sequence to ``totals``.
    """
    sequence = tl.program_id(0)
    key_head = tl.program_id(1)
    matrix_size: tl.constexpr = spec.features * spec.value_dim
    columns = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < matrix_size + spec.features
    if chunks.sequence is None:
        first = sequence * chunks.count
        count = chunks.count
    else:
        first = tl.load(chunks.first + sequence)
        count = tl.load(chunks.first + sequence + 1) - first
    # In a state [F, Dv + 1], the vector is the last column.
    is_vector = columns >= matrix_size
    feature = tl.where(is_vector, columns - matrix_size, columns // spec.value_dim)
    of_state = feature * (spec.value_dim + 1) + tl.where(is_vector, spec.value_dim, columns % spec.value_dim)
    carry = tl.zeros([BLOCK], tl.float64)
    if state is not None:
        carry = tl.load(_sums_at(state, sequence, key_head, tl.num_programs(1), spec) + of_state, mask=mask, other=0.0)
    for i in tl.range(0, count, num_stages=4):
        chunk = first + (i if X_IS_KEY else count - 1 - i)
        at = _sums_at(sums, chunk, key_head, tl.num_programs(1), spec) + columns
        own = tl.load(at, mask=mask, other=0.0).to(tl.float64)
        if spec.causal:
            tl.store(at, carry.to(spec.real), mask=mask)
        if exponents.pointer is not None:
            place = _locate(chunk, x, y, chunks, spec)
            _, _, _, _, _, _, _, begin, end = place
            before = _exponents(exponents, place, key_head, begin - 1, X_IS_KEY)
            behind = _exponents(exponents, place, key_head, end - 1, X_IS_KEY)
            carry *= _decay(before, behind)
        carry += own
    if totals is not None:
        to = _sums_at(totals, sequence, key_head, tl.num_programs(1), spec) + columns
        tl.store(to, carry.to(spec.real), mask=mask)
    if state_after is not None:
        tl.store(_sums_at(state_after, sequence, key_head, tl.num_programs(1), spec) + of_state, carry, mask=mask)


@triton.jit
def _values(x, y, chunks, exponents, sums, out, denominators, spec, X_IS_KEY: tl.constexpr):
    """R f times the sums that x's chunk reads, plus the pairs in the chunk; divided by denominators, if they are not
    None, which are written."""
    chunk = tl.program_id(0) // spec.tiles
    head = tl.program_id(1)
    key_head = head // x.group
    value_columns = tl.program_id(2) * spec.block_values + tl.arange(0, spec.block_values)
    place = _locate(chunk, x, y, chunks, spec)
    sequence, entry, x_first, x_count, y_first, y_count, length, begin, end = place
    start = begin + tl.program_id(0) % spec.tiles * spec.tile
    if start >= length:
        return
    coordinates = start + tl.arange(0, spec.tile)
    tokens, valid = _tokens(x, entry, x_first, x_count, length, coordinates)
    own_sums = _sums_at(sums, chunk if spec.causal else sequence, key_head, tl.num_programs(1) // x.group, spec)
    total = tl.zeros([spec.tile, spec.block_values], spec.real)
    denominator = tl.zeros([spec.tile], spec.real)
    for first_column in range(0, spec.features, spec.block_features):
        columns = first_column + tl.arange(0, spec.block_features)
        rotated, plain = _load_features(x, spec, entry, head, tokens, valid, first_column, columns)
        total = _product(rotated, _load_matrix(own_sums, spec, columns, value_columns), total, spec)
        if denominators is not None:
            denominator += tl.sum(plain * _load_vector(own_sums, spec, columns)[None, :], 1)
    if spec.causal:
        if exponents.pointer is not None:
            decay = _border_decay(exponents, place, key_head, coordinates, X_IS_KEY)
            total *= decay[:, None]
            denominator *= decay
        for y_start in range(start if X_IS_KEY else begin, end if X_IS_KEY else start + spec.tile, spec.tile):
            y_coordinates = y_start + tl.arange(0, spec.tile)
            y_tokens, y_valid = _tokens(y, entry, y_first, y_count, length, y_coordinates)
            factors = _pair_factors(exponents, place, key_head, coordinates, y_coordinates, spec, X_IS_KEY)
            for i in range(0, y.group):
                y_head = key_head * y.group + i
                weights = tl.zeros([spec.tile, spec.tile], spec.real)
                under = tl.zeros([spec.tile, spec.tile], spec.real)
                for first_column in range(0, spec.features, spec.block_features):
                    columns = first_column + tl.arange(0, spec.block_features)
                    rotated, plain = _load_features(x, spec, entry, head, tokens, valid, first_column, columns)
                    y_rotated, y_plain = _load_features(
                        y, spec, entry, y_head, y_tokens, y_valid, first_column, columns
                    )
                    weights = _product(rotated, tl.trans(y_rotated), weights, spec)
                    if spec.separate and denominators is not None:
                        under = _product(plain, tl.trans(y_plain), under, spec)
                weights *= factors
                values = _load_values(y, spec, entry, y_head, y_tokens, y_valid, value_columns)
                total = _product(weights, values, total, spec)
                if denominators is not None:
                    denominator += tl.sum(under * factors if spec.separate else weights, 1)
    exists = _exist(x_count, length, coordinates)
    if denominators is not None:
        denominator += spec.eps
        is_zero = denominator == 0
        total = tl.where(is_zero[:, None], 0.0, total / tl.where(is_zero, 1.0, denominator)[:, None])
        if tl.program_id(2) == 0:
            tl.store(denominators + (entry * x.heads + head) * x.tokens + tokens, denominator, mask=exists)
    store_rows(out, entry, head, tokens, exists, value_columns, spec.value_dim, total)


@triton.jit
def _gradient_columns(
    x, y, exponents, sums, spec, place, head, key_head, coordinates, first_column, columns, X_IS_KEY: tl.constexpr
):
    """Columns of the gradients of R f and, from the denominators, of f; both of R f if they have the same features."""
    _, entry, x_first, x_count, y_first, y_count, length, begin, end = place
    tokens, valid = _tokens(x, entry, x_first, x_count, length, coordinates)
    weight = _load_numbers(x.weight, x, spec, entry, head, tokens, valid)
    rotated = tl.zeros([spec.tile, spec.block_features], spec.real)
    for first in range(0, spec.value_dim, spec.block_values):
        value_columns = first + tl.arange(0, spec.block_values)
        values = _load_values(x, spec, entry, head, tokens, valid, value_columns)
        matrix = _load_matrix(sums, spec, columns, value_columns)
        rotated = _product(values, tl.trans(matrix), rotated, spec)
    plain = weight[:, None] * _load_vector(sums, spec, columns)[None, :]
    if spec.causal:
        if exponents.pointer is not None:
            decay = _border_decay(exponents, place, key_head, coordinates, X_IS_KEY)[:, None]
            rotated *= decay
            plain *= decay
        start = tl.min(coordinates, 0)
        for y_start in range(start if X_IS_KEY else begin, end if X_IS_KEY else start + spec.tile, spec.tile):
            y_coordinates = y_start + tl.arange(0, spec.tile)
            y_tokens, y_valid = _tokens(y, entry, y_first, y_count, length, y_coordinates)
            factors = _pair_factors(exponents, place, key_head, coordinates, y_coordinates, spec, X_IS_KEY)
            for i in range(0, y.group):
                y_head = key_head * y.group + i
                weights = tl.zeros([spec.tile, spec.tile], spec.real)
                for first in range(0, spec.value_dim, spec.block_values):
                    value_columns = first + tl.arange(0, spec.block_values)
                    values = _load_values(x, spec, entry, head, tokens, valid, value_columns)
                    y_values = _load_values(y, spec, entry, y_head, y_tokens, y_valid, value_columns)
                    weights = _product(values, tl.trans(y_values), weights, spec)
                y_weight = _load_numbers(y.weight, y, spec, entry, y_head, y_tokens, y_valid)
                under = weight[:, None] * y_weight[None, :]
                y_rotated, y_plain = _load_features(y, spec, entry, y_head, y_tokens, y_valid, first_column, columns)
                if spec.separate:
                    rotated = _product(weights * factors, y_rotated, rotated, spec)
                    plain = _product(under * factors, y_plain, plain, spec)
                else:
                    rotated = _product((weights + under) * factors, y_rotated, rotated, spec)
    return rotated, plain


@triton.jit
def _feature_gradients(x, y, chunks, exponents, sums, gradients, spec, X_IS_KEY: tl.constexpr):
    """The gradient of q or k: values times the sums that x's chunk reads, plus the pairs in the chunk, rotated back."""
    chunk = tl.program_id(0) // spec.tiles
    head = tl.program_id(1)
    key_head = head // x.group
    first_column = tl.program_id(2) * spec.block_features
    columns = first_column + tl.arange(0, spec.block_features)
    place = _locate(chunk, x, y, chunks, spec)
    sequence, entry, first, count, _, _, length, begin, _ = place
    start = begin + tl.program_id(0) % spec.tiles * spec.tile
    if start >= length:
        return
    coordinates = start + tl.arange(0, spec.tile)
    tokens, valid = _tokens(x, entry, first, count, length, coordinates)
    own_sums = _sums_at(sums, chunk if spec.causal else sequence, key_head, tl.num_programs(1) // x.group, spec)
    gradient, plain = _gradient_columns(
        x, y, exponents, own_sums, spec, place, head, key_head, coordinates, first_column, columns, X_IS_KEY
    )
    if x.rotation.cos is None:
        gradient += plain
    else:
        if spec.rotated_denominator:
            gradient += plain
        if spec.pairs:
            partner = swap_pairs(gradient)
        else:
            partners = pair_partners(columns, x.rotation.pairs)
            partner, partner_plain = _gradient_columns(
                x, y, exponents, own_sums, spec, place, head, key_head, coordinates, first_column, partners, X_IS_KEY
            )
            if spec.rotated_denominator:
                partner += partner_plain
        cos, sin = _load_rotation(x, spec, entry, tokens, valid, first_column, columns)
        gradient = cos * gradient - sin * partner
        if not spec.rotated_denominator:
            gradient += plain
    given = load_rows(x.features, entry, head, tokens, valid, columns, spec.features).to(spec.real)
    gradient = _times_slope(gradient, given, spec.feature_map)
    exists = _exist(count, length, coordinates)
    store_rows(gradients, entry, head, tokens, exists, columns, spec.features, gradient)


@triton.jit
def _output_gradients(y, out, denominators, inverses, weights, tokens, spec):
    """1 / d and c = -(y . out) / d of queries, both 0 where d is 0."""
    tiles = tl.cdiv(tokens, spec.tile)
    entry = (tl.program_id(0) // tiles).to(tl.int64)
    head = tl.program_id(1)
    rows = (tl.program_id(0) % tiles * spec.tile + tl.arange(0, spec.tile)).to(tl.int64)
    exists = rows < tokens
    product = tl.zeros([spec.tile], spec.real)
    for first in range(0, spec.value_dim, spec.block_values):
        columns = first + tl.arange(0, spec.block_values)
        gradient = load_rows(y, entry, head, rows, exists, columns, spec.value_dim).to(spec.real)
        product += tl.sum(gradient * load_rows(out, entry, head, rows, exists, columns, spec.value_dim), 1)
    at = (entry * tl.num_programs(1) + head) * tokens + rows
    denominator = tl.load(denominators + at, mask=exists, other=0.0)
    is_zero = denominator == 0
    inverse = tl.where(is_zero, 0.0, 1 / tl.where(is_zero, 1.0, denominator))
    tl.store(inverses + at, inverse, mask=exists)
    tl.store(weights + at, -inverse * product, mask=exists)


# ---- calls ----


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
    """The rules that the operator's Meta kernel leaves to core, but for the values of tensors on the device."""
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


def _spec(call: _Call) -> _Spec:
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
        "block_features": min(padded(features), block),
        "block_values": min(padded(value_dim), block),
        "real": tl.float64 if is_double else tl.float32,
        "factor": factor,
        "precision": precision,
    }
    return _Spec(**{name: tl.constexpr(value) for name, value in spec.items()})


def _side(x: Tensor, group: int, cos: Tensor | None, sin: Tensor | None, cu_seqlens: Tensor | None) -> _Side:
    cu_seqlens = None if cu_seqlens is None else cu_seqlens.contiguous()
    return _Side(rows_of(x), x.size(1), x.size(2), tl.constexpr(group), rotation_rows_of(cos, sin), cu_seqlens)


def _sides(call: _Call) -> tuple[_Side, _Side]:
    """Queries, whose values only the backward has, and keys."""
    group = call.q.size(2) // call.k.size(2)
    queries = _side(call.q, group, call.query_cos, call.query_sin, call.cu_seqlens_q)
    keys = _side(call.k, 1, call.key_cos, call.key_sin, call.cu_seqlens_k)._replace(value_rows=rows_of(call.v))
    if call.key_mask is None:
        return queries, keys
    mask = call.key_mask.expand(call.q.size(0), -1).view(torch.uint8)
    return queries, keys._replace(mask=mask, mask_stride_b=mask.stride(0), mask_stride_t=mask.stride(1))


def _chunks(call: _Call, tokens: int) -> tuple[_Chunks, int]:
    """The chunks of ``tokens`` coordinates, and their number; of packed sequences an upper bound of it, because their
    lengths are on the device."""
    queries, keys = call.q.size(1), call.k.size(1)
    if call.cu_seqlens_q is None:
        count = triton.cdiv(max(queries, keys), tokens)
        return _Chunks(count, None, None), call.sequences * count
    if call.sequences == 0:
        return _Chunks(0, None, None), 0
    is_shared = call.cu_seqlens_q.data_ptr() == call.cu_seqlens_k.data_ptr()
    lengths = torch.maximum(call.cu_seqlens_q.diff(), call.cu_seqlens_k.diff()).clamp(min=0)
    first, sequence = blocks_of(lengths, queries if is_shared else queries + keys, tokens)
    return _Chunks(0, first.int(), sequence.int()), len(sequence)


class _Launcher:
    """The kernels for one call."""

    def __init__(self, call: _Call):
        self.call = call
        self.spec = _spec(call)
        self.queries, self.keys = _sides(call)
        self.chunks, self.chunk_count = _chunks(call, self.spec.tile.value * self.spec.tiles.value)
        self.real = torch.promote_types(call.q.dtype, torch.float32)
        self.exponents = _Exponents(None, None, 0, 0)
        if call.key_exponents is not None:
            before = None if call.state is None else call.state_exponents.contiguous()
            self.exponents = _Exponents(call.key_exponents.contiguous(), before, call.k.size(1), call.k.size(2))

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
        _chunk_sums[grid](*self._arguments(is_key), sums, spec, is_key, **_LAUNCH)
        totals = None if spec.causal.value else sums.new_empty(call.sequences, key_heads, size)
        state = None if call.state is None else call.state.contiguous()
        grid = call.sequences, key_heads, triton.cdiv(size, _BLOCK_SUMS)
        _scan[grid](*self._arguments(is_key), sums, totals, state, state_after, spec, is_key, BLOCK=_BLOCK_SUMS)
        return sums if totals is None else totals

    def values(self, is_key: bool, sums: Tensor, out: Tensor, denominators: Tensor | None = None) -> None:
        """Writes out and the denominators of queries, or the gradient of v."""
        grid = self.chunk_count * self.spec.tiles.value, out.size(2), self._value_blocks()
        arguments = *self._arguments(is_key), sums, rows_of(out), denominators, self.spec, is_key
        _values[grid](*arguments, **_LAUNCH)

    def feature_gradients(self, is_key: bool, sums: Tensor, gradients: Tensor) -> None:
        """Writes the gradient of q or of k."""
        tile, tiles = self.spec.tile.value, self.spec.tiles.value
        halved = max(tile // 2, 16)
        tiles = tiles * tile // halved
        spec = self.spec._replace(tile=tl.constexpr(halved), tiles=tl.constexpr(tiles))
        grid = self.chunk_count * tiles, gradients.size(2), self._feature_blocks()
        _feature_gradients[grid](*self._arguments(is_key), sums, rows_of(gradients), spec, is_key, **_LAUNCH)

    def set_output_gradients(self, grad_out: Tensor, out: Tensor, denominators: Tensor) -> None:
        """Gives the queries their values y, scaled by 1 / d, and their weights c."""
        batch, tokens, heads, _ = out.shape
        y = rows_of(grad_out)
        denominators = denominators.contiguous()
        inverses, weights = torch.empty_like(denominators), torch.empty_like(denominators)
        grid = batch * triton.cdiv(tokens, self.spec.tile.value), heads
        if out.numel() > 0:
            _output_gradients[grid](y, rows_of(out), denominators, inverses, weights, tokens, self.spec)
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
    if denominators.numel() == 0:  # float64, of which the operator returns none
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
