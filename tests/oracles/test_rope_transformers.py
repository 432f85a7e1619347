"""roformer::rope beside the rotary functions of transformers (spec R-ROPE-06, R-ROPE-09)."""

from functools import partial

import numpy as np
import pytest
import torch
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as gpt_neox_rope
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rope
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rope
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention, RoFormerSinusoidalPositionalEmbedding

import roformer_cpp
import rope_reference
import tolerances

TOKENS, HEADS, HEAD_DIM = 1536, 3, 64


def random_BHTD():
    return torch.randn(2, HEADS, TOKENS, HEAD_DIM, generator=torch.Generator().manual_seed(0))


def exact_table(rotary_dim=HEAD_DIM):
    """cos and sin of every position, computed in float64, [1, T, R/2] in float32."""
    factor = rope_reference.rotation(np.arange(TOKENS), rotary_dim // 2)
    return [torch.from_numpy(part.copy())[None].float() for part in (factor.real, factor.imag)]


def their_halves(function, x, rotary_dim=HEAD_DIM):
    return function(x, x, *(torch.cat([part, part], -1) for part in exact_table(rotary_dim)))[0]


def their_gptj(x):
    cos, sin = exact_table()
    return gptj_rope(x.transpose(1, 2), sin, cos).transpose(1, 2)


def their_roformer(x, sinusoidal=None):
    if sinusoidal is None:
        cos, sin = exact_table()
        sinusoidal = torch.cat([sin, cos], -1)
    return RoFormerSelfAttention.apply_rotary_position_embeddings(sinusoidal[None], x, x)[0]


def own_roformer(x):
    """With the table of transformers."""
    embedding = RoFormerSinusoidalPositionalEmbedding(TOKENS, HEAD_DIM)
    embedding.weight = torch.nn.Parameter(embedding.create_weight(), requires_grad=False)
    return their_roformer(x, embedding((2, TOKENS))[None])


@pytest.mark.parametrize(
    ("theirs", "options"),
    [
        (their_roformer, {"layout": "pairs"}),
        (own_roformer, {"layout": "pairs"}),
        (their_gptj, {"layout": "pairs"}),
        (partial(their_halves, gpt_neox_rope), {"layout": "halves"}),
        (partial(their_halves, llama_rope), {"layout": "halves"}),
        (partial(their_halves, gpt_neox_rope, rotary_dim=16), {"layout": "halves", "rotary_dim": 16}),
    ],
    ids=["roformer", "roformer's table", "gptj", "gpt_neox", "llama", "gpt_neox, partial"],
)
def test_functions(theirs, options):
    x = random_BHTD()
    ours = roformer_cpp.rope(x, torch.arange(TOKENS), heads_first=True, **options)
    torch.testing.assert_close(ours, theirs(x), atol=tolerances.T2_ATOL, rtol=tolerances.T2_RTOL)
