"""MPNet's attention, with its bias for each pair of tokens, by the function of transformers' interface."""

from torch import Tensor
from transformers.models.mpnet import modeling_mpnet as theirs

from .attend import say_once
from .interface import attention_forward


class MPNetSelfAttention(theirs.MPNetSelfAttention):
    """The attention of transformers, whose `forward` it calls where weights are returned."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,
        **kwargs,
    ) -> tuple[Tensor, ...]:
        """As in transformers."""
        if output_attentions:
            say_once(self, "attention whose weights are returned")
            return super().forward(hidden_states, attention_mask, position_bias, output_attentions, **kwargs)
        q, k, v = (
            project(hidden_states).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)
            for project in (self.q, self.k, self.v)
        )
        dropout = self.dropout.p if self.training else 0.0
        context, _ = attention_forward(
            self, q, k, v, attention_mask, dropout=dropout, is_causal=False, position_bias=position_bias
        )
        return (self.o(context.flatten(2)),)


SIGNATURES = {
    theirs.MPNetSelfAttention.forward: [
        ("hidden_states", "attention_mask", "position_bias", "output_attentions", "**kwargs")
    ]
}
REPLACEMENTS = {theirs.MPNetSelfAttention: MPNetSelfAttention}
