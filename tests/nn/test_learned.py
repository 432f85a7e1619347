"""A trained vector for each position: R-ABS-01, R-ABS-02."""

import numpy as np
import pytest
import torch

import roformer_cpp
from initial_values import normal
from pair_loops import array, assert_t1, perturb

STARTS = {"learned": {"weight": normal}}

L, E = 6, 4


def learned():
    return perturb(roformer_cpp.encoding("learned", max_position_embeddings=L, embedding_size=E))


def test_rows_by_position():
    torch.manual_seed(0)
    encoding = learned()
    positions = torch.tensor([[3, 0, 5], [1, 1, 2]])
    added = encoding.input(positions, dtype=torch.float64)
    table = array(encoding.weight)
    assert_t1(added, np.array([[table[p] for p in row] for row in positions.tolist()]))


def test_gradient_is_the_sum_over_tokens_of_a_position():
    torch.manual_seed(0)
    encoding = learned()
    positions = torch.tensor([[3, 0, 5], [3, 1, 2]])
    dx = torch.randn(2, 3, E, dtype=torch.float64)
    encoding.input(positions, dtype=torch.float64).backward(dx)
    expected = np.zeros((L, E))
    for b, t in np.ndindex(2, 3):
        expected[positions[b, t]] += array(dx)[b, t]
    assert_t1(encoding.weight.grad, expected)


@pytest.mark.parametrize("position", [L, -1])
def test_positions_beyond_the_table(position):
    message = rf"positions must be in 0..{L - 1}, the rows of the table \(max_position_embeddings\), got {position}"
    with pytest.raises(ValueError, match=message):
        learned().input(torch.tensor([0, position]))
