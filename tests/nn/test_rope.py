"""The encoding `rope` beside its equations (arXiv 2104.09864 Eq. 11-16 and 34; R-ROPE-01..13)."""

import numpy as np
import pytest
import torch

import roformer_cpp
import rope_reference
import tolerances
from rope_scaling_reference import CONFIGURATIONS, HEAD_DIM

REFUSED = {"rope": [
    ({"layout": "interleaved"}, r"rope.layout must be one of pairs, halves, got \"interleaved\""),
    ({"rotary_value": 1}, "rope.rotary_value must be true or false, got 1"),
    ({"rope_thet": 1e4}, "rope_thet"),
    ({"rope_parameters": {"rope_type": "yarn"}}, "rope.rope_parameters.factor must be given for rope_type yarn"),
    ({"head_dim": 7}, "even number"),
]}  # fmt: skip

SHIFTS = [1, 17, 4096, 100000]
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.25 * i for i in range(12)],
    "long_factor": [1.5 + 3.5 * i for i in range(12)],
    "original_max_position_embeddings": 64,
}

GOLDEN = {  # A.2: x = 1..8 by layout and position
    ("pairs", 1): [-1.142639663748, 1.922075596544, 2.585678829247, 4.279516911053, 4.939751002078, 6.049699169171,
                   6.991996501334, 8.006995998834],
    ("pairs", 3): [-1.27223251272, -1.838864985141, 1.683928640731, 4.707906576486, 4.81777716753, 6.147277703506,
                   6.975968536024, 8.020963968527],
    ("pairs", 1000): [-1.091380004773, 1.951637693113, 4.612419181302, 1.930178565821, -0.931230980046,
                      -7.754534728906, -2.949651737386, 10.2127153406],
    ("pairs", 100000): [-1.070858403382, -1.962972816904, -1.634008549224, -4.725464639701, -2.149381861739,
                        7.508672160404, 10.08715723489, 3.353991490533],
    ("halves", 3): [-1.6955925369, 0.1375517382832, 2.788681599829, 3.975982036013, -4.808842474942, 6.323059348076,
                    7.08683673685, 8.011963982027],
}  # fmt: skip


def random_THD(seed, tokens=5, heads=2, head_dim=HEAD_DIM):
    return np.random.default_rng(seed).standard_normal((tokens, heads, head_dim))


def scores(terms, q_THD, k_SHD):
    """q . k of every head, query and key, [H, T, S]."""
    q = rope_reference.turned(q_THD, [rows[0] for rows in terms.query], terms.layout)
    k = rope_reference.turned(k_SHD, [rows[0] for rows in terms.key], terms.layout)
    return np.einsum("thd,shd->hts", q, k)


def assert_same_rotation(ours, theirs):
    assert torch.equal(ours.cos, theirs.cos)
    assert torch.equal(ours.sin, theirs.sin)


@pytest.mark.parametrize("layout, position", GOLDEN)
def test_golden_numbers(layout, position):
    terms = roformer_cpp.encoding("rope", head_dim=8, layout=layout).terms(torch.tensor([position]), dtype=torch.double)
    x = np.arange(1.0, 9.0)[None, None]
    y = rope_reference.turned(x, [rows[0] for rows in terms.query], terms.layout)
    np.testing.assert_allclose(y[0, 0], GOLDEN[layout, position], rtol=tolerances.GOLDEN_RTOL)


def test_golden_scores():
    q, k = np.array([[[1.0, 2, 3, 4]]]), np.array([[[5.0, -6, 7, 8]]])
    encoding = roformer_cpp.encoding("rope", head_dim=4)
    golden = {(0, 0): 46, (5, 3): 41.2736747131744, (105, 103): 41.2736747131744, (3, 5): 70.5311817051429,
              (7, 0): 36.8013302641699, (0, 7): 58.3844442018714}  # fmt: skip
    for (m, n), expected in golden.items():
        terms = encoding.terms(torch.tensor([m]), torch.tensor([n]), dtype=torch.double)
        np.testing.assert_allclose(scores(terms, q, k)[0, 0, 0], expected, rtol=tolerances.GOLDEN_RTOL)


