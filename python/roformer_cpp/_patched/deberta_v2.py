"""DeBERTa-v2's disentangled attention: its vectors by distance as key_table (c2p) and query_table (p2c)."""

import torch
from torch import Tensor
from transformers.models.deberta_v2 import modeling_deberta_v2 as theirs

from ..terms import DistanceTable, Terms
from .attend import attend, missing, say_once
from .masks import MaskForm, note_form, noted_form

_ROWS = "_roformer_rows"


class DisentangledSelfAttention(theirs.DisentangledSelfAttention):
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
        query_states = hidden_states if query_states is None else query_states
        dropout = self.dropout.p if self.training else 0.0
        rows_R = _rows_by_distance(relative_pos, query_states, hidden_states) if self.relative_attention else None
        q_BT1C, k_BT1C = query_states.unsqueeze(2), hidden_states.unsqueeze(2)
        reason = (
            (output_attentions and "attention whose weights are returned")
            or missing(q_BT1C, k_BT1C, k_BT1C, dropout)
            or (self.relative_attention and rows_R is None and "attention over distances that do not follow the order")
        )
        if reason:
            say_once(self, reason)
            return super().forward(
                hidden_states, attention_mask, output_attentions, query_states, relative_pos, rel_embeddings
            )
        q, k, v = (
            self._heads(project(x))
            for project, x in (
                (self.query_proj, query_states),
                (self.key_proj, hidden_states),
                (self.value_proj, hidden_states),
            )
        )
        factor = 1 + ("c2p" in self.pos_att_type) + ("p2c" in self.pos_att_type)
        terms = Terms(scale=1 / theirs.scaled_size_sqrt(q, factor).item())  # their root is float32
        if rows_R is not None:
            self._add_tables(terms, self.pos_dropout(rel_embeddings), rows_R)
        return attend(q, k, v, _form(attention_mask), terms=terms, dropout=dropout).flatten(2), None

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_attention_heads, -1))

    def _add_tables(self, terms: Terms, rel_embeddings: Tensor, rows_R: Tensor) -> None:
        """The rows of `rel_embeddings` that the distances have, projected, each as ``[H, R, D]``."""
        span, farthest = self.pos_ebd_size, len(rows_R) // 2
        index_R = (rows_R + span).clamp(0, 2 * span - 1)
        for kind, name, own, shared in (
            ("c2p", "key_table", "pos_key_proj", self.key_proj),
            ("p2c", "query_table", "pos_query_proj", self.query_proj),
        ):
            if kind in self.pos_att_type:
                project = shared if self.share_att_key else getattr(self, own)
                table_HRD = self._heads(project(rel_embeddings[: 2 * span]))[index_R].transpose(0, 1)
                setattr(terms, name, DistanceTable(table_HRD, -farthest, farthest))


def _rows_by_distance(relative_pos: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """What `relative_pos` says of the distances 1-T .. T-1, query minus key; None where it says more than that.

    The encoder makes it once for all layers, which find the answer noted on it.
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
SIGNATURES = {theirs.DisentangledSelfAttention.forward: [_FORWARD]}

REPLACEMENTS = {theirs.DisentangledSelfAttention: DisentangledSelfAttention}
