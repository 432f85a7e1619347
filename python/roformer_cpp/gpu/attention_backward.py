"""Gradients of attention over terms on a GPU: `roformer::attention_kernel_backward` in Triton.

As in FlashAttention-2 (arXiv 2307.08691), one kernel sums over queries for a block of keys, one over keys for a block
of queries, and both compute the probabilities again from log_sum. A third sums over all tiles for a block of rows by
distance. No kernel adds to memory that another one writes, so the bits are the same in every run.
"""

import torch
import triton
import triton.language as tl

from . import attention_tiles as tile
from .attention_call import INPUTS, TABLES, Call, launch_fitting, sum_to
from .launch import checked_results
from .tiles import padded, rows_of

INFINITY = tl.constexpr(float("inf"))
# Enough programs for any GPU; fixed, so that sums have the same order on every GPU.
TABLE_PROGRAMS = 1024


@triton.jit
def dot_kernel(a, b_vectors, result, tokens, heads, M: tl.constexpr, E: tl.constexpr, PADDED_E: tl.constexpr):
    """result [B,H,T] = the product of the vectors of a and b, [B,T,H,E]."""
    b = tl.program_id(2).to(tl.int64)
    h = tl.program_id(1)
    m0 = tl.program_id(0) * M
    x = tile.load_vectors(a, b, h, 0, m0, tokens, M, E, PADDED_E).to(tl.float32)
    y = tile.load_vectors(b_vectors, b, h, 0, m0, tokens, M, E, PADDED_E).to(tl.float32)
    tile.store_by_token(result, tl.sum(x * y, 1), b, h, heads, tokens, 0, m0, tokens, M)


@triton.jit
def tile_gradients(
    x, own, b, h, m0, n0, q, k, v, grad, log_sum, delta, places, dropout_seed, dropout_stream,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, E: tl.constexpr, PADDED_E: tl.constexpr,
):  # fmt: skip
    """[M, N] float32: weights of the values after dropout, and gradients of scores; [N]: keys that are attended to.

    With y the gradient of out: dP = keep / (1 - p) y . (v + V[r]), dscore = P (dP - delta), delta = y . out.
    """
    score = tile.tile_scores(x, own, b, h, m0, n0, q, k, places, M, N, D, PADDED_D)
    attended = tl.full((N,), True, tl.int1)
    inside = tile.allows_all(x, own, m0, n0, M, N)
    if not inside:
        allowed = tile.allowed_keys(x, own, b, h, m0, n0, M, N)
        score = tl.where(allowed, score, tile.MINUS_INFINITY)
        attended = tl.max(allowed.to(tl.int32), 0) > 0
    level = tile.load_by_token(log_sum, b, h, x.heads, x.queries, own[0], m0, own[1], INFINITY, M)
    level = tl.where(level == tile.MINUS_INFINITY, INFINITY, level * tile.LOG2_E)
    weights = tl.exp2(score - level[:, None])
    gradient = tl.dot(grad, tl.trans(v), input_precision="ieee")
    if x.value_table is not None:
        gradient += tile.dot_rows(grad, places, x.value_table, h, M, N, E, PADDED_E, 1)
    dropped = weights
    if x.threshold is not None:
        keep = tile.kept(x, own, b, h, m0, n0, dropout_seed, dropout_stream, M, N)
        scale = 65536.0 / (65536.0 - x.threshold)
        gradient = tl.where(keep, gradient * scale, 0.0)
        dropped = tl.where(keep, weights * scale, 0.0)
    mean = tile.load_by_token(delta, b, h, x.heads, x.queries, own[0], m0, own[1], 0.0, M)
    gradient = weights * (gradient - mean[:, None])
    if not inside:
        gradient = tl.where(weights > 0, gradient, 0.0)  # values of keys that no query attends to may be anything
    return dropped, gradient, attended


@triton.jit
def without_resets(x, gradient, places, M: tl.constexpr, N: tl.constexpr):
    """The gradients of scores that `reset_row` and `reset_col` do not replace."""
    if x.reset_row is not None or x.reset_col is not None:
        return tl.where(tile.are_reset(x, places, M, N), 0.0, gradient)
    else:
        return gradient


