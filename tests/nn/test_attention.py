"""Attention over terms (nn/src/attention*.cpp) against the float64 loops of attention_reference.py: R-ATT-02, C-11."""

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from attention_reference import reference, window_mask
from roformer_cpp import DistanceTable, Rotation, Terms

D = 6


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def table(heads, lo, hi, *width, dtype=torch.float64):
    return DistanceTable(draw(heads, hi - lo + 1, *width, dtype=dtype), lo, hi)


def all_terms(batch, queries, keys, heads, dtype=torch.float64):
    """Every term at once; windows narrower and wider than the distances, of one side and of both."""
    rows = torch.float64 if dtype == torch.float64 else torch.float32

    def rotation(rows_of, tokens, pairs):
        return Rotation(draw(rows_of, tokens, pairs, dtype=rows), draw(rows_of, tokens, pairs, dtype=rows))

    return Terms(
        query=rotation(batch, queries, 2),
        key=rotation(1, keys, 2),
        value=rotation(1, keys, 1),
        content_bias=draw(heads, D, dtype=dtype),
        position_bias=draw(heads, D, dtype=dtype),
        key_table=table(heads, -3, 2, D, dtype=dtype),
        query_table=table(1, -30, 2, D, dtype=dtype),
        value_table=table(heads, -1, 2, D, dtype=dtype),
        bias=table(heads, -40, 40, dtype=dtype),
        gate=table(1, -1, 1, D, dtype=dtype),
        position_query=draw(heads, 40, D, dtype=dtype),
        position_key=draw(heads, 40, D, dtype=dtype),
        reset_row=draw(heads, dtype=dtype),
        reset_col=draw(heads, dtype=dtype),
        scale=0.3,
    )


SHAPES = [(2, 5, 7, 4, 2), (1, 1, 3, 2, 2), (2, 6, 6, 2, 1), (1, 4, 1, 2, 2), (0, 3, 3, 2, 2), (1, 1, 1, 1, 1)]


def data(batch, queries, keys, heads, key_heads, dtype=torch.float64):
    return (
        draw(batch, queries, heads, D, dtype=dtype),
        draw(batch, keys, key_heads, D, dtype=dtype),
        draw(batch, keys, key_heads, D, dtype=dtype),
    )


def positions_of(kind, batch, queries, keys):
    if kind == "steps":
        return torch.arange(2, 2 + queries), torch.arange(keys)
    generator = torch.Generator().manual_seed(3)
    return (
        torch.randint(0, 20, (batch, queries), generator=generator),
        torch.randint(0, 20, (1, keys), generator=generator),
    )


@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize("kind", ["steps", "scattered"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_terms(shape, kind, layout):
    torch.manual_seed(0)
    batch, queries, keys, heads, _ = shape
    q, k, v = data(*shape)
    terms = all_terms(max(batch, 1), queries, keys, heads)
    terms.layout = layout
    positions, key_positions = positions_of(kind, max(batch, 1), queries, keys)
    for causal in (False, True):
        out = roformer_cpp.attention(
            q, k, v, terms, positions=positions, key_positions=key_positions, is_causal=causal, window=3
        )
        expected = reference(
            q, k, v, terms, positions, key_positions, window_mask(queries, keys, 3, 0 if causal else 3)
        )
        np.testing.assert_allclose(out, expected, atol=tol.T1_ATOL, rtol=tol.T1_RTOL)
