"""Attention over terms on a GPU: `roformer::attention_kernel` in Triton, in the order of FlashAttention-2.

Tri Dao, FlashAttention-2, arXiv 2307.08691: a program has a block of queries of one head and goes through its keys.
"""

import triton
import triton.language as tl

from . import attention_tiles as tile
from .attention_call import Call, launch_fitting
from .launch import checked_results
from .tiles import padded, rows_of


@triton.jit(do_not_specialize=["dropout_seed", "dropout_stream"])
def forward_kernel(
    x, out, log_sum, dropout_seed: tl.int64, dropout_stream: tl.int64,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, E: tl.constexpr, PADDED_E: tl.constexpr,
):  # fmt: skip
    """Writes out and log_sum of a block of M queries. D and E: the sizes of keys and of values."""
    b = tl.program_id(2).to(tl.int64)
    h = tl.program_id(1)
    own = tile.sequence_of(x, b, tl.program_id(0), False)
    m0 = own[6] * M
    if m0 < own[1]:
        q = tile.load_vectors(x.q, b, h, own[0], m0, own[1], M, D, PADDED_D)
        top = tl.full((M,), tile.MINUS_INFINITY, tl.float32)
        total = tl.zeros((M,), tl.float32)
        sums = tl.zeros((M, PADDED_E), tl.float32)
        first, end = tile.keys_of(x, own, m0, M, N)
        for n0 in range(first, end, N):
            k = tile.load_vectors(x.k, b, h // x.group, own[2], n0, own[3], N, D, PADDED_D)
            v = tile.load_vectors(x.v, b, h // x.group, own[2], n0, own[3], N, E, PADDED_E)
            places = tile.places_of(x, own, b, m0, n0, M, N)
            score = tile.tile_scores(x, own, b, h, m0, n0, q, k, places, M, N, D, PADDED_D)
            if not tile.allows_all(x, own, m0, n0, M, N):
                allowed = tile.allowed_keys(x, own, b, h, m0, n0, M, N)
                score = tl.where(allowed, score, tile.MINUS_INFINITY)
                v = tl.where(tl.max(allowed.to(tl.int32), 0)[:, None] > 0, v, 0)
            higher = tl.maximum(top, tl.max(score, 1))
            level = tl.where(higher == tile.MINUS_INFINITY, 0.0, higher)
            weights = tl.exp2(score - level[:, None])
            shrink = tl.exp2(top - level)
            total = total * shrink + tl.sum(weights, 1)
            if x.threshold is not None:
                weights = tl.where(tile.kept(x, own, b, h, m0, n0, dropout_seed, dropout_stream, M, N), weights, 0.0)
            sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            if x.value_table is not None:
                sums += tile.sum_rows(weights, places, x.value_table, h, M, N, E, PADDED_E, 1, v.dtype)
            top = higher
        has_keys = total > 0
        total = tl.where(has_keys, total, 1.0)
        scale = tl.where(has_keys, 1.0 / total, 0.0)
        if x.threshold is not None:
            scale *= 65536.0 / (65536.0 - x.threshold)
        tile.store_vectors(out, sums * scale[:, None], b, h, own[0], m0, own[1], M, E)
        logs = tl.where(has_keys, top / tile.LOG2_E + tl.log(total), tile.MINUS_INFINITY)
        tile.store_by_token(log_sum, logs, b, h, x.heads, x.queries, own[0], m0, own[1], M)


def attention_kernel(*args, **kwargs):
    """`roformer::attention_kernel` (ops/src/attention.cpp): out [B,T,H,Dv] in the dtype of q, and log_sum [B,H,T].

    q, k and v are float32, bfloat16 or float16; sums are float32. Values that the CPU's operator checks (positions
    within the rows of a pair, the order of ``cu_seqlens``) are not checked, because reading them would wait for the
    GPU. Raises ValueError as the CPU's operator does.
    """
    call = Call(*args, **kwargs)
    out, log_sum = checked_results("attention_kernel", *args, **kwargs)
    head_dim, value_dim = call.q.shape[-1], call.v.shape[-1]

    def launch(shape):
        problem, blocks = call.problem(shape.M, shape.N)
        forward_kernel[(blocks.queries, call.q.shape[2], blocks.batch)](
            problem, rows_of(out), log_sum, call.seed, call.stream, shape.M, shape.N, head_dim, padded(head_dim),
            value_dim, padded(value_dim), num_warps=shape.warps, num_stages=shape.stages,
            enable_fp_fusion=True,
        )  # fmt: skip

    if log_sum.numel() > 0:
        launch_fitting("forward", call, launch)
    return out, log_sum
