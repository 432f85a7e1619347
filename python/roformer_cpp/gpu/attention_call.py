"""The arguments of attention's operators as the kernels read them.

Rotations and the vectors ``u`` and ``w`` are applied to queries and keys before the kernels (`Call.problem`), and their
gradients follow after (`Call.rotation_gradients`, and attention_backward.py).
"""

import functools
import math
from typing import NamedTuple

import torch
import triton

from .attention_tiles import Problem, Scores, Sequences, Table
from .dropout import threshold_of
from .launch import on_device
from .rope import elements_of_pairs, rotate, rotate_pair
from .tiles import blocks_of, padded, rows_of

# The order of the operator's terms (core/terms/rf/attention_terms.h), and of its tables' ranges.
TERMS = (
    "query_cos", "query_sin", "key_cos", "key_sin", "value_cos", "value_sin", "content_bias", "position_bias",
    "key_table", "query_table", "value_table", "bias", "gate", "position_query", "position_key", "reset_row",
    "reset_col", "key_score", "pair_bias",
)  # fmt: skip
TABLES = ("key_table", "query_table", "value_table", "bias", "gate")
INPUTS = ("q", "k", "v", *TERMS)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Shape(NamedTuple):
    """Sizes of a kernel's tiles and what the compiler is told: M queries, N keys, warps, stages of the pipeline."""

    M: int
    N: int
    warps: int
    stages: int


class Blocks(NamedTuple):
    """Blocks of queries and of keys in a launch, and entries of the batch."""

    queries: int
    keys: int
    batch: int


def shapes(kernel, call):
    """Sizes for the "forward" or the "backward" kernels, the best first.

    They are what compiles without spilled registers; no GPU has been asked yet which one is fastest.
    """
    width = max(padded(call.q.shape[-1]), padded(call.v.shape[-1]))
    small = [Shape(32, 32, 4, 1), Shape(16, 16, 4, 1)]
    if call.q.dtype == torch.float32 or width > 128:
        return small
    found = [Shape(64, 64, 8, 2), Shape(64, 64, 8, 1), *small]
    if call.has_rows:
        return found
    if kernel == "backward":
        return found if width <= 64 else [Shape(64, 32, 8, 2), *small]
    return [Shape(128, 64, 8, 3), *found] if width <= 64 or call.bias is None else found


_FITTING = {}  # the number of the first of `shapes` that a GPU has had enough memory for


def launch_fitting(kernel, call, launch):
    """`launch(shape)` with the first of `shapes` for which the GPU has enough shared memory."""
    choices = shapes(kernel, call)
    key = (kernel, call.q.device, call.q.dtype, call.q.shape[-1], call.v.shape[-1], call.threshold is None, call.given)
    for number in range(_FITTING.get(key, 0), len(choices)):
        try:
            with on_device(call.q):
                result = launch(choices[number])
        except triton.runtime.errors.OutOfResources:
            if number + 1 == len(choices):
                raise
        else:
            _FITTING[key] = number
            return result