@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_those_of_the_equation(layout, dtype):
    positions = torch.tensor([[0, 1, 2, 511, 512], [4095, 16383, 131071, 1048575, 2**31]])
    rotation = roformer_cpp.encoding("rope", head_dim=64, layout=layout).terms(positions, dtype=dtype).query
    expected = rope_reference.rotation(positions.numpy(), 32)
    bound = {torch.float32: tolerances.TABLE_F32, torch.float64: tolerances.SCALED_F64}[dtype]
    assert rotation.cos.dtype == rotation.sin.dtype == dtype
    assert np.abs(rotation.cos.double().numpy() - expected.real).max() <= bound
    assert np.abs(rotation.sin.double().numpy() - expected.imag).max() <= bound


def test_layouts_agree_under_the_permutation():  # R-ROPE-09
    positions = torch.tensor([3, 0, 17, 4, 99])
    q, k = random_THD(0), random_THD(1)
    order = np.concatenate([np.arange(0, HEAD_DIM, 2), np.arange(1, HEAD_DIM, 2)])  # half[j] = pairs[order[j]]
    pairs, halves = (
        roformer_cpp.encoding("rope", head_dim=HEAD_DIM, layout=layout).terms(positions, dtype=torch.double)
        for layout in ("pairs", "halves")
    )
    np.testing.assert_allclose(scores(pairs, q, k), scores(halves, q[..., order], k[..., order]),
                               atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)  # fmt: skip


