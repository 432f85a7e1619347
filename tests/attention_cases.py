"""Random cases of attention over terms, for the tests that hold its paths to each other and to the equation.

A case is a function of its seed and of the terms it has: float64, small, with all that goes wrong easily now and then:
fewer and more queries than keys, grouped keys, partial rotation, tables shared by heads and shorter than the distances,
positions that step, jump, repeat, and start anywhere, masks and windows that leave queries without a key.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

import roformer_cpp
from attention_reference import reference, window_mask
from roformer_cpp import DistanceTable, Rotation, Terms
from term_list import PAIRS, ROTATIONS, SCORES, TABLES, TERMS, scores_shape, shape

VECTORS = tuple(term.name for term in TERMS if term.kind in ("NUMBERS", "PAIR"))
# What a case may have; a pair comes together.
PARTS = tuple(name for name in (*ROTATIONS, *TABLES, *VECTORS, *SCORES) if name not in PAIRS[1::2])
POSITIONS = 12  # rows of a and c; positions lie below


@dataclass
class Case:
    q: Tensor
    k: Tensor
    v: Tensor
    terms: Terms
    positions: Tensor
    key_positions: Tensor
    mask: Tensor | None
    window: tuple[int, int]
    prefix: Tensor | None = None  # of each entry

    def leaves(self) -> dict[str, Tensor]:
        """Every tensor that has a gradient, by name."""
        found = {"q": self.q, "k": self.k, "v": self.v}
        for name in ROTATIONS:
            if rotation := getattr(self.terms, name):
                found |= {f"{name}.cos": rotation.cos, f"{name}.sin": rotation.sin}
        for name in TABLES:
            if table := getattr(self.terms, name):
                found[name] = table.rows
        return found | {name: x for name in (*VECTORS, *SCORES) if (x := getattr(self.terms, name)) is not None}

    def with_leaves(self, leaves: dict[str, Tensor]) -> "Case":
        terms = replace(self.terms)
        for name in ROTATIONS:
            if f"{name}.cos" in leaves:
                setattr(terms, name, Rotation(leaves[f"{name}.cos"], leaves[f"{name}.sin"]))
        for name in TABLES:
            if name in leaves:
                setattr(terms, name, getattr(terms, name)._replace(rows=leaves[name]))
        for name in (*VECTORS, *SCORES):
            if name in leaves:
                setattr(terms, name, leaves[name])
        return replace(self, q=leaves["q"], k=leaves["k"], v=leaves["v"], terms=terms)

    def to(self, dtype: torch.dtype) -> "Case":
        return self.with_leaves({name: x.to(dtype) for name, x in self.leaves().items()})

    def run(self, kernel: str) -> Tensor:
        return roformer_cpp.attention(
            self.q,
            self.k,
            self.v,
            self.terms,
            positions=self.positions,
            key_positions=self.key_positions,
            mask=self.mask,
            window=self.window,
            prefix=self.prefix,
            kernel=kernel,
        )

    def attend(self) -> Tensor:
        """bool [B, H, T, S]."""
        (batch, queries, heads, _), keys = self.q.shape, self.k.shape[1]
        near = torch.from_numpy(window_mask(queries, keys, *self.window))
        if self.prefix is not None:
            near = near | (torch.arange(keys) < self.prefix[:, None])[:, None, None, :]
        return (near if self.mask is None else near & self.mask).expand(batch, heads, queries, keys)

    def expected(self):
        """By the float64 loops of attention_reference.py."""
        attend = self.attend().numpy()
        return reference(self.q, self.k, self.v, self.terms, self.positions, self.key_positions, attend)


class _Draw:
    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def integer(self, low: int, high: int) -> int:
        """low..high."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def chance(self, p: float) -> bool:
        return bool(torch.rand((), generator=self.generator) < p)

    def positions(self, batch: int, tokens: int) -> Tensor:
        rows = batch if self.chance(0.5) else 1
        if self.chance(0.5):
            return torch.arange(tokens) + torch.randint(0, POSITIONS - tokens + 1, (rows, 1), generator=self.generator)
        return torch.randint(0, POSITIONS, (rows, tokens), generator=self.generator)

    def rotation(self, batch: int, tokens: int, heads: int, head_dim: int) -> Rotation:
        of_heads = (heads if self.chance(0.7) else 1,) if self.chance(0.5) else ()
        shape = (batch if self.chance(0.5) else 1, tokens, *of_heads, self.integer(1, head_dim // 2))
        return Rotation(self.normal(*shape), self.normal(*shape))

    def table(self, heads: int, *width: int) -> DistanceTable:
        lo = self.integer(-POSITIONS, 3)
        hi = lo + self.integer(0, POSITIONS)
        return DistanceTable(self.normal(heads if self.chance(0.7) else 1, hi - lo + 1, *width), lo, hi)

    def mask(self, batch: int, heads: int, queries: int, keys: int) -> Tensor:
        shape = [size if self.chance(0.7) else 1 for size in (batch, heads, queries, keys)]
        return torch.rand(*shape, generator=self.generator) < 0.6


def make_case(seed: int, parts: tuple[str, ...] | None = None) -> Case:
    """parts: the terms it has, of PARTS; None: a random choice of them."""
    draw = _Draw(seed)
    if parts is None:
        density = (0.15, 0.4, 0.8)[draw.integer(0, 2)]
        parts = tuple(part for part in PARTS if draw.chance(density))
    batch, queries, keys = draw.integer(1, 2), draw.integer(1, 5), draw.integer(1, 6)
    key_heads = draw.integer(1, 2)
    heads, head_dim = key_heads * draw.integer(1, 2), 2 * draw.integer(1, 3)
    value_dim = head_dim if {"value", "value_table"} & set(parts) else draw.integer(1, 5)

    terms = Terms(layout="halves" if draw.chance(0.5) else "pairs", scale=0.7 if draw.chance(0.5) else None)
    for name in [name for name in ROTATIONS if name in parts]:
        tokens, of_side = (queries, heads) if name == "query" else (keys, key_heads)
        setattr(terms, name, draw.rotation(batch, tokens, of_side, head_dim))
    for name in [name for name in TABLES if name in parts]:
        width = (1,) if draw.chance(0.3) and name == "gate" else shape(name, heads, POSITIONS, head_dim)[2:]
        setattr(terms, name, draw.table(heads, *width))
    for name in VECTORS:
        first = PAIRS[PAIRS.index(name) // 2 * 2] if name in PAIRS else name
        if first in parts:
            setattr(terms, name, draw.normal(*shape(name, heads, POSITIONS, head_dim)))
    for name in [name for name in SCORES if name in parts]:
        shared = [size if draw.chance(0.6) else 1 for size in (batch, heads)]
        setattr(terms, name, draw.normal(*scores_shape(name, *shared, queries, keys)))
    case = Case(
        q=draw.normal(batch, queries, heads, head_dim),
        k=draw.normal(batch, keys, key_heads, head_dim),
        v=draw.normal(batch, keys, key_heads, value_dim),
        terms=terms,
        positions=draw.positions(batch, queries),
        key_positions=draw.positions(batch, keys),
        mask=draw.mask(batch, heads, queries, keys) if draw.chance(0.5) else None,
        window=(draw.integer(-1, 3), draw.integer(-1, 3)),
    )
    if case.window[0] == -1 and case.window[1] != -1:
        case.prefix = torch.randint(0, keys + 2, (batch,), generator=draw.generator)
    return case
