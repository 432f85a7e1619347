"""Complex word embeddings (Wang et al. 2020, section 2; R-ABS-10) in NumPy's complex numbers."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import TINY_IDS, TINY_MODEL
from initial_values import WIDTH, equal
from tolerances import T1_ATOL, T1_RTOL, T2_ATOL, T2_RTOL, T4_MAX

# The authors' program: frequencies of dimensions are those of sinusoids.
REFUSED = {"complex": [
    ({"embedding_size": 5}, "embedding_size must be even for complex, got 5"),
    ({"vocab_size": 11, "share": "layers"}, 'complex.share must be one of none, words, dimensions, got "layers"'),
    ({}, "vocab_size must be given for complex, got 0"),
]}  # fmt: skip
STARTS = {"complex": {"word_freqs": equal(10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2)))}}

V, E = 11, 6
IDS = torch.tensor([[3, 3, 0, 10, 7], [1, 2, 3, 4, 3]])
POSITIONS = torch.tensor([[0, 1, 2, 3, 511], [5, 6, 7, 8, 100000]])
SHARES = {"none": (V, E // 2), "words": (E // 2,), "dimensions": (V, 1)}


def encoding_of(share, **changes):
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


def drawn(share, dtype=torch.float64):
    encoding = encoding_of(share).to(dtype)
    with torch.no_grad():
        frequencies_of(encoding).copy_(torch.from_numpy(np.random.default_rng(1).standard_normal(SHARES[share])))
    return encoding, torch.from_numpy(np.random.default_rng(0).standard_normal((2, 5, E))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("share", SHARES)
def test_words_are_those_of_the_paper(share, dtype):
    """Angles of float32 too: at position 100000 a rounded one would be wrong in its second digit."""
    encoding, words = drawn(share, dtype)
    ours = encoding.words(words, IDS, POSITIONS).detach().numpy()
    frequencies = frequencies_of(encoding).detach().double().numpy()
    expected = of_the_paper(words.double().numpy(), frequencies, IDS.numpy(), POSITIONS.numpy())
    atol, rtol = (T1_ATOL, T1_RTOL) if dtype == torch.float64 else (T2_ATOL, T2_RTOL)
    assert ours.dtype == words.numpy().dtype
    np.testing.assert_allclose(ours, expected, atol=atol, rtol=rtol)
    assert np.abs(ours - words.numpy()).max() > 1
    row = encoding.words(words, IDS, POSITIONS[0]).detach()  # positions of every row
    assert torch.equal(row[0], torch.from_numpy(ours)[0]) and not torch.equal(row[1], torch.from_numpy(ours)[1])


def test_starts_as_sinusoids_do():
    sinusoids = 10000.0 ** (-2 * np.arange(E // 2) / E)
    for share in ("none", "words"):
        start = frequencies_of(encoding_of(share)).detach().numpy()
        np.testing.assert_allclose(start, np.broadcast_to(sinusoids, SHARES[share]), rtol=T2_RTOL)
    drawn_V1 = frequencies_of(encoding_of("dimensions", vocab_size=1000))
    assert 0 <= drawn_V1.min() < 0.1 and 0.9 < drawn_V1.max() < 1


def test_a_model_is_one_without_positions_over_turned_words():
    """Also where embeddings are narrower than the model."""
    torch.manual_seed(0)
    sizes = TINY_MODEL | {"embedding_size": 8}
    ours = roformer_cpp.build_model(sizes | {"position_encoding": "complex"})
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    state = ours.state_dict()
    frequencies = state.pop("position_encoding.word_freqs").double().numpy()
    (words,) = (name for name in state if name.endswith("word_embeddings.weight"))
    plain = roformer_cpp.build_model(sizes | {"position_encoding": "none"})
    for row in TINY_IDS:  # whose tokens differ, so that each has one position
        turned = state[words].double().numpy().copy()
        turned[row] = of_the_paper(turned[row], frequencies, row.numpy(), np.arange(len(row)))
        plain.load_state_dict(state | {words: torch.from_numpy(turned).float()})
        with torch.no_grad():
            got, expected = ours.encode(row[None]), plain.encode(row[None])
        assert (got - expected).abs().max() <= T4_MAX * expected.abs().max()
    plain.load_state_dict(state)
    with torch.no_grad():
        assert (got - plain.encode(TINY_IDS[-1:])).abs().max() > 0.01


@pytest.mark.parametrize("words, ids, positions, message", [
    (torch.zeros(1, 2, E), [[0, V]], [0, 1], r"\[complex\] token ids must be in 0..10, got 11"),
    (torch.zeros(1, 2, E), [[-1, 0]], [0, 1], r"token ids must be in 0..10, got -1"),
    (torch.zeros(1, 2, 4), [[0, 1]], [0, 1], "words must have the 6 elements of an embedding, got 4"),
    (torch.zeros(2, E), [[0, 1]], [0, 1], r"words must be \[batch, tokens, embedding_size\] .* got \[2, 6\]"),
    (torch.zeros(1, 2, E), [[0, 1]], [0, 1, 2], "positions must be those of the 2 tokens of a row, got"),
])  # fmt: skip
def test_refuses_words(words, ids, positions, message):
    with pytest.raises(ValueError, match=message):
        encoding_of("none").words(words, torch.tensor(ids), torch.tensor(positions))


def test_words_are_changed_once():
    scaled = roformer_cpp.encoding("sinusoidal", embedding_size=E, scale_embedding=True)
    with pytest.raises(
        ValueError, match=r"\[position_encoding\] word embeddings must be changed by one encoding, got 2"
    ):
        roformer_cpp.combine_encodings([encoding_of("none"), scaled])
    plain = roformer_cpp.encoding("sinusoidal", embedding_size=E)
    combined, alone = roformer_cpp.combine_encodings([plain, encoding_of("none")]), encoding_of("none")
    words = torch.ones(2, 5, E)
    assert torch.equal(combined.words(words, IDS, POSITIONS), alone.words(words, IDS, POSITIONS))
