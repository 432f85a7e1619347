"""The tiles of linear attention's kernels (linear_attention_kernels.py): which tokens they have, and how rows are read.

Queries and keys of a sequence end together: at coordinate x, 0 <= x < L = max(T, S), are query x - (L - T) and key
x - (L - S). Exponents M of keys shrink a product by e^-|M_x - M_y|, and sums are divided by the exponential of the
exponent at the border of their chunk, as in core/src/linear_attention/running_sums-inl.h.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from . import tiles as tile

# Lower exponents, -inf too, count as this one, so that differences are finite.
_LOWEST_EXPONENT = tl.constexpr(-1e30)


class Side(NamedTuple):
    """Queries or keys, and the rows that are multiplied with them: v of keys, y of queries."""

    features: tile.Rows
    tokens: int
    heads: int
    group: tl.constexpr  # heads of a key head
    rotation: tile.RotationRows
    cu_seqlens: Tensor | None
    value_rows: tile.Rows | None = None
    scale: Tensor | None = None  # [B, H, T] of the values: 1 / d of queries
    weight: Tensor | None = None  # [B, H, T] of the features in the sums of denominators: c of queries
    mask: Tensor | None = None  # uint8 [B, T] with any strides
    mask_stride_b: int = 0
    mask_stride_t: int = 0


class Chunks(NamedTuple):
    """Which sequence a chunk belongs to: ``count`` chunks for each, or the tensors of packed sequences."""

    count: int
    first: Tensor | None  # [sequences + 1]
    sequence: Tensor | None  # [chunks]


class Exponents(NamedTuple):
    pointer: Tensor | None  # [B, S, Hk]
    before: Tensor | None  # [sequences, Hk], of the state
    tokens: int
    heads: int


class Spec(NamedTuple):
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
    factor: tl.constexpr  # the dtype of the factors of products
    precision: tl.constexpr


@triton.jit
def locate(chunk, x, y, chunks, spec):
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
def existing(count, length, coordinates):
    row = coordinates - (length - count)
    return (row >= 0) & (row < count)


@triton.jit
def tokens_at(side, entry, first, count, length, coordinates):
    """The int64 tokens at the coordinates, and which tokens exist and are not masked."""
    tokens = (first + coordinates - (length - count)).to(tl.int64)
    exist = existing(count, length, coordinates)
    if side.mask is None:
        return tokens, exist
    else:
        at = entry * side.mask_stride_b + tokens * side.mask_stride_t
        return tokens, tl.load(side.mask + at, mask=exist, other=0) != 0


@triton.jit
def load_exponents(exponents, place, key_head, coordinates, X_IS_KEY: tl.constexpr):
    """The exponent of the last key at or before each coordinate. Coordinates before the first key get ``before`` if it
    is set, else the first key's exponent."""
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
def decay_of(a, b):
    return tl.exp(-tl.abs(a - b))


@triton.jit
def border_decay(exponents, place, key_head, coordinates, X_IS_KEY: tl.constexpr):
    """Between tokens of a chunk and the border where they are added to a sum and read one: the end for keys, the
    begin for queries."""
    _, _, _, _, _, _, _, begin, end = place
    at_border = load_exponents(exponents, place, key_head, end - 1 if X_IS_KEY else begin - 1, X_IS_KEY)
    return decay_of(load_exponents(exponents, place, key_head, coordinates, X_IS_KEY), at_border)


@triton.jit
def pair_factors(exponents, place, key_head, x_coordinates, y_coordinates, spec, X_IS_KEY: tl.constexpr):
    """``[x, y]``: the factor of a pair, 0 if the key is hidden from the query."""
    ahead = x_coordinates[:, None] - y_coordinates[None, :]
    seen = ahead <= 0 if X_IS_KEY else ahead >= 0
    if exponents.pointer is None:
        return tl.where(seen, 1.0, 0.0).to(spec.real)
    else:
        of_x = load_exponents(exponents, place, key_head, x_coordinates, X_IS_KEY)
        of_y = load_exponents(exponents, place, key_head, y_coordinates, X_IS_KEY)
        return tl.where(seen, decay_of(of_x[:, None], of_y[None, :]), 0.0)