@triton.jit(do_not_specialize=["dropout_seed", "dropout_stream"])
def keys_kernel(
    x, grad_out, log_sum, delta, dk, dv, dposition_k, dpair_k, key_sums, column_sums,
    dropout_seed: tl.int64, dropout_stream: tl.int64,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, E: tl.constexpr, PADDED_E: tl.constexpr,
):  # fmt: skip
    """Gradients of N keys and values of a key head. key_sums and column_sums [B,H,S]: sums of the scores' gradients
    over the queries; column_sums leaves out the scores that `reset_row` replaces."""
    b = tl.program_id(2).to(tl.int64)
    key_head = tl.program_id(1)
    own = tile.sequence_of(x, b, tl.program_id(0), True)
    n0 = own[6] * N
    if n0 < own[3]:
        k = tile.load_vectors(x.k, b, key_head, own[2], n0, own[3], N, D, PADDED_D)
        v = tile.load_vectors(x.v, b, key_head, own[2], n0, own[3], N, E, PADDED_E)
        of_k = tl.zeros((N, PADDED_D), tl.float32)
        of_v = tl.zeros((N, PADDED_E), tl.float32)
        of_position = tl.zeros((N, PADDED_D), tl.float32)
        first, end = tile.queries_of(x, own, n0, M, N)
        for member in range(x.group):
            h = key_head * x.group + member
            of_pair = tl.zeros((N, PADDED_D), tl.float32)
            of_keys_scores = tl.zeros((N,), tl.float32)
            of_columns = tl.zeros((N,), tl.float32)
            for m0 in range(first, end, M):
                q = tile.load_vectors(x.q, b, h, own[0], m0, own[1], M, D, PADDED_D)
                grad = tile.load_vectors(grad_out, b, h, own[0], m0, own[1], M, E, PADDED_E)
                places = tile.places_of(x, own, b, m0, n0, M, N)
                weights, gradient, _ = tile_gradients(
                    x, own, b, h, m0, n0, q, k, v, grad, log_sum, delta, places, dropout_seed, dropout_stream,
                    M, N, D, PADDED_D, E, PADDED_E,
                )  # fmt: skip
                by_key = tl.trans(gradient)
                of_v += tl.dot(tl.trans(weights).to(grad.dtype), grad, input_precision="ieee")
                if x.wide_gate is not None:
                    of_k += tile.gated_sums(by_key, q, tile.swapped(places), x.wide_gate, h, N, M, D, PADDED_D, -1)
                else:
                    through_gate = by_key
                    if x.gate is not None:
                        through_gate = by_key * tl.trans(tile.load_numbers(x.gate, h, places, M, N))
                    of_k += tl.dot(through_gate.to(q.dtype), q, input_precision="ieee")
                if x.query_table is not None:
                    of_position += tile.sum_rows(
                        by_key, tile.swapped(places), x.query_table, h, N, M, D, PADDED_D, -1, k.dtype
                    )
                if x.pair_k is not None:
                    a = tile.load_vectors(x.pair_q, b, h, own[0], m0, own[1], M, D, PADDED_D)
                    kept_scores = without_resets(x, gradient, places, M, N)
                    of_pair += tl.dot(tl.trans(kept_scores).to(a.dtype), a, input_precision="ieee")
                if key_sums is not None:
                    of_keys_scores += tl.sum(gradient, 0)
                if column_sums is not None:
                    if x.reset_row is not None:
                        of_columns += tl.sum(tl.where(places[0][:, None] == 0, 0.0, gradient), 0)
                    else:
                        of_columns += tl.sum(gradient, 0)
            if x.pair_k is not None:
                tile.store_vectors(dpair_k, of_pair * x.scale, b, h, own[2], n0, own[3], N, D)
            if key_sums is not None:
                tile.store_by_token(key_sums, of_keys_scores, b, h, x.heads, x.keys, own[2], n0, own[3], N)
            if column_sums is not None:
                tile.store_by_token(column_sums, of_columns, b, h, x.heads, x.keys, own[2], n0, own[3], N)
        tile.store_vectors(dk, of_k * x.scale, b, key_head, own[2], n0, own[3], N, D)
        tile.store_vectors(dv, of_v, b, key_head, own[2], n0, own[3], N, E)
        if x.query_table is not None:
            tile.store_vectors(dposition_k, of_position * x.scale, b, key_head, own[2], n0, own[3], N, D)


