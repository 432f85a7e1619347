"""roformer::rope beside the rotary functions of transformers (spec R-ROPE-06, R-ROPE-09)."""

import numpy as np
import pytest
import torch
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as gpt_neox_rope
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rope
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rope
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention, RoFormerSinusoidalPositionalEmbedding

import roformer_cpp
import rope_reference
import tolerances

TOKENS, HEADS, HEAD_DIM = 1536, 3, 64


def random_BHTD(dtype=torch.float32):
    return torch.randn(2, HEADS, TOKENS, HEAD_DIM, generator=torch.Generator().manual_seed(0)).to(dtype)


def table(dtype, repeat):
    """cos and sin of every position in float64, rounded to dtype; [1, T, D] with each angle twice."""
    factor = rope_reference.rotation(np.arange(TOKENS), HEAD_DIM // 2)
    return [torch.from_numpy(repeat(part))[None].to(dtype) for part in (factor.real, factor.imag)]


def test_roformer():
    x = random_BHTD()
    embedding = RoFormerSinusoidalPositionalEmbedding(TOKENS, HEAD_DIM)
    embedding.weight = torch.nn.Parameter(embedding.create_weight(), requires_grad=False)
    sinusoidal = embedding((2, TOKENS))[None, None]
    theirs, _ = RoFormerSelfAttention.apply_rotary_position_embeddings(sinusoidal, x, x)
    ours = roformer_cpp.rope(x, torch.arange(TOKENS), layout="pairs", heads_first=True)
    torch.testing.assert_close(ours, theirs, atol=tolerances.T2_ATOL, rtol=tolerances.T2_RTOL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_roformer_function_on_exact_tables(dtype):
    x = random_BHTD(dtype)
    factor = rope_reference.rotation(np.arange(TOKENS), HEAD_DIM // 2)
    sinusoidal = torch.from_numpy(np.concatenate([factor.imag, factor.real], -1)).to(dtype)[None, None]
    theirs, _ = RoFormerSelfAttention.apply_rotary_position_embeddings(sinusoidal, x, x)
    ours = roformer_cpp.rope(x, torch.arange(TOKENS), layout="pairs", heads_first=True)
    atol, rtol = {
        torch.float32: (tolerances.T2_ATOL, tolerances.T2_RTOL),
        torch.float64: (tolerances.T1_ATOL, tolerances.T1_RTOL),
    }[dtype]
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=rtol)


def test_gptj_function_on_exact_tables():
    x = random_BHTD().transpose(1, 2).contiguous()
    factor = rope_reference.rotation(np.arange(TOKENS), HEAD_DIM // 2)
    cos, sin = (torch.from_numpy(part.copy())[None].float() for part in (factor.real, factor.imag))
    ours = roformer_cpp.rope(x, torch.arange(TOKENS), layout="pairs")
    torch.testing.assert_close(ours, gptj_rope(x, sin, cos), atol=tolerances.T2_ATOL, rtol=tolerances.T2_RTOL)


@pytest.mark.parametrize("function", [gpt_neox_rope, llama_rope], ids=["gpt_neox", "llama"])
def test_half_split_functions_on_exact_tables(function):
    x = random_BHTD()
    cos, sin = table(torch.float32, lambda part: np.concatenate([part, part], -1))
    theirs, _ = function(x, x, cos, sin)
    ours = roformer_cpp.rope(x, torch.arange(TOKENS), layout="halves", heads_first=True)
    torch.testing.assert_close(ours, theirs, atol=tolerances.T2_ATOL, rtol=tolerances.T2_RTOL)


def test_gpt_neox_partial_rotation():
    x, rotary_dim = random_BHTD(), 16
    factor = rope_reference.rotation(np.arange(TOKENS), rotary_dim // 2)
    cos, sin = (torch.from_numpy(np.concatenate([p, p], -1)).float()[None] for p in (factor.real, factor.imag))
    theirs, _ = gpt_neox_rope(x, x, cos, sin)
    ours = roformer_cpp.rope(x, torch.arange(TOKENS), layout="halves", heads_first=True, rotary_dim=rotary_dim)
    torch.testing.assert_close(ours, theirs, atol=tolerances.T2_ATOL, rtol=tolerances.T2_RTOL)


def test_float32_angles_explain_the_rest():
    """With their own tables, GPT-J and Llama differ from us by the rounding of m theta to float32, and no more."""
    x = random_BHTD()
    positions = torch.arange(TOKENS)
    magnitude = np.abs(x.numpy()).max() * 2
    allowed = tolerances.FLOAT32_ANGLE_EPS_FACTOR * tolerances.eps("float32") * TOKENS * magnitude

    sin, cos = create_sinusoidal_positions(TOKENS, HEAD_DIM)[None].chunk(2, -1)
    theirs = gptj_rope(x.transpose(1, 2), sin, cos).transpose(1, 2)
    ours = roformer_cpp.rope(x, positions, layout="pairs", heads_first=True)
    assert tolerances.T2_ATOL < (ours - theirs).abs().max().item() <= allowed

    config = LlamaConfig(hidden_size=HEADS * HEAD_DIM, num_attention_heads=HEADS)
    cos, sin = LlamaRotaryEmbedding(config)(x, positions[None])
    theirs, _ = llama_rope(x, x, cos, sin)
    ours = roformer_cpp.rope(x, positions, layout="halves", heads_first=True)
    assert tolerances.T2_ATOL < (ours - theirs).abs().max().item() <= allowed
