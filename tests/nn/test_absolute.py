"""What is added to the input: a trained vector for each position (R-ABS-01, R-ABS-02), and sinusoids, interleaved
(R-ABS-03), half (R-ABS-04) and sine-only (R-ABS-05), with scaled words (R-ABS-09).
Complex words (Wang et al. 2020, section 2; R-ABS-10) in NumPy's complex numbers, and FLOATER (Liu et al. 2020;
R-ABS-11), which is added in every layer, by Runge-Kutta steps."""

import copy
import math
from functools import partial

import mpmath
import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_IDS, TINY_MODEL, Case, assert_same, parameter, perturbed
from initial_values import WIDTH, equal, normal, zero
from tolerances import T1_ATOL, T1_RTOL, T2_ATOL, T2_RTOL

STARTS = {"learned": {"weight": normal}}
REFUSED = {"sinusoidal": [
    ({"scale_embedding": "sqrt"}, r'sinusoidal\.scale_embedding must be true or false, got "sqrt"'),
    ({"layout": "pairs"}, 'sinusoidal.layout must be one of interleaved, half, sine-only, got "pairs"'),
]}  # fmt: skip

ROWS, SIZE = 6, 4


def test_learned_rows_and_their_gradient():
    """Which is the sum over the tokens of a position."""
    encoding = roformer_cpp.encoding("learned", max_position_embeddings=ROWS, embedding_size=SIZE).double()
    positions, dx = np.array([[3, 0, 5], [3, 1, 2]]), np.random.default_rng(0).standard_normal((2, 3, SIZE))
    added = encoding.input(torch.from_numpy(positions), dtype=torch.float64)
    np.testing.assert_array_equal(added.detach().numpy(), encoding.weight.detach().numpy()[positions])
    added.backward(torch.from_numpy(dx))
    expected = np.zeros((ROWS, SIZE))
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
    ours = perturbed(roformer_cpp.build_model(sizes | {"position_encoding": scaled}))
    plain = roformer_cpp.build_model(sizes | {"position_encoding": "sinusoidal"})
    state, types = ours.state_dict(), torch.ones_like(TINY_IDS)
    (words,) = (name for name in state if name.endswith("word_embeddings.weight"))
    plain.load_state_dict(state)
    got, unscaled = (model.encode(TINY_IDS, token_type_ids=types) for model in (ours, plain))
    plain.load_state_dict(state | {words: (3 * state[words].double()).float()})
    assert_same(got, plain.encode(TINY_IDS, token_type_ids=types))
    assert (got - unscaled).abs().max() > 0.01


# ---- complex words ----

# The authors' program: frequencies of dimensions are those of sinusoids.
REFUSED |= {"complex": [
    ({"embedding_size": 5}, "embedding_size must be even for complex, got 5"),
    ({"vocab_size": 11, "share": "layers"}, 'complex.share must be one of none, words, dimensions, got "layers"'),
    ({}, "vocab_size must be given for complex, got 0"),
]}  # fmt: skip
STARTS |= {"complex": {"word_freqs": equal(10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2)))}}