@triton.jit(do_not_specialize=["dropout_seed", "dropout_stream"])
def queries_kernel(
    x, grad_out, log_sum, delta, dq, dposition_q, dpair_q, dscores,
    dropout_seed: tl.int64, dropout_stream: tl.int64,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, E: tl.constexpr, PADDED_E: tl.constexpr,
):  # fmt: skip
    """Gradients of M queries of a head. dscores [B,H,T,S]: gradients of the scores, 0 before the call."""
    b = tl.program_id(2).to(tl.int64)
    h = tl.program_id(1)
    own = tile.sequence_of(x, b, tl.program_id(0), False)
    m0 = own[6] * M
    if m0 < own[1]:
        q = tile.load_vectors(x.q, b, h, own[0], m0, own[1], M, D, PADDED_D)
        grad = tile.load_vectors(grad_out, b, h, own[0], m0, own[1], M, E, PADDED_E)
        of_q = tl.zeros((M, PADDED_D), tl.float32)
        of_position = tl.zeros((M, PADDED_D), tl.float32)
        of_pair = tl.zeros((M, PADDED_D), tl.float32)
        first, end = tile.keys_of(x, own, m0, M, N)
        for n0 in range(first, end, N):
            k = tile.load_vectors(x.k, b, h // x.group, own[2], n0, own[3], N, D, PADDED_D)
            v = tile.load_vectors(x.v, b, h // x.group, own[2], n0, own[3], N, E, PADDED_E)
            places = tile.places_of(x, own, b, m0, n0, M, N)
            _, gradient, attended = tile_gradients(
                x, own, b, h, m0, n0, q, k, v, grad, log_sum, delta, places, dropout_seed, dropout_stream,
                M, N, D, PADDED_D, E, PADDED_E,
            )  # fmt: skip
            k = tl.where(attended[:, None], k, 0)
            if x.wide_gate is not None:
                of_q += tile.gated_sums(gradient, k, places, x.wide_gate, h, M, N, D, PADDED_D, 1)
            else:
                through_gate = gradient
                if x.gate is not None:
                    through_gate = gradient * tile.load_numbers(x.gate, h, places, M, N)
                of_q += tl.dot(through_gate.to(k.dtype), k, input_precision="ieee")
            if x.key_table is not None:
                of_position += tile.sum_rows(gradient, places, x.key_table, h, M, N, D, PADDED_D, 1, q.dtype)
            if x.pair_q is not None:
                c = tile.load_vectors(x.pair_k, b, h, own[2], n0, own[3], N, D, PADDED_D)
                kept_scores = without_resets(x, gradient, places, M, N)
                of_pair += tl.dot(kept_scores.to(c.dtype), c, input_precision="ieee")
            if dscores is not None:
                m = m0 + tl.arange(0, M)[:, None]
                n = n0 + tl.arange(0, N)[None, :]
                at = dscores + ((b * x.heads + h) * x.queries + own[0] + m) * x.keys + own[2] + n
                tl.store(at, gradient, mask=(m < own[1]) & (n < own[3]))
        tile.store_vectors(dq, of_q * x.scale, b, h, own[0], m0, own[1], M, D)
        if x.key_table is not None:
            tile.store_vectors(dposition_q, of_position * x.scale, b, h, own[0], m0, own[1], M, D)
        if x.pair_q is not None:
            tile.store_vectors(dpair_q, of_pair * x.scale, b, h, own[0], m0, own[1], M, D)


@triton.jit
def keys_of_rows(x, own, b, m0, table, row, first, end, M: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr):
    """The part of first .. end - 1 whose distances to queries m0 .. have a row in row .. row + ROWS - 1, where the
    positions of keys ascend by one."""
    of_queries = x.query_positions + b * x.query_positions_b + tl.cast(own[0] + m0, tl.int64)
    nearest = tl.load(of_queries) - tl.load(x.key_positions + b * x.key_positions_b + own[2])
    furthest = nearest + tl.minimum(M, own[1] - m0) - 1
    if row + ROWS <= table.last:
        low = tl.minimum(tl.maximum(nearest - (row + ROWS - 1) - table.lo, 0), x.keys).to(tl.int32)
        first = tl.maximum(first, low // N * N)
    if row > 0:
        high = tl.minimum(tl.maximum(furthest - row - table.lo + 1, 0), x.keys).to(tl.int32)
        end = tl.minimum(end, high)
    return first, end


@triton.jit(do_not_specialize=["dropout_seed", "dropout_stream"])
def tables_kernel(
    x, table, grad_out, log_sum, delta, result, jobs, jobs_of_chunk, blocks,
    dropout_seed: tl.int64, dropout_stream: tl.int64,
    OF: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, E: tl.constexpr, PADDED_E: tl.constexpr,
):  # fmt: skip
    """Sums over a chunk of all blocks of queries for ROWS rows by distance of a head, in the table named OF.

    result: [chunks, H, last + 1, WIDTH] float32. Where positions ascend by one, only the keys near the diagonals of the
    rows are read.
    """
    row = tl.program_id(0) * ROWS
    h = tl.program_id(1)
    chunk = tl.program_id(2)
    total = tl.zeros((ROWS, PADDED), tl.float32)
    for job in range(chunk * jobs_of_chunk, tl.minimum(jobs, (chunk + 1) * jobs_of_chunk)):
        b = (job // blocks).to(tl.int64)
        own = tile.sequence_of(x, b, job % blocks, False)
        m0 = own[6] * M
        if m0 < own[1]:
            q = tile.load_vectors(x.q, b, h, own[0], m0, own[1], M, D, PADDED_D)
            grad = tile.load_vectors(grad_out, b, h, own[0], m0, own[1], M, E, PADDED_E)
            first, end = tile.keys_of(x, own, m0, M, N)
            if own[7] & (own[3] > 0):
                first, end = keys_of_rows(x, own, b, m0, table, row, first, end, M, N, ROWS)
            for n0 in range(first, end, N):
                k = tile.load_vectors(x.k, b, h // x.group, own[2], n0, own[3], N, D, PADDED_D)
                v = tile.load_vectors(x.v, b, h // x.group, own[2], n0, own[3], N, E, PADDED_E)
                places = tile.places_of(x, own, b, m0, n0, M, N)
                weights, gradient, attended = tile_gradients(
                    x, own, b, h, m0, n0, q, k, v, grad, log_sum, delta, places, dropout_seed, dropout_stream,
                    M, N, D, PADDED_D, E, PADDED_E,
                )  # fmt: skip
                if OF == "key_table":
                    vectors = tile.load_vectors(x.position_q, b, h, own[0], m0, own[1], M, D, PADDED_D)
                    spread = tile.spread_by_row(gradient, places, table, row, M, N, ROWS, 1)
                    total += tl.dot(tl.trans(spread).to(vectors.dtype), vectors, input_precision="ieee")
                elif OF == "query_table":
                    vectors = tile.load_vectors(x.position_k, b, h // x.group, own[2], n0, own[3], N, D, PADDED_D)
                    vectors = tl.where(attended[:, None], vectors, 0)
                    by_key = tl.trans(gradient)
                    spread = tile.spread_by_row(by_key, tile.swapped(places), table, row, N, M, ROWS, -1)
                    total += tl.dot(tl.trans(spread).to(vectors.dtype), vectors, input_precision="ieee")
                elif OF == "value_table":
                    spread = tile.spread_by_row(weights, places, table, row, M, N, ROWS, 1)
                    total += tl.dot(tl.trans(spread).to(grad.dtype), grad, input_precision="ieee")
                elif OF == "wide_gate":
                    clean = tl.where(attended[:, None], k, 0)
                    total += tile.by_column(gradient, q, clean, places, table, row, M, N, ROWS)
                else:
                    if OF == "gate":
                        clean = tl.where(attended[:, None], k, 0)
                        gradient *= tl.dot(q, tl.trans(clean), input_precision="ieee")
                    else:
                        gradient = without_resets(x, gradient, places, M, N)
                    spread = tile.spread_by_row(gradient, places, table, row, M, N, ROWS, 1)
                    total += tl.sum(spread, 0)[:, None]
    if OF != "value_table" and OF != "bias":
        total *= x.scale
    r = row + tl.arange(0, ROWS)[:, None]
    e = tl.arange(0, PADDED)[None, :]
    at = result + ((chunk.to(tl.int64) * x.heads + h) * (table.last + 1) + r) * WIDTH + e
    tl.store(at, total, mask=(r <= table.last) & (e < WIDTH))


def like(x):
    """Contiguous memory for a gradient of x, for any strides of x."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class Backward:
    """The kernels' launches for one call: each method returns gradients by the names of inputs."""

    def __init__(self, grad_out, out, log_sum, wanted, call, shape):
        self.call, self.wanted, self.shape = call, wanted, shape
        self.problem, self.blocks = call.problem(shape.M, shape.N)
        grad, log_sum = rows_of(grad_out), log_sum.contiguous()
        delta = torch.empty_like(log_sum)
        batch, tokens, heads, width = out.shape
        dot_kernel[(triton.cdiv(tokens, 64), heads, batch)](
            grad, rows_of(out), delta, tokens, heads, 64, width, padded(width)
        )
        self.given = grad, log_sum, delta

    def launch(self, kernel, grid, arrays, **constants):
        D, E = self.call.q.shape[-1], self.call.v.shape[-1]
        kernel[grid](
            self.problem, *arrays, dropout_seed=self.call.seed, dropout_stream=self.call.stream, M=self.shape.M,
            N=self.shape.N, D=D, PADDED_D=padded(D), E=E, PADDED_E=padded(E), num_warps=self.shape.warps,
            num_stages=self.shape.stages, enable_fp_fusion=True, **constants,
        )  # fmt: skip

    def sums(self, needed, *shape):
        """Room for float32 sums, or None."""
        return torch.empty(shape, dtype=torch.float32, device=self.call.q.device) if needed else None

    def of_keys(self):
        call = self.call
        batch, _, heads, _ = call.q.shape
        keys, key_heads = call.k.shape[1:3]
        has_pair = call.position_key is not None
        dk, dv = like(call.content_k), like(call.content_v)
        dposition = like(call.k) if call.query_table is not None else None
        dpair = self.sums(has_pair, batch, keys, heads, call.q.shape[-1])
        key_sums = self.sums("key_score" in self.wanted, batch, heads, keys)
        column_sums = self.sums("reset_col" in self.wanted, batch, heads, keys)
        arrays = [None if x is None else rows_of(x) for x in (dk, dv, dposition, dpair)]
        grid = (self.blocks.keys, key_heads, self.blocks.batch)
        self.launch(keys_kernel, grid, (*self.given, *arrays, key_sums, column_sums))
        found = {
            "k": call.rotated(dk, "key", "transpose"),
            "v": call.rotated(dv, "value", "transpose"),
            **call.rotation_gradients(call.k, dk, "key", self.wanted),
            **call.rotation_gradients(call.v, dv, "value", self.wanted),
        }
        if dposition is not None:
            found["k"] = found["k"] + dposition
        if "position_key" in self.wanted:
            found["position_key"] = call.pair_gradient(dpair, "key")
        if "key_score" in self.wanted:
            found["key_score"] = key_sums
        if "reset_col" in self.wanted:
            found["reset_col"] = (column_sums * (call.key_positions == 0)[:, None]).sum((0, 2))
        return found

    def of_queries(self):
        call = self.call
        batch, queries, heads, head_dim = call.q.shape
        dq = like(call.content_q)
        dposition = like(call.q) if call.key_table is not None else None
        dpair = self.sums(call.position_query is not None, batch, queries, heads, head_dim)
        dscores = None
        if "pair_bias" in self.wanted:
            dscores = torch.zeros(batch, heads, queries, call.k.shape[1], device=call.q.device)
        arrays = [None if x is None else rows_of(x) for x in (dq, dposition, dpair)]
        grid = (self.blocks.queries, heads, self.blocks.batch)
        self.launch(queries_kernel, grid, (*self.given, *arrays, dscores))
        found = {
            "q": call.rotated(dq, "query", "transpose"),
            **call.rotation_gradients(call.q, dq, "query", self.wanted),
            "content_bias": dq.float().sum((0, 1)),
            "position_bias": torch.zeros(heads, head_dim, device=dq.device),
        }
        if dposition is not None:
            found["q"] = found["q"] + dposition
            found["position_bias"] = dposition.float().sum((0, 1))
        if "position_query" in self.wanted:
            found["position_query"] = call.pair_gradient(dpair, "query")
        if "pair_bias" in self.wanted:
            found["pair_bias"] = dscores
        return found

    def of_table(self, name):
        call, rows = self.call, getattr(self.call, name)
        heads, count = call.q.shape[2], rows.shape[1]
        width = 1 if name == "bias" else rows.shape[2]
        of = "wide_gate" if name == "gate" and width > 1 else name
        table = call.table(name)
        size = self.shape.M
        row_blocks, jobs = triton.cdiv(count, size), self.blocks.queries * self.blocks.batch
        chunks = min(jobs, triton.cdiv(TABLE_PROGRAMS, row_blocks * heads))
        jobs_of_chunk = triton.cdiv(jobs, chunks)
        result = self.sums(True, chunks, heads, count, width)
        arrays = (table, *self.given, result, jobs, jobs_of_chunk, self.blocks.queries)
        constants = dict(OF=of, ROWS=size, WIDTH=width, PADDED=padded(width))
        self.launch(tables_kernel, (row_blocks, heads, chunks), arrays, **constants)
        total = result.sum(0)
        return {name: total.sum(0, keepdim=True) if rows.shape[0] == 1 else total}


# The inputs whose gradients a kernel computes. The gradient of reset_row is 0: all scores of a query at position 0
# contain the same number from it, which cancels in the softmax.
OF_KEYS = {"k", "v", "key_cos", "key_sin", "value_cos", "value_sin", "position_key", "reset_col", "key_score"}
OF_QUERIES = {
    "q", "query_cos", "query_sin", "content_bias", "position_bias", "position_query", "pair_bias",
}  # fmt: skip


def attention_kernel_backward(grad_out, out, log_sum, wanted, *args, **kwargs):
    """`roformer::attention_kernel_backward` (ops/src/attention.cpp): the wanted gradients in the order of its inputs.

    out and log_sum are the forward's results. Sums are float32 and have a fixed order. Raises ValueError as the CPU's
    operator does.
    """
    call = Call(*args, **kwargs)
    checked_results("attention_kernel_backward", grad_out, out, log_sum, wanted, *args, **kwargs)
    names = {name for name, flag in zip(INPUTS, wanted, strict=True) if flag}

    def launch(shape):
        backward = Backward(grad_out, out, log_sum, names, call, shape)
        found = {}
        if names & OF_KEYS:
            found |= backward.of_keys()
        if names & OF_QUERIES:
            found |= backward.of_queries()
        for name in TABLES:
            if name in names:
                found |= backward.of_table(name)
        return found

    found = {}
    if min(call.q.numel(), call.k.numel(), call.v.numel()) > 0:
        found = launch_fitting("backward", call, launch)
    inputs = {name: getattr(call, name) for name in INPUTS}
    return [
        sum_to(found[name], x).to(x.dtype) if name in found else torch.zeros_like(x)
        for name, x in inputs.items()
        if name in names
    ]
