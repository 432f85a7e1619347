"""The terms of attention that depend on position; core/terms/rf/attention_terms.h has the equation."""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from . import _checks

TermLists = tuple[list[Tensor], list[str], list[int], str, float | None]


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
    """Cosines and sines per token, ``[B or 1, T, R/2]``, or per token and head, ``[B or 1, T, 1 or H, R/2]`` with the
    heads of the keys for keys and values; both include a scale other than 1.
    """

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


class Origin(NamedTuple):
    """The kind of attention that terms are right for, as their encoding says.

    Attributes:
        made_for: ``"causal"``, ``"bidirectional"``, or empty: any.
        lacks_sequences: True if the terms are wrong for packed or padded rows.
    """

    made_for: str
    lacks_sequences: bool


@dataclass(repr=False)
class Terms:
    """The terms of one layer. ``None``: absent (rotations and the gate are 1 then, everything else 0).

    For query m at position p_m and key n at position p_n, attention computes ``out_m = sum_n softmax_n(score(m, n))
    (Rv_n v_n + V[r])`` with ``score(m, n) = s (((Rq_m q_m + u) * G[r]) . (Rk_n k_n) + (q_m + w) . K[r] + k_n . Q[r]) +
    pos(m, n) + kappa_n + P[m, n]``. ``pos(m, n)`` is ``reset_row`` if it is set and p_m = 0, else ``reset_col`` if it
    is set and p_n = 0, else ``b[r] + s a[p_m] . c[p_n]``. ``r`` is the distance p_m - p_n, clamped to the table's
    lo..hi.

    Shapes: rotations ``[B or 1, T or S, R/2]`` or ``[B or 1, T or S, 1 or heads, R/2]``; ``content_bias`` and
    ``position_bias`` (u and w) ``[H, D]``; ``key_table``, ``query_table``, ``value_table`` (K, Q, V)
    ``[H or 1, rows, D]``; ``bias`` (b) ``[H or 1, rows]``; ``gate`` (G) ``[H or 1, rows, D or 1]``; ``position_query``
    and ``position_key`` (a and c) ``[H, positions, D]``; ``reset_row`` and ``reset_col`` ``[H]``; ``key_score`` (kappa)
    ``[B or 1, H or 1, S]``, a number of each key that is added to its scores, -inf leaves it out; ``pair_bias`` (P)
    ``[B or 1, H or 1, T, S]``, a number of each query and key, read in place where it is float32 and its last dimension
    is contiguous; ``scale`` (s) defaults to ``1/sqrt(D)``.

    ``positions`` and ``key_positions``, ``[1 or B, T]`` and ``[1 or B, S]``, are the positions of the terms;
    attention uses them and refuses others. ``None``: the terms are valid for any positions.
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
    key_score: Tensor | None = None
    pair_bias: Tensor | None = None
    scale: float | None = None
    positions: Tensor | None = None
    key_positions: Tensor | None = None
    _origin = None  # an Origin where an encoding made them

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

    def arguments(self) -> TermLists:
        """The terms as arguments of operators (nn/src/script_terms.h): tensors, their names, two numbers for each
        tensor (the first and last distance of a table, else 0), the layout and the scale.
        """
        if self.layout not in ("pairs", "halves"):
            raise ValueError(f"[terms] layout must be pairs or halves, got {_checks.shown(self.layout)}")
        tensors: list[Tensor] = []
        names: list[str] = []
        ranges: list[int] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name in ("layout", "scale"):
                continue
            if isinstance(value, Rotation):
                tensors += [value.cos, value.sin]
                names += [f"{field.name}_cos", f"{field.name}_sin"]
                ranges += [0, 0, 0, 0]
            else:
                is_table = isinstance(value, DistanceTable)
                tensors.append(value.rows if is_table else value)
                names.append(field.name)
                ranges += [value.lo, value.hi] if is_table else [0, 0]
        for name, x in zip(names, tensors, strict=True):
            if not isinstance(x, Tensor):
                raise TypeError(f"[terms] {name} must be a tensor, got {type(x).__name__}")
        return tensors, names, ranges, self.layout, self.scale

    def with_scale(self, scale: float) -> "Terms":
        terms = replace(self, scale=scale)
        terms._origin = self._origin
        return terms

    def without_rotations(self) -> "Terms":
        return replace(self, query=None, key=None, value=None)

    def of_scores(self) -> "Terms":
        """The terms that the scores have."""
        terms = replace(self, value=None, value_table=None)
        terms._origin = self._origin
        return terms

    @classmethod
    def from_arguments(
        cls, tensors: list[Tensor], names: list[str], ranges: list[int], layout: str, scale: float | None
    ) -> "Terms":
        """The terms with these ``arguments``."""
        given = {
            name: (tensor, *ranges[2 * i : 2 * i + 2])
            for i, (name, tensor) in enumerate(zip(names, tensors, strict=True))
        }
        terms = cls(layout=layout, scale=scale)
        for field in fields(cls):
            if field.type == Rotation | None and f"{field.name}_cos" in given:
                setattr(terms, field.name, Rotation(given[f"{field.name}_cos"][0], given[f"{field.name}_sin"][0]))
            elif field.type == DistanceTable | None and field.name in given:
                setattr(terms, field.name, DistanceTable(*given[field.name]))
            elif field.name in given:
                setattr(terms, field.name, given[field.name][0])
        return terms


DIRECTION_HINTS = {"causal": "is_causal=True", "bidirectional": "encoding(.., is_decoder=True)"}


def check_terms(
    where: str, terms: Terms, q: Tensor, sequences: int, *, has_mask: bool, is_causal: bool | None = None
) -> None:
    """Refuses terms of an encoding that are wrong for a call, or have fewer bits than its queries ``[B, T, H, D]``.

    Args:
        where: of messages.
        sequences: how many a row has.
        has_mask: whether a mask may leave keys out.
        is_causal: whether no query attends to a later key. ``None``: not checked.
    """
    if terms._origin is None:
        return
    if q.dtype == torch.float64:
        tensors, names, *_ = terms.arguments()
        for name, x in zip(names, tensors, strict=True):
            if x.is_floating_point() and x.dtype != torch.float64:
                raise ValueError(
                    f"[{where}] terms must be float64 as the queries are, got {shape_text(x)} for {name}. Hint: "
                    "encoding.double() and terms(.., dtype=torch.float64)"
                )
    made_for, lacks_sequences = terms._origin
    if lacks_sequences and (sequences > 1 or has_mask):
        call = ("packed rows", f"{sequences} sequences") if sequences > 1 else ("rows with a mask", "a mask")
        raise ValueError(
            f"[{where}] terms that depend on where sequences begin must be made with sequences for {call[0]}, got "
            f"none and {call[1]}. Hint: encoding.terms(.., sequences=), the number of each token's, -1 for padding"
        )
    if not made_for or is_causal is None or q.shape[1] <= 1:  # one query alone is the last token
        return
    if is_causal != (made_for == "causal"):
        raise ValueError(
            f"[{where}] attention must be {made_for} with terms of an encoding that was made for it, got "
            f"is_causal={is_causal}. Hint: {DIRECTION_HINTS[made_for]}"
        )
