"""The half layout beside transformers' RoFormerSinusoidalPositionalEmbedding: R-ABS-04."""

import numpy as np
import pytest
import torch
from transformers.models.roformer.modeling_roformer import RoFormerSinusoidalPositionalEmbedding

import roformer_cpp
import tolerances as tol


@pytest.mark.parametrize("width", [8, 9, 64])
def test_half_layout(width):
    table = RoFormerSinusoidalPositionalEmbedding(600, width).create_weight()
    ours = roformer_cpp.encoding("sinusoidal", embedding_size=width, layout="half").input(torch.arange(600))[0]
    np.testing.assert_allclose(ours.numpy(), table.numpy(), atol=tol.TABLE_F32, rtol=tol.eps("float32"))
