"""The kernels of linear attention (linear_attention.py has the equation).

The forward and dv multiply features with a sum, and dq and dk values with a sum, so three kernels compute everything:
``chunk_sums_kernel`` the sums of chunks of tokens, ``values_kernel`` the products with features, and
``feature_gradients_kernel`` the products with values; ``scan_kernel`` adds the chunks in order. In causal calls a token
reads the sum of the chunks before it (S) or after it (P), and multiplies the pairs within its chunk. Memory is linear
in the number of tokens: a sum for each chunk. The kernels do not use atomic operations, so results have the same bits
in every run.
"""

import triton
import triton.language as tl

from . import linear_attention_tiles as linear
from . import tiles as tile


@triton.jit
def chunk_sums_kernel(x, y, chunks, exponents, sums, spec, X_IS_KEY: tl.constexpr):
    """sums[chunk, key head]: sum of (R f) w^T ``[F, Dv]``, then the sum of the denominators' features ``[F]``."""
    chunk = tl.program_id(0)
    key_head = tl.program_id(1)
    value_blocks: tl.constexpr = (spec.value_dim + spec.block_values - 1) // spec.block_values
    value_block = tl.program_id(2) % value_blocks
    first_column = tl.program_id(2) // value_blocks * spec.block_features
    columns = first_column + tl.arange(0, spec.block_features)
    value_columns = value_block * spec.block_values + tl.arange(0, spec.block_values)
    place = linear.locate(chunk, x, y, chunks, spec)
    _, entry, first, count, _, _, length, begin, end = place
    if begin >= length:
        return
    matrix = tl.zeros([spec.block_features, spec.block_values], spec.real)
    vector = tl.zeros([spec.block_features], spec.real)
    for start in range(begin, end, spec.tile):
        coordinates = start + tl.arange(0, spec.tile)
        tokens, valid = linear.tokens_at(x, entry, first, count, length, coordinates)
        for i in range(0, x.group):
            head = key_head * x.group + i
            rotated, plain = linear.load_features(x, spec, entry, head, tokens, valid, first_column, columns)
            values = linear.load_values(x, spec, entry, head, tokens, valid, value_columns)
            weight = linear.load_numbers(x.weight, x, spec, entry, head, tokens, valid)
            if exponents.pointer is not None:
                decay = linear.border_decay(exponents, place, key_head, coordinates, X_IS_KEY)
                rotated *= decay[:, None]
                weight *= decay
            matrix = linear.add_product(tl.trans(rotated), values, matrix, spec)
            vector += tl.sum(plain * weight[:, None], 0)
    to = linear.sums_at(sums, chunk, key_head, tl.num_programs(1), spec)
    mask = columns < spec.features
    at = columns[:, None] * spec.value_dim + value_columns[None, :]
    tl.store(to + at, matrix, mask=mask[:, None] & (value_columns < spec.value_dim)[None, :])
    if value_block == 0:
        tl.store(to + spec.features * spec.value_dim + columns, vector, mask=mask)


@triton.jit
def scan_kernel(
    x, y, chunks, exponents, sums, totals, state, state_after, spec, X_IS_KEY: tl.constexpr, BLOCK: tl.constexpr
):
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
        carry = tl.load(
            linear.sums_at(state, sequence, key_head, tl.num_programs(1), spec) + of_state, mask=mask, other=0.0
        )
    for i in tl.range(0, count, num_stages=4):
        chunk = first + (i if X_IS_KEY else count - 1 - i)
        at = linear.sums_at(sums, chunk, key_head, tl.num_programs(1), spec) + columns
        own = tl.load(at, mask=mask, other=0.0).to(tl.float64)
        if spec.causal:
            tl.store(at, carry.to(spec.real), mask=mask)
        if exponents.pointer is not None:
            place = linear.locate(chunk, x, y, chunks, spec)
            _, _, _, _, _, _, _, begin, end = place
            before = linear.load_exponents(exponents, place, key_head, begin - 1, X_IS_KEY)
            behind = linear.load_exponents(exponents, place, key_head, end - 1, X_IS_KEY)
            carry *= linear.decay_of(before, behind)
        carry += own
    if totals is not None:
        to = linear.sums_at(totals, sequence, key_head, tl.num_programs(1), spec) + columns
        tl.store(to, carry.to(spec.real), mask=mask)
    if state_after is not None:
        tl.store(linear.sums_at(state_after, sequence, key_head, tl.num_programs(1), spec) + of_state, carry, mask=mask)


