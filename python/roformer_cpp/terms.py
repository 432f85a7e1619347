"""The terms of attention that depend on position; core/terms/rf/attention_terms.h has the equation."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor


def shape_text(x: Tensor) -> str:
    """The dtype and shape of a tensor: ``float32 [2, 3]``."""
    return f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"


def tokens_first(where: str, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Views ``[B, T, H, D]`` of tensors ``[B, H, T, D]``."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            rule = f"{name} must be [batch, heads, tokens, head_dim] (heads_first)"
            raise ValueError(f"[{where}] {rule}, got {list(x.shape)}")
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


class Rotation(NamedTuple):
    """Cosines and sines per token, ``[B or 1, T, R/2]``; both include a scale other than 1."""

    cos: Tensor
    sin: Tensor

    def __repr__(self) -> str:
        return f"Rotation({shape_text(self.cos)})"


class DistanceTable(NamedTuple):
    """Rows by distance, query position minus key position: row ``d - lo`` belongs to distance d, clamped to lo..hi."""

    rows: Tensor
    lo: int
    hi: int

    def __repr__(self) -> str:
        return f"DistanceTable({shape_text(self.rows)}, distances {self.lo}..{self.hi})"


@dataclass(repr=False)
class Terms:
    """The terms of one layer. ``None``: absent (rotations and the gate are 1 then, everything else 0).

    Shapes: rotations ``[B or 1, T or S, R/2]``; ``content_bias`` and ``position_bias`` (u and w) ``[H, D]``;
    ``key_table``, ``query_table``, ``value_table`` (K, Q, V) ``[H or 1, rows, D]``; ``bias`` (b) ``[H or 1, rows]``;
    ``gate`` (G) ``[H or 1, rows, D or 1]``; ``position_query`` and ``position_key`` (a and c) ``[H, positions, D]``;
    ``reset_row`` and ``reset_col`` ``[H]``; ``scale`` (s) defaults to ``1/sqrt(D)``.

    ``positions`` and ``key_positions``, ``[1 or B, T]`` and ``[1 or B, S]``, are those that the terms were made for:
    attention uses these, and refuses others. ``None``: the terms are valid for any positions.
    """

    query: Rotation | None = None
    key: Rotation | None = None
    value: Rotation | None = None
    layout: str = "pairs"
    content_bias: Tensor | None = None
    position_bias: Tensor | None = None
    key_table: DistanceTable | None = None
    query_table: DistanceTable | None = None
    value_table: DistanceTable | None = None
    bias: DistanceTable | None = None
    gate: DistanceTable | None = None
    position_query: Tensor | None = None
    position_key: Tensor | None = None
    reset_row: Tensor | None = None
    reset_col: Tensor | None = None
    scale: float | None = None
    positions: Tensor | None = None
    key_positions: Tensor | None = None

    def __repr__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.query is None and self.key is None and self.value is None:
            del given["layout"]
        texts = (
            f"{name}={shape_text(x) if isinstance(x, Tensor) else repr(x)}"
            for name, x in given.items()
            if x is not None
        )
        return f"Terms({', '.join(texts)})"

    def to_dict(self) -> dict[str, Tensor]:
        """The flat form in which terms cross to C++ (nn/src/script_terms.h)."""
        if self.layout not in ("pairs", "halves"):
            raise ValueError(f"[terms] layout must be pairs or halves, got {self.layout!r}")
        flat: dict[str, Tensor] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name == "layout":
                continue
            if field.name in ("query", "key", "value"):
                flat[f"{field.name}_cos"], flat[f"{field.name}_sin"] = value
            elif isinstance(value, tuple):
                flat[field.name] = value[0]
                flat[f"{field.name}_window"] = torch.tensor(value[1:], dtype=torch.int64)
            else:
                flat[field.name] = torch.as_tensor(value, dtype=torch.float64) if field.name == "scale" else value
        if self.layout == "halves":
            flat["halves"] = torch.tensor(1)
        return flat

    @classmethod
    def from_dict(cls, flat: dict[str, Tensor]) -> "Terms":
        terms = cls(layout="halves" if "halves" in flat else "pairs")
        for field in fields(cls):
            name = field.name
            if f"{name}_cos" in flat:
                setattr(terms, name, Rotation(flat[f"{name}_cos"], flat[f"{name}_sin"]))
            elif f"{name}_window" in flat:
                lo, hi = flat[f"{name}_window"].tolist()
                setattr(terms, name, DistanceTable(flat[name], lo, hi))
            elif name in flat:
                setattr(terms, name, flat[name].item() if name == "scale" else flat[name])
        return terms