@triton.jit
def _mapped(x, feature_map: tl.constexpr):
    if feature_map == "elu":
        return tl.where(x > 0, x + 1, tl.exp(tl.minimum(x, 0.0)))
    elif feature_map == "relu":
        return tl.maximum(x, 0.0)
    else:
        return x


@triton.jit
def times_slope(gradient, x, feature_map: tl.constexpr):
    if feature_map == "elu":
        return tl.where(x > 0, gradient, gradient * tl.exp(tl.minimum(x, 0.0)))
    elif feature_map == "relu":
        return tl.where(x > 0, gradient, 0.0)
    else:
        return gradient


@triton.jit
def _load_mapped(side, spec, entry, head, tokens, valid, columns):
    given = tile.load_rows(side.features, entry, head, tokens, valid, columns, spec.features).to(spec.real)
    exists = valid[:, None] & (columns < spec.features)[None, :]
    return tl.where(exists, _mapped(given, spec.feature_map), 0.0)


@triton.jit
def load_rotation(side, spec, entry, tokens, valid, first_column, columns):
    if spec.pairs:
        return tile.load_pairs_rotation(side.rotation, entry, tokens, valid, first_column, spec.block_features)
    else:
        return tile.load_halves_rotation(side.rotation, entry, tokens, valid, columns)


@triton.jit
def load_features(side, spec, entry, head, tokens, valid, first_column, columns):
    """Rotated features, and the features of denominators. In the layout "pairs", columns begin with first_column."""
    plain = _load_mapped(side, spec, entry, head, tokens, valid, columns)
    if side.rotation.cos is None:
        return plain, plain
    else:
        cos, sin = load_rotation(side, spec, entry, tokens, valid, first_column, columns)
        if spec.pairs:
            partner = tile.swap_pairs(plain)
        else:
            partners = tile.pair_partners(columns, side.rotation.pairs)
            partner = _load_mapped(side, spec, entry, head, tokens, valid, partners)
        rotated = cos * plain + sin * partner
        if spec.rotated_denominator:
            return rotated, rotated
        else:
            return rotated, plain


@triton.jit
def load_numbers(numbers, side, spec, entry, head, tokens, valid):
    """One number for each row of ``[B, H, T]``; None: ones."""
    if numbers is None:
        return tl.where(valid, 1.0, 0.0).to(spec.real)
    else:
        return tl.load(numbers + (entry * side.heads + head) * side.tokens + tokens, mask=valid, other=0.0)


@triton.jit
def load_values(side, spec, entry, head, tokens, valid, columns):
    values = tile.load_rows(side.value_rows, entry, head, tokens, valid, columns, spec.value_dim).to(spec.real)
    if side.scale is not None:
        values *= load_numbers(side.scale, side, spec, entry, head, tokens, valid)[:, None]
    return values


@triton.jit
def sums_at(sums, place_index, key_head, key_heads, spec):
    size: tl.constexpr = spec.features * (spec.value_dim + 1)
    return sums + (place_index.to(tl.int64) * key_heads + key_head) * size


@triton.jit
def load_matrix(sums, spec, columns, value_columns):
    at = columns[:, None] * spec.value_dim + value_columns[None, :]
    mask = (columns < spec.features)[:, None] & (value_columns < spec.value_dim)[None, :]
    return tl.load(sums + at, mask=mask, other=0.0)


@triton.jit
def load_vector(sums, spec, columns):
    at = spec.features * spec.value_dim + columns
    return tl.load(sums + at, mask=columns < spec.features, other=0.0)


@triton.jit
def add_product(a, b, total, spec):
    return tl.dot(a.to(spec.factor), b.to(spec.factor), total, input_precision=spec.precision, out_dtype=spec.real)