@triton.jit
def values_kernel(x, y, chunks, exponents, sums, out, denominators, spec, X_IS_KEY: tl.constexpr):
    """R f times the sums that x's chunk reads, plus the pairs in the chunk; divided by denominators, if they are not
    None, which are written."""
    chunk = tl.program_id(0) // spec.tiles
    head = tl.program_id(1)
    key_head = head // x.group
    value_columns = tl.program_id(2) * spec.block_values + tl.arange(0, spec.block_values)
    place = linear.locate(chunk, x, y, chunks, spec)
    sequence, entry, x_first, x_count, y_first, y_count, length, begin, end = place
    start = begin + tl.program_id(0) % spec.tiles * spec.tile
    if start >= length:
        return
    coordinates = start + tl.arange(0, spec.tile)
    tokens, valid = linear.tokens_at(x, entry, x_first, x_count, length, coordinates)
    own_sums = linear.sums_at(sums, chunk if spec.causal else sequence, key_head, tl.num_programs(1) // x.group, spec)
    total = tl.zeros([spec.tile, spec.block_values], spec.real)
    denominator = tl.zeros([spec.tile], spec.real)
    for first_column in range(0, spec.features, spec.block_features):
        columns = first_column + tl.arange(0, spec.block_features)
        rotated, plain = linear.load_features(x, spec, entry, head, tokens, valid, first_column, columns)
        total = linear.add_product(rotated, linear.load_matrix(own_sums, spec, columns, value_columns), total, spec)
        if denominators is not None:
            denominator += tl.sum(plain * linear.load_vector(own_sums, spec, columns)[None, :], 1)
    if spec.causal:
        if exponents.pointer is not None:
            decay = linear.border_decay(exponents, place, key_head, coordinates, X_IS_KEY)
            total *= decay[:, None]
            denominator *= decay
        for y_start in range(start if X_IS_KEY else begin, end if X_IS_KEY else start + spec.tile, spec.tile):
            y_coordinates = y_start + tl.arange(0, spec.tile)
            y_tokens, y_valid = linear.tokens_at(y, entry, y_first, y_count, length, y_coordinates)
            factors = linear.pair_factors(exponents, place, key_head, coordinates, y_coordinates, spec, X_IS_KEY)
            for i in range(0, y.group):
                y_head = key_head * y.group + i
                weights = tl.zeros([spec.tile, spec.tile], spec.real)
                under = tl.zeros([spec.tile, spec.tile], spec.real)
                for first_column in range(0, spec.features, spec.block_features):
                    columns = first_column + tl.arange(0, spec.block_features)
                    rotated, plain = linear.load_features(x, spec, entry, head, tokens, valid, first_column, columns)
                    y_rotated, y_plain = linear.load_features(
                        y, spec, entry, y_head, y_tokens, y_valid, first_column, columns
                    )
                    weights = linear.add_product(rotated, tl.trans(y_rotated), weights, spec)
                    if spec.separate and denominators is not None:
                        under = linear.add_product(plain, tl.trans(y_plain), under, spec)
                weights *= factors
                values = linear.load_values(y, spec, entry, y_head, y_tokens, y_valid, value_columns)
                total = linear.add_product(weights, values, total, spec)
                if denominators is not None:
                    denominator += tl.sum(under * factors if spec.separate else weights, 1)
    exists = linear.existing(x_count, length, coordinates)
    if denominators is not None:
        denominator += spec.eps
        is_zero = denominator == 0
        total = tl.where(is_zero[:, None], 0.0, total / tl.where(is_zero, 1.0, denominator)[:, None])
        if tl.program_id(2) == 0:
            tl.store(denominators + (entry * x.heads + head) * x.tokens + tokens, denominator, mask=exists)
    tile.store_rows(out, entry, head, tokens, exists, value_columns, spec.value_dim, total)


@triton.jit
def _gradient_columns(
    x, y, exponents, sums, spec, place, head, key_head, coordinates, first_column, columns, X_IS_KEY: tl.constexpr
):
    """Columns of the gradients of R f and, from the denominators, of f; both of R f if they have the same features."""
    _, entry, x_first, x_count, y_first, y_count, length, begin, end = place
    tokens, valid = linear.tokens_at(x, entry, x_first, x_count, length, coordinates)
    weight = linear.load_numbers(x.weight, x, spec, entry, head, tokens, valid)
    rotated = tl.zeros([spec.tile, spec.block_features], spec.real)
    for first in range(0, spec.value_dim, spec.block_values):
        value_columns = first + tl.arange(0, spec.block_values)
        values = linear.load_values(x, spec, entry, head, tokens, valid, value_columns)
        matrix = linear.load_matrix(sums, spec, columns, value_columns)
        rotated = linear.add_product(values, tl.trans(matrix), rotated, spec)
    plain = weight[:, None] * linear.load_vector(sums, spec, columns)[None, :]
    if spec.causal:
        if exponents.pointer is not None:
            decay = linear.border_decay(exponents, place, key_head, coordinates, X_IS_KEY)[:, None]
            rotated *= decay
            plain *= decay
        start = tl.min(coordinates, 0)
        for y_start in range(start if X_IS_KEY else begin, end if X_IS_KEY else start + spec.tile, spec.tile):
            y_coordinates = y_start + tl.arange(0, spec.tile)
            y_tokens, y_valid = linear.tokens_at(y, entry, y_first, y_count, length, y_coordinates)
            factors = linear.pair_factors(exponents, place, key_head, coordinates, y_coordinates, spec, X_IS_KEY)
            for i in range(0, y.group):
                y_head = key_head * y.group + i
                weights = tl.zeros([spec.tile, spec.tile], spec.real)
                for first in range(0, spec.value_dim, spec.block_values):
                    value_columns = first + tl.arange(0, spec.block_values)
                    values = linear.load_values(x, spec, entry, head, tokens, valid, value_columns)
                    y_values = linear.load_values(y, spec, entry, y_head, y_tokens, y_valid, value_columns)
                    weights = linear.add_product(values, tl.trans(y_values), weights, spec)
                y_weight = linear.load_numbers(y.weight, y, spec, entry, y_head, y_tokens, y_valid)
                under = weight[:, None] * y_weight[None, :]
                y_rotated, y_plain = linear.load_features(
                    y, spec, entry, y_head, y_tokens, y_valid, first_column, columns
                )
                if spec.separate:
                    rotated = linear.add_product(weights * factors, y_rotated, rotated, spec)
                    plain = linear.add_product(under * factors, y_plain, plain, spec)
                else:
                    rotated = linear.add_product((weights + under) * factors, y_rotated, rotated, spec)
    return rotated, plain


@triton.jit
def feature_gradients_kernel(x, y, chunks, exponents, sums, gradients, spec, X_IS_KEY: tl.constexpr):
    """The gradient of q or k: values times the sums that x's chunk reads, plus the pairs in the chunk, rotated back."""
    chunk = tl.program_id(0) // spec.tiles
    head = tl.program_id(1)
    key_head = head // x.group
    first_column = tl.program_id(2) * spec.block_features
    columns = first_column + tl.arange(0, spec.block_features)
    place = linear.locate(chunk, x, y, chunks, spec)
    sequence, entry, first, count, _, _, length, begin, _ = place
    start = begin + tl.program_id(0) % spec.tiles * spec.tile
    if start >= length:
        return
    coordinates = start + tl.arange(0, spec.tile)
    tokens, valid = linear.tokens_at(x, entry, first, count, length, coordinates)
    own_sums = linear.sums_at(sums, chunk if spec.causal else sequence, key_head, tl.num_programs(1) // x.group, spec)
    gradient, plain = _gradient_columns(
        x, y, exponents, own_sums, spec, place, head, key_head, coordinates, first_column, columns, X_IS_KEY
    )
    if x.rotation.cos is None:
        gradient += plain
    else:
        if spec.rotated_denominator:
            gradient += plain
        if spec.pairs:
            partner = tile.swap_pairs(gradient)
        else:
            partners = tile.pair_partners(columns, x.rotation.pairs)
            partner, partner_plain = _gradient_columns(
                x, y, exponents, own_sums, spec, place, head, key_head, coordinates, first_column, partners, X_IS_KEY
            )
            if spec.rotated_denominator:
                partner += partner_plain
        cos, sin = linear.load_rotation(x, spec, entry, tokens, valid, first_column, columns)
        gradient = cos * gradient - sin * partner
        if not spec.rotated_denominator:
            gradient += plain
    given = tile.load_rows(x.features, entry, head, tokens, valid, columns, spec.features).to(spec.real)
    gradient = linear.times_slope(gradient, given, spec.feature_map)
    exists = linear.existing(count, length, coordinates)
    tile.store_rows(gradients, entry, head, tokens, exists, columns, spec.features, gradient)


@triton.jit
def output_gradients_kernel(y, out, denominators, inverses, weights, tokens, spec):
    """1 / d and c = -(y . out) / d of queries, both 0 where d is 0."""
    tiles = tl.cdiv(tokens, spec.tile)
    entry = (tl.program_id(0) // tiles).to(tl.int64)
    head = tl.program_id(1)
    rows = (tl.program_id(0) % tiles * spec.tile + tl.arange(0, spec.tile)).to(tl.int64)
    exists = rows < tokens
    product = tl.zeros([spec.tile], spec.real)
    for first in range(0, spec.value_dim, spec.block_values):
        columns = first + tl.arange(0, spec.block_values)
        gradient = tile.load_rows(y, entry, head, rows, exists, columns, spec.value_dim).to(spec.real)
        product += tl.sum(gradient * tile.load_rows(out, entry, head, rows, exists, columns, spec.value_dim), 1)
    at = (entry * tl.num_programs(1) + head) * tokens + rows
    denominator = tl.load(denominators + at, mask=exists, other=0.0)
    is_zero = denominator == 0
    inverse = tl.where(is_zero, 0.0, 1 / tl.where(is_zero, 1.0, denominator))
    tl.store(inverses + at, inverse, mask=exists)
    tl.store(weights + at, -inverse * product, mask=exists)
