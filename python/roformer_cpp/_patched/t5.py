"""The bias of T5 and its relatives by distance instead of a matrix, as terms that the interface hands to the kernel."""

import torch
from torch import Tensor
from transformers.models.mt5.modeling_mt5 import MT5Attention as TheirMT5Attention
from transformers.models.switch_transformers.modeling_switch_transformers import (
    SwitchTransformersAttention as TheirSwitchTransformersAttention,
)
from transformers.models.t5.modeling_t5 import T5Attention as TheirT5Attention

from ..terms import DistanceTable, Terms


class _BiasByDistance:
    """A bias as terms where transformers makes a matrix ``[1, H, T, S]``; its layers only pass it on."""

    def compute_bias(
        self, query_length: int, key_length: int, device=None, past_seen_tokens: int | Tensor = 0
    ) -> Tensor | Terms:
        """The matrix of transformers under gradient checkpointing."""
        farthest = self.relative_attention_max_distance  # from there on all distances share a bucket
        if self._is_checkpointed():
            return super().compute_bias(query_length, key_length, device, past_seen_tokens)
        device = self.relative_attention_bias.weight.device if device is None else device
        buckets = self._relative_position_bucket(
            -torch.arange(-farthest, farthest + 1, device=device),  # theirs is key minus query
            bidirectional=not self.is_decoder,
            num_buckets=self.relative_attention_num_buckets,
            max_distance=farthest,
        )
        rows_HR = self.relative_attention_bias(buckets).t()
        positions = torch.arange(query_length, device=device)[None] + past_seen_tokens
        return Terms(
            bias=DistanceTable(rows_HR, -farthest, farthest),
            positions=positions,
            key_positions=torch.arange(key_length, device=device)[None],
        )

    def forward(self, hidden_states: Tensor, mask=None, key_value_states=None, position_bias=None, **kwargs):
        """Without a bias, as in attention to the encoder, no matrix of zeros."""
        if position_bias is None and not self.has_relative_attention_bias and not self._is_checkpointed():
            position_bias = Terms()
        return super().forward(
            hidden_states, mask=mask, key_value_states=key_value_states, position_bias=position_bias, **kwargs
        )

    def _is_checkpointed(self) -> bool:
        """Whether a layer hands on what it makes through a checkpoint, which knows tensors alone."""
        return self.gradient_checkpointing and self.training


class T5Attention(_BiasByDistance, TheirT5Attention):
    """The attention of transformers with a bias by distance."""


class MT5Attention(_BiasByDistance, TheirMT5Attention):
    """The attention of transformers with a bias by distance."""


class SwitchTransformersAttention(_BiasByDistance, TheirSwitchTransformersAttention):
    """The attention of transformers with a bias by distance."""


_FORWARD = ("hidden_states", "mask", "key_value_states", "position_bias")
SIGNATURES = {}
for _their in (TheirT5Attention, TheirMT5Attention, TheirSwitchTransformersAttention):
    SIGNATURES[_their.compute_bias] = [("query_length", "key_length", "device", "past_seen_tokens")]
    SIGNATURES[_their.forward] = [(*_FORWARD, name, "**kwargs") for name in ("past_key_values", "cache")]

REPLACEMENTS = {
    TheirT5Attention: T5Attention,
    TheirMT5Attention: MT5Attention,
    TheirSwitchTransformersAttention: SwitchTransformersAttention,
}
