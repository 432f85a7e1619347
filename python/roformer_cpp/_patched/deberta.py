"""DeBERTa's disentangled attention: its vectors by distance as key_table (c2p) and query_table (p2c)."""

import torch
from torch import Tensor, nn
from transformers.models.deberta import modeling_deberta as first
from transformers.models.deberta_v2 import modeling_deberta_v2 as second

from ..terms import DistanceTable, Terms
from .attend import attend, missing, say_once
from .masks import MaskForm, note_form, noted_form

_ROWS = "_roformer_rows"


class _Disentangled:
    """The attention of transformers, whose `forward` it calls for what it does not compute."""

    @torch.compiler.disable
    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As in transformers; the weights are None unless requested."""
        given_states, query_states = query_states, hidden_states if query_states is None else query_states
        dropout = self.dropout.p if self.training else 0.0
        rows_R = _rows_by_distance(relative_pos, query_states, hidden_states) if self.relative_attention else None
        q_BT1C, k_BT1C = query_states.unsqueeze(2), hidden_states.unsqueeze(2)
        reason = (
            (output_attentions and "attention whose weights are returned")
            or missing(q_BT1C, k_BT1C, k_BT1C, dropout)
            or (self.relative_attention and rows_R is None and "attention over distances that do not follow the order")
            or self._lack(given_states)
        )
        if reason:
            say_once(self, reason)
            return super().forward(
                hidden_states, attention_mask, output_attentions, given_states, relative_pos, rel_embeddings
            )
        q, k, v = self._projected(query_states, hidden_states)
        factor = 1 + len(self.pos_att_type if self._counts_all else {"c2p", "p2c"}.intersection(self.pos_att_type))
        terms = Terms(scale=1 / second.scaled_size_sqrt(q, factor).item())  # their root is float32
        if rows_R is not None:
            self._add_tables(terms, self.pos_dropout(rel_embeddings), rows_R)
        return attend(q, k, v, _form(attention_mask), terms=terms, dropout=dropout).flatten(2), None

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_attention_heads, -1))

    def _add_tables(self, terms: Terms, rel_embeddings: Tensor, rows_R: Tensor) -> None:
        """The rows of `rel_embeddings` that the distances have, projected, each as ``[H, R, D]``."""
        span, farthest = self._span(), len(rows_R) // 2
        index_R = (rows_R + span).clamp(0, 2 * span - 1)
        for kind, name in (("c2p", "key_table"), ("p2c", "query_table")):
            if kind in self.pos_att_type:
                rows = self._projection(kind)(rel_embeddings[: 2 * span])
                table_HRD = self._heads(rows)[index_R].transpose(0, 1)
                setattr(terms, name, DistanceTable(table_HRD, -farthest, farthest))


class DebertaSelfAttention(_Disentangled, first.DisentangledSelfAttention):
    """Version 1: queries, keys and values of a head are rows of one matrix, and keys lack a bias."""

    _counts_all = True

    def _lack(self, given_states: Tensor | None) -> str | None:
        return (self.talking_head and "heads that are mixed") or (
            given_states is not None and "attention with queries of its caller"
        )

    def _projected(self, query_states: Tensor, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self._heads(self.in_proj(hidden_states)).chunk(3, dim=-1)
        return q + self._heads(self.q_bias), k, v + self._heads(self.v_bias)

    def _span(self) -> int:
        return self.max_relative_positions

    def _projection(self, kind: str) -> nn.Module:
        return self.pos_proj if kind == "c2p" else self.pos_q_proj


class DebertaV2SelfAttention(_Disentangled, second.DisentangledSelfAttention):
    """Of versions 2 and 3."""

    _counts_all = False

    def _lack(self, given_states: Tensor | None) -> None:
        return None

    def _projected(self, query_states: Tensor, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, *sides = self.query_proj(query_states), self.key_proj(hidden_states), self.value_proj(hidden_states)
        return self._heads(q), *map(self._heads, sides)

    def _span(self) -> int:
        return self.pos_ebd_size

    def _projection(self, kind: str) -> nn.Module:
        if self.share_att_key:
            return self.key_proj if kind == "c2p" else self.query_proj
        return self.pos_key_proj if kind == "c2p" else self.pos_query_proj


def _rows_by_distance(relative_pos: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The rows of `relative_pos` for the distances 1-T .. T-1, query minus key; None if it depends on
    more than the distance.

    The encoder makes `relative_pos` once for all layers, so the rows are stored as its attribute.
    """
    tokens = q.shape[1]
    if relative_pos is None or relative_pos.shape != (1, tokens, tokens) or k.shape[1] != tokens or tokens == 0:
        return None
    rows, version = getattr(relative_pos, _ROWS, (None, None))
    if rows is None or version != _version(relative_pos):
        by_pair_TT = relative_pos[0]
        if not torch.equal(by_pair_TT[1:, 1:], by_pair_TT[:-1, :-1]):
            return None
        rows = torch.cat([by_pair_TT[0].flip(0), by_pair_TT[1:, 0]])
        setattr(relative_pos, _ROWS, (rows, _version(relative_pos)))
    return rows


def _form(attention_mask: Tensor) -> MaskForm:
    """The form of a mask of pairs, or of padding: then a pair is open if both of its tokens are. Noted on the mask."""
    form = noted_form(attention_mask) if _version(attention_mask) is not None else None
    if form is None:
        open_BHTS = attention_mask.bool()
        token_BS = open_BHTS[:, 0].any(dim=1)
        is_padding = open_BHTS.shape[2] == open_BHTS.shape[3] and torch.equal(
            open_BHTS, token_BS[:, None, :, None] & token_BS[:, None, None, :]
        )
        form = MaskForm(attend=open_BHTS) if not is_padding else MaskForm(attend=None if token_BS.all() else token_BS)
        if _version(attention_mask) is not None:
            note_form(attention_mask, form)
    return form


def _version(x: Tensor) -> int | None:
    """Counts changes of a tensor; None for one of inference mode, which does not count them."""
    return None if x.is_inference() else x._version


_FORWARD = ("hidden_states", "attention_mask", "output_attentions", "query_states", "relative_pos", "rel_embeddings")
SIGNATURES = {theirs.DisentangledSelfAttention.forward: [_FORWARD] for theirs in (first, second)}

REPLACEMENTS = {
    first.DisentangledSelfAttention: DebertaSelfAttention,
    second.DisentangledSelfAttention: DebertaV2SelfAttention,
}