class Call:
    """A call of `roformer::attention_kernel`; its attributes are the operator's arguments and, by name, its terms."""

    def __init__(
        self, q, k, v, query_positions, key_positions, mask, terms, ranges, *, layout="pairs", scale=None, left=-1,
        right=-1, dropout=0.0, seed=0, stream=0, cu_seqlens_q=None, cu_seqlens_k=None, prefix=None,
    ):  # fmt: skip
        if q.dtype not in DTYPES:
            raise ValueError(
                f"[attention] q must be float32, bfloat16 or float16 on a GPU, got {q.dtype}. Hint: kernel explicit "
                "computes every dtype"
            )
        self.q, self.k, self.v = q, k, v
        self.query_positions, self.key_positions = query_positions.contiguous(), key_positions.contiguous()
        self.mask, self.layout, self.left, self.right = mask, layout, left, right
        self.scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        self.threshold = threshold_of(dropout) or None
        self.seed, self.stream = seed, stream
        self.cu_seqlens_q, self.cu_seqlens_k, self.prefix = cu_seqlens_q, cu_seqlens_k, prefix
        self.ranges = {name: (ranges[2 * i], ranges[2 * i + 1]) for i, name in enumerate(TABLES)}
        for name, term in zip(TERMS, terms, strict=True):
            setattr(self, name, term)
        self.given = tuple(name for name in TERMS if getattr(self, name) is not None)

    @property
    def has_rows(self):
        """Whether tiles multiply rows by distance."""
        return any(getattr(self, name) is not None for name in ("key_table", "query_table", "value_table"))

    @functools.cached_property
    def content_q(self):
        """R^q q + u, [B,T,H,D]."""
        return self._biased(self._rotated_qk[0], self.content_bias)

    @functools.cached_property
    def content_k(self):
        """R^k k, [B,S,Hk,D]."""
        return self._rotated_qk[1]

    @functools.cached_property
    def _rotated_qk(self):
        rows = [getattr(self, name) for name in ("query_cos", "query_sin", "key_cos", "key_sin")]
        if all(row is not None for row in rows) and rows[0].dim() == 3 and all(map(_are_same, rows[:2], rows[2:])):
            return rotate_pair(self.q, self.k, *rows[:2], self.layout)
        return self.rotated(self.q, "query"), self.rotated(self.k, "key")

    @functools.cached_property
    def content_v(self):
        """R^v v, [B,S,Hk,Dv]."""
        return self.rotated(self.v, "value")

    @functools.cached_property
    def position_q(self):
        """q + w, [B,T,H,D]."""
        return self._biased(self.q, self.position_bias)

    def rotated(self, x, side, direction="forward"):
        """R x, or with "transpose" R^T x; side: "query", "key" or "value"."""
        cos, sin = getattr(self, f"{side}_cos"), getattr(self, f"{side}_sin")
        if cos is None:
            return x
        if cos.dim() == 3:
            return rotate(x, cos, sin, self.layout, direction=direction)
        # Rows for each head: heads are tokens of one head.
        batch, tokens, heads, width = x.shape
        rows = [row.expand(-1, -1, heads, -1).flatten(1, 2) for row in (cos, sin)]
        by_token = x.reshape(batch, tokens * heads, 1, width)
        return rotate(by_token, *rows, self.layout, direction=direction).view(x.shape)

    def _biased(self, x, bias):
        return x if bias is None else (x + bias).to(x.dtype)

    def pair(self, side):
        """a[p_m] or c[p_n], [1 or B, tokens, H, D], of the "query" or the "key" side."""
        table = getattr(self, f"position_{side}")
        positions = getattr(self, f"{side}_positions")
        return table.transpose(0, 1)[positions].to(self.q.dtype)

    def rotation_gradients(self, x, dy, side, wanted):
        """Gradients of the cosines and sines of R from the gradient of R x, if they are wanted."""
        names = (f"{side}_cos", f"{side}_sin")
        if not wanted.intersection(names):
            return {}
        pairs = getattr(self, names[0]).shape[-1]
        (x_a, x_b), (dy_a, dy_b) = (elements_of_pairs(vectors.float(), pairs, self.layout) for vectors in (x, dy))
        return dict(zip(names, (dy_a * x_a + dy_b * x_b, dy_b * x_a - dy_a * x_b), strict=True))

    def pair_gradient(self, by_token, side):
        """The gradient [H,P,D] of rows by position, from the gradients by token, [B,tokens,H,D] float32."""
        rows = getattr(self, f"position_{side}").shape[1]
        positions = getattr(self, f"{side}_positions")
        if positions.shape[0] == 1:
            by_token = by_token.sum(0, keepdim=True)
        total = 0
        # A product with 0 and 1 has a fixed order of summation, as index_add does not.
        for of_entry, at in zip(by_token, positions, strict=True):
            chosen = (torch.arange(rows, device=at.device)[:, None] == at).float()
            total = total + torch.tensordot(chosen, of_entry, 1)
        return total.transpose(0, 1)

    def steady(self):
        """[1] int32: whether the positions of every sequence ascend by one."""
        return (
            _ascend(self.query_positions, self.cu_seqlens_q) & _ascend(self.key_positions, self.cu_seqlens_k)
        ).int()[None]

    def table(self, name):
        """The rows by distance of a term for the kernels, or None."""
        rows = getattr(self, name)
        if rows is None:
            return None
        lo, hi = self.ranges[name]
        rows = rows.contiguous()
        return Table(rows, rows.stride(0) if rows.shape[0] > 1 else 0, lo, hi - lo)

    def problem(self, M, N):
        """The kernels' inputs for tiles of M queries and N keys, and the blocks of a launch."""
        batch, queries, heads, _ = self.q.shape
        keys, key_heads = self.k.shape[1:3]
        sequences, blocks = None, Blocks(-(-queries // M), -(-keys // N), batch)
        if self.cu_seqlens_q is not None:
            sequences = self._sequences(M, N)
            blocks = Blocks(len(sequences.query_blocks), len(sequences.key_blocks), 1)
        has_pair = self.position_query is not None
        wide_gate = self.gate is not None and self.gate.shape[-1] > 1
        reads_positions = any(getattr(self, name) is not None for name in (*TABLES, "reset_row", "reset_col"))
        problem = Problem(
            queries=queries,
            keys=keys,
            heads=heads,
            group=heads // max(key_heads, 1),
            scale=float(self.scale),
            q=rows_of(self.content_q),
            k=rows_of(self.content_k),
            v=rows_of(self.content_v),
            position_q=rows_of(self.position_q) if self.key_table is not None else None,
            position_k=rows_of(self.k) if self.query_table is not None else None,
            pair_q=rows_of(self.pair("query")) if has_pair else None,
            pair_k=rows_of(self.pair("key")) if has_pair else None,
            **{name: self.table(name) for name in TABLES if name != "gate"},
            gate=None if wide_gate else self.table("gate"),
            wide_gate=self.table("gate") if wide_gate else None,
            reset_row=self.reset_row,
            reset_col=self.reset_col,
            key_score=scores(self.key_score),
            pair_bias=scores(self.pair_bias),
            mask=scores(self._mask()),
            query_positions=self.query_positions if reads_positions else None,
            query_positions_b=queries if self.query_positions.shape[0] > 1 else 0,
            key_positions=self.key_positions if reads_positions else None,
            key_positions_b=keys if self.key_positions.shape[0] > 1 else 0,
            steady=self.steady() if reads_positions else None,
            left=self._limit(self.left),
            right=self._limit(self.right),
            prefix=self.prefix,
            sequences=sequences,
            threshold=self.threshold,
            even=1 if sequences is None and keys % 8 == 0 else None,
        )
        return problem, blocks

    def _limit(self, limit):
        """A limit of the window in 32 bits: beyond the number of tokens it allows the same keys."""
        tokens = self.q.shape[1] + self.k.shape[1]
        return None if limit == -1 else min(limit, tokens)

    def _mask(self):
        """The mask as [1 or B, 1 or H, 1 or T, 1 or S] bytes."""
        if self.mask is None:
            return None
        mask = self.mask.view(torch.uint8)
        return mask[(None,) * (4 - mask.dim())]

    def _sequences(self, M, N):
        cu_seqlens_q, cu_seqlens_k = self.cu_seqlens_q.contiguous(), self.cu_seqlens_k.contiguous()
        queries, keys = cu_seqlens_q.diff().long(), cu_seqlens_k.diff().long()
        elements = self.q.shape[2] * queries * keys
        return Sequences(
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k,
            query_blocks=numbered_blocks(queries, self.q.shape[1], M),
            key_blocks=numbered_blocks(keys, self.k.shape[1], N),
            dropout=elements.cumsum(0) - elements,
        )


def scores(x):
    """[1 or B, 1 or H, S] or [1 or B, 1 or H, 1 or T, 1 or S]."""
    if x is None:
        return None
    wide = x[:, :, None] if x.dim() == 3 else x
    return Scores(wide, *(0 if size == 1 else stride for size, stride in zip(wide.shape, wide.stride(), strict=True)))


def numbered_blocks(lengths, tokens, size):
    """[blocks, 2] int32: the sequence of each block of `size` tokens, and its number in the sequence."""
    first, sequence = blocks_of(lengths, tokens, size)
    block = torch.arange(len(sequence), device=first.device)
    return torch.stack((sequence, block - first[sequence]), 1).int()


def _are_same(x, y):
    """Whether two tensors are the same memory in the same form."""
    return (x.data_ptr(), x.shape, x.stride()) == (y.data_ptr(), y.shape, y.stride())


def _ascend(positions, cu_seqlens):
    ascend = positions.diff(dim=1) == 1
    if cu_seqlens is not None:
        starts = torch.zeros(positions.shape[1] + 1, dtype=torch.bool, device=positions.device)
        starts[cu_seqlens.long()] = True
        ascend = ascend | starts[1 : positions.shape[1]]
    return ascend.all()


def sum_to(x, like):
    """x summed over the dimensions that have size 1 in `like`, and over heads [B,tokens,H,..] that `like` lacks."""
    if x.dim() == like.dim() + 1:
        x = x.sum(2) if like.dim() == 3 else x.reshape(like.shape)
    shared = [d for d in range(like.dim()) if like.shape[d] == 1 and x.shape[d] > 1]
    return x.sum(shared, keepdim=True) if shared else x
