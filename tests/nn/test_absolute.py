"""What is added to the input: a trained vector for each position (R-ABS-01, R-ABS-02), and sinusoids, interleaved
(R-ABS-03), half (R-ABS-04) and sine-only (R-ABS-05), with scaled words (R-ABS-09)."""

import mpmath
import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_IDS, TINY_MODEL
from initial_values import normal

STARTS = {"learned": {"weight": normal}}
REFUSED = {"sinusoidal": [
    ({"scale_embedding": "sqrt"}, r'sinusoidal\.scale_embedding must be true or false, got "sqrt"'),
    ({"layout": "pairs"}, 'sinusoidal.layout must be one of interleaved, half, sine-only, got "pairs"'),
]}  # fmt: skip

ROWS, WIDTH = 6, 4


def test_learned_rows_and_their_gradient():
    """Which is the sum over the tokens of a position."""
    encoding = roformer_cpp.encoding("learned", max_position_embeddings=ROWS, embedding_size=WIDTH).double()
    positions, dx = np.array([[3, 0, 5], [3, 1, 2]]), np.random.default_rng(0).standard_normal((2, 3, WIDTH))
    added = encoding.input(torch.from_numpy(positions), dtype=torch.float64)
    np.testing.assert_array_equal(added.detach().numpy(), encoding.weight.detach().numpy()[positions])
    added.backward(torch.from_numpy(dx))
    expected = np.zeros((ROWS, WIDTH))
    np.add.at(expected, positions, dx)
    np.testing.assert_allclose(encoding.weight.grad.numpy(), expected, atol=tol.T1_ATOL, rtol=tol.T1_RTOL)
    for position in (ROWS, -1):
        rule = rf"positions must be in 0..{ROWS - 1}, the rows of the table \(max_position_embeddings\), got {position}"
        with pytest.raises(ValueError, match=rule):
            encoding.input(torch.tensor([0, position]))


POSITIONS = [0, 1, 2, 511, 1535, 100000]


def element(layout, position, i, width):
    """Element i of a row, to 40 digits."""
    with mpmath.workdps(40):
        sines = (width + 1) // 2
        step, wave = {
            "interleaved": (i - i % 2, mpmath.cos if i % 2 else mpmath.sin),
            "half": (2 * (i % sines), mpmath.sin if i < sines else mpmath.cos),
            "sine-only": (i, mpmath.sin),
        }[layout]
        return wave(position * mpmath.mpf(10000) ** (-mpmath.mpf(step) / width))


def rows(layout, positions, width, dtype=torch.float32):
    config = {} if layout == "interleaved" else {"layout": layout}
    encoding = roformer_cpp.encoding("sinusoidal", embedding_size=width, **config)
    return encoding.input(torch.tensor(positions), dtype=dtype)[0]


@pytest.mark.parametrize("width", [1, 7, 8, 200])
@pytest.mark.parametrize("layout", ["interleaved", "half", "sine-only"])
def test_exact_values(layout, width):
    exact = np.array([[float(element(layout, position, i, width)) for i in range(width)] for position in POSITIONS])
    single, double = rows(layout, POSITIONS, width), rows(layout, POSITIONS, width, torch.float64)
    assert single.dtype == torch.float32 and double.dtype == torch.float64
    np.testing.assert_allclose(single.double().numpy(), exact, atol=tol.TABLE_F32, rtol=0)
    np.testing.assert_allclose(double.numpy(), exact, atol=tol.TABLE_F64, rtol=0)


def test_half_precision_rounds_the_float32_rows():
    low = rows("interleaved", POSITIONS, 16, torch.bfloat16)
    assert torch.equal(low, rows("interleaved", POSITIONS, 16).bfloat16())


def test_scaled_words_are_vaswanis():
    """sqrt(E) w + p, and token types as they are: the embeddings of a model beside another's whose words are scaled."""
    sizes = TINY_MODEL | {"embedding_size": 9}  # no square, and another width than the model's
    scaled = {"type": "sinusoidal", "scale_embedding": True}
    torch.manual_seed(0)
    ours = roformer_cpp.build_model(sizes | {"position_encoding": scaled})
    plain = roformer_cpp.build_model(sizes | {"position_encoding": "sinusoidal"})
    state = {name: value + 0.3 * torch.randn(value.shape) for name, value in ours.state_dict().items()}
    ours.load_state_dict(state)
    (words,) = (name for name in state if name.endswith("word_embeddings.weight"))
    types = torch.ones_like(TINY_IDS)
    with torch.no_grad():
        plain.load_state_dict(state)
        unscaled = plain.encode(TINY_IDS, token_type_ids=types)
        plain.load_state_dict(state | {words: (3 * state[words].double()).float()})
        got, expected = ours.encode(TINY_IDS, token_type_ids=types), plain.encode(TINY_IDS, token_type_ids=types)
    assert (got - expected).abs().max() <= tol.T4_MAX * expected.abs().max()
    assert (got - unscaled).abs().max() > 0.01
