"""Tiles of attention's scores in Triton, which the forward and the backward kernels share.

A tile belongs to one query head of one sequence (an entry of the batch, or a packed sequence) and has M consecutive
queries and N consecutive keys, numbered within the sequence. `core/terms/rf/attention_terms.h` defines the scores.
Rotations, ``u`` and ``w`` are applied before the kernels, so a kernel computes

    score(m,n) = s [ sum_d q_md G[r]_d k_nd + x_m . K[r] + y_n . Q[r] ] + pos(m,n) + kappa_n + P[m,n]

with ``q = R^q q + u``, ``k = R^k k``, ``x = q + w`` and ``y = k`` without their rotations.

Rows by distance are a product of the tile's vectors with all rows that the tile can meet, which is then read along its
diagonals. That needs positions that ascend by one; other tiles process their columns one by one, which is slow.

`places` of a tile's rows and columns, which are queries and keys or keys and queries, is the tuple (positions of rows
[M], of columns [N], first position of rows, of columns, whether both ascend by one).
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .tiles import dropout_numbers, dropout_words

LOG2_E = tl.constexpr(1.4426950408889634)
MINUS_INFINITY = tl.constexpr(float("-inf"))
MAX_START = tl.constexpr(1 << 30)  # with a tile added it fits 32 bits, and no table has as many rows


class Table(NamedTuple):
    """Rows by distance, [1 or H, last + 1, width]; row 0 belongs to distance ``lo`` and below."""

    rows: Any
    stride_h: Any
    lo: Any
    last: Any


class Scores(NamedTuple):
    """Numbers, or a mask, for [B, H, T, S]; a stride of 0 is shared."""

    data: Any
    stride_b: Any
    stride_h: Any
    stride_t: Any
    stride_s: Any


class Sequences(NamedTuple):
    """Packed sequences: ``cu_seqlens_q`` and ``cu_seqlens_k`` are [sequences + 1].

    ``query_blocks`` and ``key_blocks`` are [blocks, 2]: the sequence of a block, and its number in the sequence.
    ``dropout`` is [sequences], the elements of the sequences before.
    """

    cu_seqlens_q: Any
    cu_seqlens_k: Any
    query_blocks: Any
    key_blocks: Any
    dropout: Any


class Problem(NamedTuple):
    """The inputs of a kernel; absent ones are None, and None is a constant when Triton compiles."""

    queries: Any  # T
    keys: Any  # S
    heads: Any  # H
    group: Any  # query heads of a key head
    scale: Any  # s
    q: Any  # Rows
    k: Any
    v: Any
    position_q: Any  # x
    position_k: Any  # y
    pair_q: Any  # a[p_m]
    pair_k: Any  # c[p_n]
    key_table: Any  # Table
    query_table: Any
    value_table: Any
    bias: Any
    gate: Any  # rows of width 1
    wide_gate: Any  # rows of width D
    reset_row: Any  # [H]
    reset_col: Any
    key_score: Any  # Scores
    pair_bias: Any
    mask: Any
    query_positions: Any  # [1 or B, T] int64; None: no term reads them
    query_positions_b: Any  # stride of the batch
    key_positions: Any
    key_positions_b: Any
    steady: Any  # [1] int32: whether the positions of every sequence ascend by one
    left: Any  # None: no limit
    right: Any
    prefix: Any  # [B] or [sequences]
    sequences: Any  # Sequences
    threshold: Any  # an element is dropped if its number of 16 bits is below; None: no dropout
    even: Any  # None unless every row of probabilities begins a draw of eight numbers


# ---- sequences and windows ----


@triton.jit
def is_steady(x):
    if x.steady is None:
        return False
    else:
        return tl.load(x.steady) != 0


@triton.jit
def sequence_of(x, b, block, OF_KEYS: tl.constexpr):
    """First query, queries, first key, keys, prefix and number of a sequence, the block's number in it, and whether
    all positions ascend by one."""
    if x.sequences is None:
        prefix = 0
        if x.prefix is not None:
            prefix = tl.load(x.prefix + b).to(tl.int32)
        return 0, x.queries, 0, x.keys, prefix, b, block, is_steady(x)
    else:
        blocks = x.sequences.query_blocks
        if OF_KEYS:
            blocks = x.sequences.key_blocks
        sequence = tl.load(blocks + 2 * block)
        number = tl.load(blocks + 2 * block + 1)
        first_query = tl.load(x.sequences.cu_seqlens_q + sequence).to(tl.int32)
        first_key = tl.load(x.sequences.cu_seqlens_k + sequence).to(tl.int32)
        queries = tl.load(x.sequences.cu_seqlens_q + sequence + 1).to(tl.int32) - first_query
        keys = tl.load(x.sequences.cu_seqlens_k + sequence + 1).to(tl.int32) - first_key
        prefix = 0
        if x.prefix is not None:
            prefix = tl.load(x.prefix + sequence).to(tl.int32)
        return first_query, queries, first_key, keys, prefix, sequence, number, is_steady(x)


@triton.jit
def keys_of(x, own, m0, M: tl.constexpr, N: tl.constexpr):
    """First key, a multiple of N, and end of the keys that queries m0 .. m0 + M - 1 may attend to."""
    first = m0 * 0
    end = first + own[3]
    shift = own[3] - own[1]
    if x.left is not None:
        first = tl.maximum(m0 + shift - x.left, 0) // N * N
    if x.right is not None:
        end = tl.minimum(end, tl.maximum(m0 + M + shift + x.right, own[4]))
    return first, end


@triton.jit
def queries_of(x, own, n0, M: tl.constexpr, N: tl.constexpr):
    """First query, a multiple of M, and end of the queries that may attend to keys n0 .. n0 + N - 1."""
    first = n0 * 0
    end = first + own[1]
    shift = own[3] - own[1]
    if x.right is not None:
        first = tl.maximum(n0 - shift - x.right, 0) // M * M
        first = tl.where(n0 < own[4], 0, first)
    if x.left is not None:
        end = tl.minimum(end, tl.maximum(n0 + N - shift + x.left, 0))
    return first, end


@triton.jit
def allows_all(x, own, m0, n0, M: tl.constexpr, N: tl.constexpr):
    """Whether every query of the tile may certainly attend to all its keys, decided without reading a mask."""
    whole = (m0 + M <= own[1]) & (n0 + N <= own[3])
    if x.mask is not None:
        whole = whole & False
    shift = own[3] - own[1]
    if x.left is not None:
        whole = whole & (n0 - (m0 + M - 1 + shift) >= -x.left)
    if x.right is not None:
        whole = whole & ((n0 + N - 1 - (m0 + shift) <= x.right) | (n0 + N <= own[4]))
    return whole


@triton.jit
def allowed_keys(x, own, b, h, m0, n0, M: tl.constexpr, N: tl.constexpr):
    """[M, N]: whether a query may attend to a key."""
    m = m0 + tl.arange(0, M)[:, None]
    n = n0 + tl.arange(0, N)[None, :]
    allowed = (m < own[1]) & (n < own[3])
    ahead = n - (m + own[3] - own[1])
    if x.left is not None:
        allowed = allowed & (ahead >= -x.left)
    if x.right is not None:
        allowed = allowed & ((ahead <= x.right) | (n < own[4]))
    if x.mask is not None:
        at = x.mask.data + b * x.mask.stride_b + tl.cast(h, tl.int64) * x.mask.stride_h
        at += tl.cast(own[0] + m, tl.int64) * x.mask.stride_t + tl.cast(own[2] + n, tl.int64) * x.mask.stride_s
        allowed = allowed & (tl.load(at, mask=allowed, other=0) != 0)
    return allowed


# ---- loads ----


@triton.jit
def load_vectors(rows, b, h, begin, first, end, COUNT: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """[COUNT, PADDED]: vectors `first` .. of the sequence that begins at token `begin`; 0 from `end` on."""
    i = tl.arange(0, COUNT)[:, None]
    d = tl.arange(0, PADDED)[None, :]
    at = rows.pointer + b * rows.stride_b + tl.cast(h, tl.int64) * rows.stride_h
    at += tl.cast(begin + first, tl.int64) * rows.stride_t
    inside = first + i < end
    if WIDTH != PADDED:
        inside = inside & (d < WIDTH)
    return tl.load(at + i * rows.stride_t + d, mask=inside, other=0)


@triton.jit
def store_vectors(rows, values, b, h, begin, first, end, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.arange(0, COUNT)[:, None]
    d = tl.arange(0, values.shape[1])[None, :]
    at = rows.pointer + b * rows.stride_b + tl.cast(h, tl.int64) * rows.stride_h
    at += tl.cast(begin + first, tl.int64) * rows.stride_t
    tl.store(at + i * rows.stride_t + d, values.to(rows.pointer.dtype.element_ty), mask=(first + i < end) & (d < WIDTH))


@triton.jit
def load_by_token(data, b, h, heads, tokens, begin, first, end, other, COUNT: tl.constexpr):
    """[COUNT] of a contiguous [B, heads, tokens] tensor."""
    i = tl.arange(0, COUNT)
    at = data + (b * heads + h) * tokens + tl.cast(begin + first, tl.int64)
    return tl.load(at + i, mask=first + i < end, other=other)


@triton.jit
def store_by_token(data, values, b, h, heads, tokens, begin, first, end, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    at = data + (b * heads + h) * tokens + tl.cast(begin + first, tl.int64)
    tl.store(at + i, values, mask=first + i < end)


# ---- rows by distance ----


@triton.jit
def clamped(row, last):
    return tl.minimum(tl.maximum(row, 0), last)


@triton.jit
def row_numbers(places, table, M: tl.constexpr, N: tl.constexpr):
    """[M, N] int32: the row of each distance of queries and keys."""
    rows = tl.zeros((M, N), tl.int32)
    if places[4]:
        start = tl.minimum(tl.maximum(places[2] - places[3] - table.lo, -MAX_START), MAX_START).to(tl.int32)
        rows = clamped(start + tl.arange(0, M)[:, None] - tl.arange(0, N)[None, :], table.last)
    else:
        distances = places[0][:, None] - places[1][None, :]
        rows = clamped(distances - table.lo, tl.cast(table.last, tl.int64)).to(tl.int32)
    return rows


@triton.jit
def column_of(values, j):
    """[M]: column j of [M, N]."""
    return tl.sum(tl.where(tl.arange(0, values.shape[1])[None, :] == j, values, 0.0), 1)


@triton.jit
def rows_of_column(places, j, table, SIGN: tl.constexpr):
    """[M]: rows of the distances between all rows of a tile and column j. SIGN: 1 if its rows are queries, else -1."""
    column = tl.sum(tl.where(tl.arange(0, places[1].shape[0]) == j, places[1], 0), 0)
    return clamped(SIGN * (places[0] - column) - table.lo, tl.cast(table.last, tl.int64))


@triton.jit
def load_table(table, h, rows, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """[rows, PADDED] float32."""
    d = tl.arange(0, PADDED)[None, :]
    at = table.rows + tl.cast(h, tl.int64) * table.stride_h + tl.cast(rows, tl.int64)[:, None] * WIDTH
    return tl.load(at + d, mask=d < WIDTH, other=0)


@triton.jit
def met_rows(places, table, M: tl.constexpr, N: tl.constexpr, SIGN: tl.constexpr):
    """[M + N]: rows of all distances of a regular tile; row w has the distances with i - j = w - N + 1 (SIGN 1) or
    j - i = w - M + 1 (SIGN -1), for row i and column j of the tile."""
    w = tl.arange(0, M + N)
    back: tl.constexpr = N - 1 if SIGN == 1 else M - 1
    first = SIGN * (places[2] - places[3]) - back
    return clamped(first + w - table.lo, tl.cast(table.last, tl.int64))


@triton.jit
def dot_rows(
    vectors, places, table, h,
    M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, SIGN: tl.constexpr,
):  # fmt: skip
    """[M, N] float32: the product of vector i, [M, PADDED], with the table's row of distance (i, j)."""
    product = tl.zeros((M, N), tl.float32)
    if places[4]:
        rows = load_table(table, h, met_rows(places, table, M, N, SIGN), WIDTH, PADDED)
        products = tl.dot(vectors, tl.trans(rows.to(vectors.dtype)), input_precision="ieee")
        i = tl.arange(0, M)[:, None]
        j = tl.arange(0, N)[None, :]
        diagonal = i - j + N - 1 if SIGN == 1 else j - i + M - 1
        product = tl.gather(products, diagonal, 1)
    else:
        for column in range(N):
            rows = load_table(table, h, rows_of_column(places, column, table, SIGN), WIDTH, PADDED)
            dots = tl.sum(vectors.to(tl.float32) * rows, 1)
            product = tl.where(tl.arange(0, N)[None, :] == column, dots[:, None], product)
    return product