V, E = 11, 6
IDS = torch.tensor([[3, 3, 0, 10, 7], [1, 2, 3, 4, 3]])
PLACES = torch.tensor([[0, 1, 2, 3, 511], [5, 6, 7, 8, 100000]])
SHARES = {"none": (V, E // 2), "words": (E // 2,), "dimensions": (V, 1)}


def complex_of(share, **changes):
    options = {} if share == "none" else {"share": share}
    shape = {"vocab_size": V, "embedding_size": E} | changes
    return roformer_cpp.encoding("complex", num_attention_heads=1, head_dim=E, **shape, **options)


def of_the_paper(words, frequencies, ids, positions):
    """r e^{i (omega p + theta)} of each word and dimension, real and imaginary parts side by side. words: [.., E]."""
    pairs = words.reshape(*words.shape[:-1], -1, 2)
    r, theta = np.hypot(pairs[..., 0], pairs[..., 1]), np.arctan2(pairs[..., 1], pairs[..., 0])
    omega = frequencies if frequencies.ndim == 1 else frequencies[ids]
    z = r * np.exp(1j * theta) * np.exp(1j * (omega * positions[..., None]))  # a sum of angles rounds them
    return np.stack([z.real, z.imag], -1).reshape(words.shape)


def frequencies_of(encoding):
    (freqs,) = encoding.parameters()
    return freqs


def drawn_words(share, dtype=torch.float64):
    encoding = complex_of(share).to(dtype)
    with torch.no_grad():
        frequencies_of(encoding).copy_(torch.from_numpy(np.random.default_rng(1).standard_normal(SHARES[share])))
    return encoding, torch.from_numpy(np.random.default_rng(0).standard_normal((2, 5, E))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("share", SHARES)
def test_words_are_those_of_the_paper(share, dtype):
    """Angles of float32 too: at position 100000 a rounded one would be wrong in its second digit."""
    encoding, words = drawn_words(share, dtype)
    ours = encoding.words(words, IDS, PLACES).detach().numpy()
    frequencies = frequencies_of(encoding).detach().double().numpy()
    expected = of_the_paper(words.double().numpy(), frequencies, IDS.numpy(), PLACES.numpy())
    atol, rtol = (T1_ATOL, T1_RTOL) if dtype == torch.float64 else (T2_ATOL, T2_RTOL)
    assert ours.dtype == words.numpy().dtype
    np.testing.assert_allclose(ours, expected, atol=atol, rtol=rtol)
    assert np.abs(ours - words.numpy()).max() > 1
    row = encoding.words(words, IDS, PLACES[0]).detach()  # positions of every row
    assert torch.equal(row[0], torch.from_numpy(ours)[0]) and not torch.equal(row[1], torch.from_numpy(ours)[1])


def test_starts_as_sinusoids_do():
    sinusoids = 10000.0 ** (-2 * np.arange(E // 2) / E)
    for share in ("none", "words"):
        start = frequencies_of(complex_of(share)).detach().numpy()
        np.testing.assert_allclose(start, np.broadcast_to(sinusoids, SHARES[share]), rtol=T2_RTOL)
    drawn_V1 = frequencies_of(complex_of("dimensions", vocab_size=1000))
    assert 0 <= drawn_V1.min() < 0.1 and 0.9 < drawn_V1.max() < 1
    assert frequencies_of(complex_of("none", vocab_size=1)).shape == (1, E // 2)


def test_a_model_is_one_without_positions_over_turned_words():
    """Also where embeddings are narrower than the model."""
    sizes = TINY_MODEL | {"embedding_size": 8}
    ours = perturbed(roformer_cpp.build_model(sizes | {"position_encoding": "complex"}))
    state = ours.state_dict()
    frequencies = state.pop("position_encoding.word_freqs").double().numpy()
    (words,) = (name for name in state if name.endswith("word_embeddings.weight"))
    plain = roformer_cpp.build_model(sizes | {"position_encoding": "none"})
    for row in TINY_IDS:  # whose tokens differ, so that each has one position
        turned = state[words].double().numpy().copy()
        turned[row] = of_the_paper(turned[row], frequencies, row.numpy(), np.arange(len(row)))
        plain.load_state_dict(state | {words: torch.from_numpy(turned).float()})
        assert_same(ours.encode(row[None]), plain.encode(row[None]))
    plain.load_state_dict(state)
    assert (ours.encode(TINY_IDS) - plain.encode(TINY_IDS)).abs().max() > 0.01


@pytest.mark.parametrize("words, ids, positions, message", [
    (torch.zeros(1, 2, E), [[0, V]], [0, 1], r"\[complex\] token ids must be in 0..10, got 11"),
    (torch.zeros(1, 2, E), [[-1, 0]], [0, 1], r"token ids must be in 0..10, got -1"),
    (torch.zeros(1, 2, 4), [[0, 1]], [0, 1], "words must have the 6 elements of an embedding, got 4"),
    (torch.zeros(2, E), [[0, 1]], [0, 1], r"words must be \[batch, tokens, embedding_size\] .* got \[2, 6\]"),
    (torch.zeros(1, 2, E), [[0, 1]], [0, 1, 2], "positions must be those of the 2 tokens of a row, got"),
])  # fmt: skip
def test_refuses_words(words, ids, positions, message):
    with pytest.raises(ValueError, match=message):
        complex_of("none").words(words, torch.tensor(ids), torch.tensor(positions))


def test_words_are_changed_once():
    scaled = roformer_cpp.encoding("sinusoidal", embedding_size=E, scale_embedding=True)
    message = r"\[position_encoding\] word embeddings must be changed by one encoding, got 2"
    with pytest.raises(ValueError, match=message):
        roformer_cpp.combine_encodings([complex_of("none"), scaled])
    plain = roformer_cpp.encoding("sinusoidal", embedding_size=E)
    combined, alone = roformer_cpp.combine_encodings([plain, complex_of("none")]), complex_of("none")
    words = torch.ones(2, 5, E)
    assert torch.equal(combined.words(words, IDS, PLACES), alone.words(words, IDS, PLACES))


# ---- FLOATER ----

REFUSED |= {"floater": [
    ({"time_step": 0}, "floater.time_step must be .* got 0"),
    ({"time_step": float("inf")}, "options must be finite numbers"),
    ({"time_step": "slow"}, "floater.time_step must be"),
    ({"steps": 0}, "floater.steps must be .* got 0"),
    ({"steps": 1.5}, "floater.steps must be"),
]}  # fmt: skip

SWEEP_KEYS = {"floater": {"time_step": 0.05}}
# The authors' program: Xavier's normal draw, and biases 0.
XAVIER = partial(normal, deviation=math.sqrt(2 / (2 * WIDTH + 1)))
STARTS["floater"] = {"start": normal, "h.0.weight": XAVIER, "h.1.weight": XAVIER, "h.0.bias": zero, "h.1.bias": zero}

C, LAYERS, DT = 6, 2, 0.25
AT = [0, 1, 2, 5, 3, 0]


def floater_of(**options):
    return Case(width=C).encoding("floater", num_hidden_layers=LAYERS, **{"time_step": DT} | options)


def network(encoding):
    w_1, b_1, w_2, b_2 = (parameter(encoding, f"h.{i}.{what}") for i in (0, 1) for what in ("weight", "bias"))

    def h(t, p):
        inner = np.maximum(w_1 @ np.append(p, t) + b_1, 0)
        return w_2 @ np.append(inner, t) + b_2

    return h


def runge_kutta(h, p, positions, time_step, steps):
    """The solution at positions 0, 1, .."""
    rows, t, dt = [p], 0.0, time_step / steps
    for _ in range(positions - 1):
        for _ in range(steps):
            a = h(t, p)
            b = h(t + dt / 2, p + dt / 2 * a)
            c = h(t + dt / 2, p + dt / 2 * b)
            d = h(t + dt, p + dt * c)
            p, t = p + dt * (a + 2 * b + 2 * c + d) / 6, t + dt
        rows.append(p)
    return np.array(rows)


def layer_input(encoding, positions, layer):
    return encoding.layer_input(torch.as_tensor(positions), layer=layer, dtype=torch.float64).detach().numpy()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("layer", range(LAYERS))
def test_vectors_are_those_of_the_equation(layer, steps):
    encoding = floater_of(steps=steps)
    rows = runge_kutta(network(encoding), parameter(encoding, f"layer.{layer}.start"), 6, DT, steps)
    np.testing.assert_allclose(layer_input(encoding, AT, layer)[0], rows[AT], atol=T1_ATOL, rtol=T1_RTOL)
    assert np.abs(np.diff(rows, axis=0)).max(1).min() > 0.01
    batch = layer_input(encoding, [AT, AT[::-1]], layer)
    np.testing.assert_allclose(batch, rows[[AT, AT[::-1]]], atol=T1_ATOL, rtol=T1_RTOL)


def test_a_model_projects_the_sum():
    """With all tokens at one position, W (x + p) + b is a model without positions whose biases are b + W p."""
    floater = {"type": "floater", "time_step": DT}
    ours = perturbed(roformer_cpp.build_model(TINY_MODEL | {"position_encoding": floater}))
    state, encoding = ours.state_dict(), copy.deepcopy(ours.position_encoding).double()
    state = {name: value for name, value in state.items() if "position_encoding" not in name}
    plain, results = roformer_cpp.build_model(TINY_MODEL | {"position_encoding": "none"}), []
    for at in (0, 3):
        shifted = dict(state)
        for layer in range(2):
            rows = runge_kutta(network(encoding), parameter(encoding, f"layer.{layer}.start"), at + 1, DT, 1)
            for side in ("query", "key", "value"):
                (name,) = (n for n in state if n.endswith(f"layer.{layer}.attention.self.{side}.weight"))
                bias = name.replace("weight", "bias")
                shifted[bias] = (state[bias].double() + state[name].double() @ torch.from_numpy(rows[at])).float()
        plain.load_state_dict(shifted)
        results.append(ours.encode(TINY_IDS, positions=torch.full_like(TINY_IDS, at)))
        assert_same(results[-1], plain.encode(TINY_IDS))
    assert (results[0] - results[1]).abs().max() > 0.01


def test_combined_vectors_are_added():
    sinusoidal = roformer_cpp.encoding("sinusoidal", embedding_size=C, num_hidden_layers=2)
    parts = [floater_of(), sinusoidal, floater_of(time_step=1.0)]
    combined, at, given = roformer_cpp.combine_encodings(parts), torch.arange(4), {"layer": 1, "dtype": torch.float64}
    expected = parts[0].layer_input(at, **given) + parts[2].layer_input(at, **given)
    assert torch.equal(combined.layer_input(at, **given), expected)
    assert torch.equal(combined.input(at), parts[1].input(at)) and parts[1].layer_input(at) is None


@pytest.mark.parametrize("position", [-1, 65536])
def test_refuses_positions(position):
    message = rf"\[floater\] positions must be in 0..65535, up to which the equation is solved, got {position}"
    with pytest.raises(ValueError, match=message):
        floater_of().layer_input(torch.tensor([0, position]))
