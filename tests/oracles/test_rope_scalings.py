"""Every scaling of rotary embedding: the float32 way bit for bit that of transformers' rotary modules, and the default
within 1e-7 of mpmath to position 2^31 (R-CONV-12, R-ROPE-10, R-ROPE-12)."""

import mpmath
import pytest
import torch
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import roformer_cpp
import rope_scaling_reference as reference
import tolerances
from rope_scaling_reference import CONFIGURATIONS, HEAD_DIM

TRAINED = 512
LENGTHS = [1, 7, 256, 257, 512, 513, 3000]
POSITIONS = [0, 1, 2, 511, 512, 4095, 131071, 1048575, 2**31 - 1, 2**31]
THEIRS = {name: given for name, given in CONFIGURATIONS.items() if given["rope_type"] not in reference.OURS}


def ours(parameters, **keys):
    return roformer_cpp.encoding("rope", head_dim=HEAD_DIM, max_position_embeddings=TRAINED,
                                 rope_parameters=parameters, **keys)  # fmt: skip


def their_rows(parameters, positions):
    """cos and sin [T, R/2] of the module of transformers."""
    config = LlamaConfig(hidden_size=HEAD_DIM, num_attention_heads=1, head_dim=HEAD_DIM,
                         max_position_embeddings=TRAINED, rope_parameters=dict(parameters))  # fmt: skip
    module = LlamaRotaryEmbedding(config)
    if parameters["rope_type"] == "default":  # Llama's own default has no partial rotation
        dim = reference.rotary_dim(parameters, HEAD_DIM)
        module.inv_freq = 1.0 / (parameters["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float) / dim))
    cos, sin = module(torch.zeros(1), positions[None])
    pairs = cos.shape[-1] // 2
    return cos[0, :, :pairs], sin[0, :, :pairs]


@pytest.mark.parametrize("name", THEIRS)
def test_float32_rows_are_those_of_the_rotary_module(name):
    for length in LENGTHS:
        positions = torch.arange(length)
        rotation = ours(THEIRS[name], precision="float32").terms(positions).query
        cos, sin = their_rows(THEIRS[name], positions)
        assert torch.equal(rotation.cos[0], cos) and torch.equal(rotation.sin[0], sin), length


def worst_error(rotation, position, theta, scale):
    worst = mpmath.mpf(0)
    for i, frequency in enumerate(theta):
        angle = position * frequency
        worst = max(worst, abs(scale * mpmath.cos(angle) - mpmath.mpf(rotation.cos[0, 0, i].item())),
                    abs(scale * mpmath.sin(angle) - mpmath.mpf(rotation.sin[0, 0, i].item())))  # fmt: skip
    return float(worst / scale)


@pytest.mark.parametrize(
    "dtype, bound", [(torch.float32, tolerances.SCALED_F32), (torch.float64, tolerances.SCALED_F64)]
)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_default_precision_against_mpmath(name, dtype, bound):
    parameters = CONFIGURATIONS[name]
    encoding = ours(parameters)
    with mpmath.workdps(reference.DIGITS):
        scale = reference.attention_factor(parameters, TRAINED)
        for position in POSITIONS:
            theta = reference.frequencies(parameters, HEAD_DIM, position + 1, TRAINED)
            rotation = encoding.terms(torch.tensor([position]), dtype=dtype).query
            assert rotation.cos.shape[-1] == len(theta)
            assert worst_error(rotation, position, theta, scale) <= bound, position