@triton.jit
def by_diagonals(weights, M: tl.constexpr, N: tl.constexpr, SIGN: tl.constexpr):
    """[M, M + N]: weight (i, j) of a regular tile in the column that `met_rows` gives its distance."""
    i = tl.arange(0, M)[:, None]
    w = tl.arange(0, M + N)[None, :]
    j = i - w + N - 1
    if SIGN == -1:
        j = w + i - M + 1
    inside = (j >= 0) & (j < N)
    return tl.where(inside, tl.gather(weights, tl.where(inside, j, 0), 1), 0.0)


@triton.jit
def sum_rows(
    weights, places, table, h,
    M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, SIGN: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """[M, PADDED] float32: the sum over j of weight (i, j), [M, N], times the table's row of distance (i, j)."""
    total = tl.zeros((M, PADDED), tl.float32)
    if places[4]:
        rows = load_table(table, h, met_rows(places, table, M, N, SIGN), WIDTH, PADDED)
        spread = by_diagonals(weights, M, N, SIGN)
        total = tl.dot(spread.to(DTYPE), rows.to(DTYPE), input_precision="ieee")
    else:
        for j in range(N):
            rows = load_table(table, h, rows_of_column(places, j, table, SIGN), WIDTH, PADDED)
            total += column_of(weights, j)[:, None] * rows
    return total


@triton.jit
def spread_by_row(
    weights, places, table, first,
    M: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, SIGN: tl.constexpr,
):  # fmt: skip
    """[M, ROWS]: the sum of the weights (i, j), [M, N], whose distance has row first + w, for each i and w."""
    spread = tl.zeros((M, ROWS), tl.float32)
    row = (first + tl.arange(0, ROWS))[None, :]
    if places[4]:
        start = places[2] - places[3]
        j = start + tl.arange(0, M)[:, None] - SIGN * (row + table.lo)
        inside = (j >= 0) & (j < N) & (row > 0) & (row < table.last)
        spread = tl.where(inside, tl.gather(weights, tl.where(inside, j, 0).to(tl.int32), 1), 0.0)
        # The first row and the last one have all distances that are beyond them, too.
        distance = SIGN * (places[0][:, None] - places[1][None, :]) - table.lo
        if first == 0:
            below = tl.sum(tl.where((distance <= 0) | (table.last == 0), weights, 0.0), 1)
            spread += tl.where(row == 0, below[:, None], 0.0)
        if (first + ROWS > table.last) & (table.last > 0):
            above = tl.sum(tl.where(distance >= table.last, weights, 0.0), 1)
            spread += tl.where(row == table.last, above[:, None], 0.0)
    else:
        for column in range(N):
            here = rows_of_column(places, column, table, SIGN)[:, None] == row
            spread += tl.where(here, column_of(weights, column)[:, None], 0.0)
    return spread


@triton.jit
def by_column(
    weights, vectors, others, places, table, first,
    M: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """[ROWS, PADDED] float32: the sum of weights_ij vectors_id others_jd over the (i, j) whose distance has the row."""
    total = tl.zeros((ROWS, vectors.shape[1]), tl.float32)
    row = (first + tl.arange(0, ROWS))[None, :]
    for column in range(N):
        here = rows_of_column(places, column, table, 1)[:, None] == row
        spread = tl.where(here, column_of(weights, column)[:, None], 0.0)
        other = column_of(tl.trans(others.to(tl.float32)), column)
        total += tl.dot(tl.trans(spread), vectors.to(tl.float32), input_precision="ieee") * other[None, :]
    return total


@triton.jit
def load_numbers(table, h, places, M: tl.constexpr, N: tl.constexpr):
    """[M, N]: the number of each distance of queries and keys, in a table of width 1."""
    return tl.load(table.rows + tl.cast(h, tl.int64) * table.stride_h + row_numbers(places, table, M, N))


@triton.jit
def gated_products(
    vectors, others, places, table, h,
    M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """[M, N] float32: sum_d vectors_id G[r]_d others_jd for a gate of width D."""
    product = tl.zeros((M, N), tl.float32)
    for j in range(N):
        rows = load_table(table, h, rows_of_column(places, j, table, 1), WIDTH, PADDED)
        other = column_of(tl.trans(others.to(tl.float32)), j)
        column = tl.sum(vectors.to(tl.float32) * rows * other[None, :], 1)
        product = tl.where(tl.arange(0, N)[None, :] == j, column[:, None], product)
    return product


@triton.jit
def gated_sums(
    weights, others, places, table, h,
    M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, SIGN: tl.constexpr,
):  # fmt: skip
    """[M, PADDED] float32: sum_j weights_ij G[r]_d others_jd for a gate of width D."""
    total = tl.zeros((M, PADDED), tl.float32)
    for j in range(N):
        rows = load_table(table, h, rows_of_column(places, j, table, SIGN), WIDTH, PADDED)
        other = column_of(tl.trans(others.to(tl.float32)), j)
        total += column_of(weights, j)[:, None] * rows * other[None, :]
    return total


# ---- scores ----


@triton.jit
def places_of(x, own, b, m0, n0, M: tl.constexpr, N: tl.constexpr):
    """The positions of a tile's queries and keys; nothing is read if no term depends on them."""
    if x.query_positions is None:
        return 0, 0, 0, 0, False
    else:
        i = tl.arange(0, M)
        j = tl.arange(0, N)
        queries = x.query_positions + b * x.query_positions_b + own[0]
        keys = x.key_positions + b * x.key_positions_b + own[2]
        start_m = tl.load(queries + m0, mask=m0 < own[1], other=0)
        start_n = tl.load(keys + n0, mask=n0 < own[3], other=0)
        of_queries = start_m + i
        of_keys = start_n + j
        regular = own[7]
        if not regular:
            # Tokens beyond the end continue the first one's position, so they do not make a tile irregular.
            of_queries = tl.load(queries + m0 + i, mask=m0 + i < own[1], other=0)
            of_queries = tl.where(m0 + i < own[1], of_queries, start_m + i)
            of_keys = tl.load(keys + n0 + j, mask=n0 + j < own[3], other=0)
            of_keys = tl.where(n0 + j < own[3], of_keys, start_n + j)
            others = tl.sum((of_queries != start_m + i).to(tl.int32), 0) + tl.sum(
                (of_keys != start_n + j).to(tl.int32), 0
            )
            regular = others == 0
        return of_queries, of_keys, start_m, start_n, regular


@triton.jit
def swapped(places):
    """The places of the transposed tile."""
    return places[1], places[0], places[3], places[2], places[4]


@triton.jit
def are_reset(x, places, M: tl.constexpr, N: tl.constexpr):
    """[M, N]: whether `reset_row` or `reset_col` replaces the position's score."""
    reset = tl.zeros((M, N), tl.int1)
    if x.reset_row is not None:
        reset = reset | (places[0][:, None] == 0)
    if x.reset_col is not None:
        reset = reset | (places[1][None, :] == 0)
    return reset


@triton.jit
def position_scores(x, own, b, h, m0, n0, places,
                    M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # fmt: skip
    """[M, N]: pos(m,n)."""
    score = tl.zeros((M, N), tl.float32)
    if x.pair_q is not None:
        a = load_vectors(x.pair_q, b, h, own[0], m0, own[1], M, WIDTH, PADDED)
        c = load_vectors(x.pair_k, b, h, own[2], n0, own[3], N, WIDTH, PADDED)
        score += x.scale * tl.dot(a, tl.trans(c), input_precision="ieee")
    if x.bias is not None:
        score += load_numbers(x.bias, h, places, M, N)
    if x.reset_col is not None:
        score = tl.where(places[1][None, :] == 0, tl.load(x.reset_col + h), score)
    if x.reset_row is not None:
        score = tl.where(places[0][:, None] == 0, tl.load(x.reset_row + h), score)
    return score


@triton.jit
def added_scores(scores, own, b, h, m0, n0, M: tl.constexpr, N: tl.constexpr):
    """[M, N], or [1, N] for scores by key: kappa or P."""
    m = m0 + tl.arange(0, M)[:, None]
    n = n0 + tl.arange(0, N)[None, :]
    at = scores.data + b * scores.stride_b + tl.cast(h, tl.int64) * scores.stride_h
    at += tl.cast(own[0] + m, tl.int64) * scores.stride_t + tl.cast(own[2] + n, tl.int64) * scores.stride_s
    return tl.load(at, mask=(m < own[1]) & (n < own[3]), other=0)


@triton.jit
def products(x, own, h, q, k, places,
             M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # fmt: skip
    """[M, N]: q G[r] . k, before the scale."""
    if x.wide_gate is not None:
        return gated_products(q, k, places, x.wide_gate, h, M, N, WIDTH, PADDED)
    else:
        product = tl.dot(q, tl.trans(k), input_precision="ieee")
        if x.gate is not None:
            product *= load_numbers(x.gate, h, places, M, N)
        return product


@triton.jit
def tile_scores(x, own, b, h, m0, n0, q, k, places,
                M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # fmt: skip
    """[M, N] float32: scores times log2(e), without the window and the mask."""
    score = products(x, own, h, q, k, places, M, N, WIDTH, PADDED)
    if x.key_table is not None:
        vectors = load_vectors(x.position_q, b, h, own[0], m0, own[1], M, WIDTH, PADDED)
        score += dot_rows(vectors, places, x.key_table, h, M, N, WIDTH, PADDED, 1)
    if x.query_table is not None:
        vectors = load_vectors(x.position_k, b, h // x.group, own[2], n0, own[3], N, WIDTH, PADDED)
        score += tl.trans(dot_rows(vectors, swapped(places), x.query_table, h, N, M, WIDTH, PADDED, -1))
    score *= x.scale * LOG2_E
    score += LOG2_E * position_scores(x, own, b, h, m0, n0, places, M, N, WIDTH, PADDED)
    if x.key_score is not None:
        score += LOG2_E * added_scores(x.key_score, own, b, h, m0, n0, M, N)
    if x.pair_bias is not None:
        score += LOG2_E * added_scores(x.pair_bias, own, b, h, m0, n0, M, N)
    return score


# ---- dropout ----


@triton.jit
def kept(x, own, b, h, m0, n0, dropout_seed, dropout_stream, M: tl.constexpr, N: tl.constexpr):
    """[M, N]: which probabilities dropout keeps, with the bits of `core/include/rf/dropout.h`."""
    m = tl.cast(m0 + tl.arange(0, M), tl.int64)[:, None]
    before = b * x.heads * x.queries * x.keys
    if x.sequences is not None:
        before = tl.load(x.sequences.dropout + own[5])
    first = before + (tl.cast(h, tl.int64) * own[1] + m) * own[3] + n0
    seed = tl.cast(dropout_seed, tl.int64)
    stream = tl.cast(dropout_stream, tl.int64)
    if x.even is not None:
        draws = (first >> 3) + tl.arange(0, N // 8)[None, :]
        numbers = dropout_numbers(seed, stream, draws.reshape(M * (N // 8))).reshape(M, N)
    else:
        element = first + tl.arange(0, N)[None, :]
        word0, word1, word2, word3 = dropout_words(seed, stream, element >> 3)
        which = (element & 7).to(tl.int32)
        word = tl.where(which < 4, tl.where(which < 2, word0, word1), tl.where(which < 6, word2, word3))
        numbers = tl.where((which & 1) == 0, word & 0xFFFF, word >> 16)
    return numbers.to(tl.int32) >= x.threshold
