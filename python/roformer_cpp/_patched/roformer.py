"""RoFormer's attention: the rotation is a term, so that nothing is rotated in memory before the kernel reads it."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import EncoderDecoderCache
from transformers.models.roformer import modeling_roformer as theirs

from .._ops import rotate
from ..terms import Rotation, Terms
from .attend import MIN_QUERIES, attend, missing, say_once
from .masks import MaskForm, noted_form
from .signatures import names_of, unknown_argument

_FORWARD = ("hidden_states", "attention_mask", "sinusoidal_pos", "encoder_hidden_states")
SIGNATURES = {
    theirs.RoFormerSelfAttention.forward: [
        (*_FORWARD, name, "output_attentions", "**kwargs") for name in ("past_key_values", "cache")
    ]
}
_CACHE = "cache" if "cache" in names_of(theirs.RoFormerSelfAttention.forward) else "past_key_values"


class RoFormerSelfAttention(theirs.RoFormerSelfAttention):
    """The attention of transformers, whose `forward` it calls for what it does not compute."""

    @torch.compiler.disable
    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        sinusoidal_pos: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        cache=None,
        output_attentions: bool = False,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None]:
        """As in transformers; the second result is None instead of the weights, unless they are requested.

        The cache has the name `past_key_values` up to transformers 5.23 and `cache` from 5.24 on.
        """
        if "past_key_values" in kwargs:
            cache = kwargs.pop("past_key_values")
        form = MaskForm() if attention_mask is None else noted_form(attention_mask)
        dropout = self.dropout.p if self.training else 0.0
        states_BT1C = hidden_states.unsqueeze(2)
        reason = (
            (output_attentions and "attention whose weights are returned")
            or (encoder_hidden_states is not None and "attention to an encoder")
            or (form is None and "attention with a mask of its caller")
            or (sinusoidal_pos is None and "attention without positions")
            or unknown_argument(kwargs)
            or missing(states_BT1C, states_BT1C, states_BT1C, dropout)
        )
        if reason:
            say_once(self, reason)
            context, weights = super().forward(
                hidden_states,
                attention_mask,
                sinusoidal_pos,
                encoder_hidden_states,
                output_attentions=output_attentions,
                **{_CACHE: cache},
                **kwargs,
            )
            return context, weights if output_attentions else None
        q, k, v = (
            project(hidden_states).unflatten(-1, (self.num_attention_heads, self.attention_head_size))
            for project in (self.query, self.key, self.value)
        )
        sin, cos = sinusoidal_pos[0].to(torch.promote_types(q.dtype, torch.float32)).chunk(2, dim=-1)
        rotation = Rotation(cos, sin)  # [1, T, D/2]
        few = q.shape[1] < MIN_QUERIES
        if not few and cache is None:
            terms = Terms(query=rotation, key=rotation, value=rotation if self.rotary_value else None)
            return attend(q, k, v, form, terms=terms, dropout=dropout).flatten(2), None
        q, k = (rotate(x, *rotation, layout="pairs") for x in (q, k))
        v = rotate(v, *rotation, layout="pairs") if self.rotary_value else v
        if cache is not None:
            k, v = self._cached(cache, k, v)
        if few:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            context = scaled_dot_product_attention(q, k, v, attention_mask, dropout_p=dropout).transpose(1, 2)
        else:
            context = attend(q, k, v, form, dropout=dropout)
        return context.flatten(2), None

    def _cached(self, cache, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values; the cache holds them rotated and heads first, as transformers does."""
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        k, v = cache.update(k.transpose(1, 2), v.transpose(1, 2), self.layer_idx)
        return k.transpose(1, 2), v.transpose(1, 2)


REPLACEMENTS = {theirs.RoFormerSelfAttention: RoFormerSelfAttention}