@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize("rotary_value", [False, True])
def test_attention_turns_queries_keys_and_values(layout, rotary_value):  # R-ROPE-05, R-ROPE-11
    q, k, v = (random_THD(seed) for seed in range(3))
    positions = torch.tensor([2, 3, 4, 5, 9])
    encoding = roformer_cpp.encoding("rope", head_dim=HEAD_DIM, layout=layout, rotary_value=rotary_value,
                                     partial_rotary_factor=0.5)  # fmt: skip
    terms = encoding.terms(positions, dtype=torch.double)
    ours = roformer_cpp.attention(*(torch.from_numpy(x)[None] for x in (q, k, v)), terms, positions=positions)
    reference = {"layout": layout, "rotary_dim": HEAD_DIM // 2}
    q, k = (rope_reference.rope(x, positions.numpy(), **reference) for x in (q, k))
    v = rope_reference.rope(v, positions.numpy(), **reference) if rotary_value else v
    weights = np.exp(np.einsum("thd,shd->hts", q, k) / np.sqrt(HEAD_DIM))
    expected = np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(ours[0].numpy(), expected, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)


@pytest.mark.parametrize("precision", ["exact", "float32"])
@pytest.mark.parametrize("parameters", [DYNAMIC, LONGROPE], ids=["dynamic", "longrope"])
class TestLength:
    """Scalings that follow the length: each sequence has the frequencies it would have alone."""

    LENGTHS = (10, 64, 65, 90, 200, 200)

    def encoding(self, parameters, precision):
        return roformer_cpp.encoding("rope", head_dim=HEAD_DIM, max_position_embeddings=64, rope_parameters=parameters,
                                     precision=precision)  # fmt: skip

    def test_padded_rows(self, parameters, precision):
        encoding, tokens = self.encoding(parameters, precision), max(self.LENGTHS)
        positions = torch.arange(tokens)
        sequences = torch.stack([torch.where(positions < length, 0, -1) for length in self.LENGTHS])
        batch = encoding.terms(positions, sequences=sequences)
        for row, length in enumerate(self.LENGTHS):
            alone = encoding.terms(torch.arange(length))
            for ours, theirs in ((batch.query, alone.query), (batch.key, alone.key)):
                assert torch.equal(ours.cos[row, :length], theirs.cos[0])
                assert torch.equal(ours.sin[row, :length], theirs.sin[0])

    def test_packed_sequences(self, parameters, precision):
        encoding = self.encoding(parameters, precision)
        positions = torch.cat([torch.arange(length) for length in self.LENGTHS])
        sequences = torch.repeat_interleave(torch.arange(len(self.LENGTHS)), torch.tensor(self.LENGTHS))[None]
        packed = encoding.terms(positions, sequences=sequences).query
        alone = [encoding.terms(torch.arange(length)).query for length in self.LENGTHS]
        assert torch.equal(packed.cos, torch.cat([rotation.cos for rotation in alone], 1))
        assert torch.equal(packed.sin, torch.cat([rotation.sin for rotation in alone], 1))

    def test_a_continuation_has_the_length_of_its_keys(self, parameters, precision):
        encoding = self.encoding(parameters, precision)
        whole = encoding.terms(torch.arange(90))
        last = encoding.terms(torch.tensor([89]), torch.arange(90))
        assert encoding.changes_with_length
        assert torch.equal(last.query.cos, whole.query.cos[:, -1:])
        assert_same_rotation(last.key, whole.key)

    def test_the_length_matters_beyond_training_only(self, parameters, precision):
        encoding = self.encoding(parameters, precision)
        short, trained, beyond = (encoding.terms(torch.arange(n)).query.cos[0, :10] for n in (10, 64, 65))
        assert torch.equal(short, trained)
        assert not torch.equal(trained, beyond)


class TestTrainable:
    @pytest.mark.parametrize(("kind", "own_name"), [(True, "freqs"), ("log", "log_freqs")])
    def test_starts_at_the_scaled_frequencies(self, kind, own_name):
        keys = {"head_dim": HEAD_DIM, "rope_parameters": CONFIGURATIONS["llama3-low"]}
        trained, fixed = roformer_cpp.encoding("rope", trainable=kind, **keys), roformer_cpp.encoding("rope", **keys)
        ((name, values),) = trained.named_parameters()
        assert (name, values.shape, values.dtype) == (own_name, (HEAD_DIM // 2,), torch.float32)
        assert not list(fixed.parameters())
        positions = torch.arange(3)
        torch.testing.assert_close(trained.terms(positions).query.cos, fixed.terms(positions).query.cos,
                                   atol=tolerances.T2_ATOL, rtol=tolerances.T2_RTOL)  # fmt: skip

    def test_gradcheck(self):
        encoding = roformer_cpp.encoding("rope", head_dim=8, trainable=True, rotary_value=True).double()
        q, k, v = (torch.from_numpy(random_THD(seed, tokens=3, head_dim=8))[None] for seed in range(3))

        def attend(freqs):
            return roformer_cpp.attention(q, k, v, encoding.terms(torch.tensor([0, 2, 5]), dtype=torch.double))

        assert encoding.freqs.dtype == torch.float64
        assert torch.autograd.gradcheck(attend, (encoding.freqs,), fast_mode=True)

    def test_gradients_of_logarithms_are_those_of_the_formula(self):
        """float64: autograd through cos and sin of p exp(lambda), written with torch's own operators."""
        head_dim, positions = 8, torch.tensor([0, 2, 5])
        encoding = roformer_cpp.encoding("rope", head_dim=head_dim, trainable="log").double()
        q, k, v = (torch.from_numpy(random_THD(seed, tokens=3, head_dim=head_dim))[None] for seed in range(3))

        def attend(log_freqs):
            return roformer_cpp.attention(q, k, v, encoding.terms(positions, dtype=torch.double))

        assert encoding.log_freqs.dtype == torch.float64
        (own,) = torch.autograd.grad(attend(None).square().sum(), encoding.log_freqs)

        log_freqs = encoding.log_freqs.detach().clone().requires_grad_()
        angle = positions.double()[:, None] * log_freqs.exp()

        def rotated(x_BTHD):
            a, b = x_BTHD[..., 0::2], x_BTHD[..., 1::2]
            cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

        scores = torch.einsum("bqhd,bkhd->bhqk", rotated(q), rotated(k)) / head_dim**0.5
        output = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        torch.testing.assert_close(attend(None), output, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)
        (theirs,) = torch.autograd.grad(output.square().sum(), log_freqs)
        torch.testing.assert_close(own, theirs, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)
        assert theirs.abs().min() > tolerances.T1_ATOL

    @pytest.mark.parametrize("value", ["logs", 1, None])
    def test_refuses_another_kind(self, value):
        with pytest.raises(ValueError, match=r'rope.trainable must be true, false or "log", got'):
            roformer_cpp.encoding("rope", trainable=value)

    def test_logarithms_need_frequencies_above_zero(self):
        still = {"rope_type": "hope", "original_max_position_embeddings": 16}
        with pytest.raises(ValueError, match=r'frequencies must be above 0 where trainable is "log", got 0'):
            roformer_cpp.encoding("rope", trainable="log", rope_parameters=still)

    def test_needs_frequencies_that_stay(self):
        with pytest.raises(ValueError, match=r"trainable must be false .* got true with rope_type dynamic"):
            roformer_cpp.encoding("rope", trainable=True, rope_parameters=DYNAMIC)
