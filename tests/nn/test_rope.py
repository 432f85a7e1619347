"""The encoding `rope`: scalings that follow the length, trained frequencies (R-ROPE-12), and clipped RoPE (Li et al.
2026) in the arithmetic of its authors; tests/oracles/test_rope_scalings.py compares the rows of every scaling with its
equation. And what changes magnitudes: `xpos` as arXiv 2212.10554 writes it, and scores scaled by log n
(kexue.fm/archives/8823; the program of ReRoPE, which clips).
ReRoPE and Leaky ReRoPE (Su 2023; R-REL-15) and FoPE (Hua et al. 2024; R-ROPE-12) against loops in float64."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import roformer_cpp
import rope_reference
import tolerances
from encoding_case import TINY_IDS, TINY_MODEL, Case, parameter
from initial_values import HEADS, normal
from rope_scaling_reference import CONFIGURATIONS, HEAD_DIM
from tolerances import T1_ATOL, T1_RTOL

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0 + 0.25 * i for i in range(12)]}
LONGROPE |= {"long_factor": [1.5 + 3.5 * i for i in range(12)], "original_max_position_embeddings": 64}
STILL = {"rope_type": "hope", "original_max_position_embeddings": 16}
CLIPPED = {"rope_type": "clipped", "clip_low_n": 5}

REFUSED = {
    "rope": [
        ({"layout": "interleaved"}, r"rope.layout must be one of pairs, halves, got \"interleaved\""),
        ({"rotary_value": 1}, "rope.rotary_value must be true or false, got 1"),
        ({"rope_thet": 1e4}, "rope_thet"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope.rope_parameters.factor must be given for rope_type yarn"),
        ({"head_dim": 7}, "even number"),
        ({"trainable": "logs"}, r'rope.trainable must be true, false or "log", got'),
        ({"trainable": 1}, r'rope.trainable must be true, false or "log", got'),
        ({"trainable": None}, r'rope.trainable must be true, false or "log", got'),
        ({"trainable": "log", "rope_parameters": STILL}, r'must be above 0 where trainable is "log", got 0'),
        ({"trainable": True, "rope_parameters": DYNAMIC}, r"trainable must be false .* with rope_type dynamic"),
        *[({"head_dim": 24, "rope_parameters": CLIPPED | {"clip_low_n": count}},
           rf"clip_low_n must be an integer from 2 to 12, got {count}") for count in (1, 13)],
        ({"log_n": "position", "partial_rotary_factor": 0.5}, "log_n needs all of the 64 elements .* got 32"),
        ({"log_n": "position", "trainable": True}, "log_n must be none where frequencies are trained"),
        ({"log_n": "position", "max_position_embeddings": 1}, "max_position_embeddings must be at least 2"),
    ],
    "xpos": [
        ({"scale_base": 0}, "xpos.scale_base must be a number >= 1, got 0"),
        ({"rotary_value": True}, "rotary_value"),
    ],
    "log-n": [
        ({"rule": "square"}, r"log-n.rule must be one of position, length, got \"square\""),
        ({"original_max_position_embeddings": 1}, "original_max_position_embeddings must be at least 2 .* got 1"),
        ({"head_dim": 7}, "head_dim must be even for log-n, got 7"),
    ],
}  # fmt: skip

SWEEP_KEYS = {"log-n": {"original_max_position_embeddings": 2}}


def random_THD(seed, tokens=5, heads=2, head_dim=HEAD_DIM):
    return np.random.default_rng(seed).standard_normal((tokens, heads, head_dim))


def scores(terms, q_THD, k_SHD):
    """q . k of every head, query and key, [H, T, S]."""
    q = rope_reference.turned(q_THD, [rows[0] for rows in terms.query], terms.layout)
    k = rope_reference.turned(k_SHD, [rows[0] for rows in terms.key], terms.layout)
    return np.einsum("thd,shd->hts", q, k)


@pytest.mark.parametrize("precision", ["exact", "float32"])
@pytest.mark.parametrize("parameters", [DYNAMIC, LONGROPE], ids=["dynamic", "longrope"])
def test_each_sequence_has_the_frequencies_of_its_length(parameters, precision):
    """Those it would have alone, also as a continuation; a length within training changes none."""
    shape = {"head_dim": HEAD_DIM, "max_position_embeddings": 64}
    encoding = roformer_cpp.encoding("rope", **shape, rope_parameters=parameters, precision=precision)
    lengths = (10, 64, 65, 90, 200, 200)
    alone = [encoding.terms(torch.arange(length)).query for length in lengths]
    sequences = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    packed = encoding.terms(torch.cat([torch.arange(length) for length in lengths]), sequences=sequences).query
    for side in ("cos", "sin"):
        assert torch.equal(getattr(packed, side), torch.cat([getattr(rotation, side) for rotation in alone], 1))
    last, whole = encoding.terms(torch.tensor([89]), torch.arange(90)), alone[3]
    assert encoding.changes_with_length and torch.equal(last.query.cos, whole.cos[:, -1:])
    assert torch.equal(last.key.cos, whole.cos) and torch.equal(last.key.sin, whole.sin)
    assert torch.equal(alone[0].cos, alone[1].cos[:, :10]) and not torch.equal(alone[1].cos, alone[2].cos[:, :64])


@pytest.mark.parametrize(("kind", "own_name"), [(True, "freqs"), ("log", "log_freqs")])
def test_trained_frequencies(kind, own_name):
    """They start where the scaling has them."""
    keys = {"head_dim": HEAD_DIM, "rope_parameters": CONFIGURATIONS["llama3-low"]}
    trained, fixed = roformer_cpp.encoding("rope", trainable=kind, **keys), roformer_cpp.encoding("rope", **keys)
    ((name, values),) = trained.named_parameters()
    assert (name, values.shape, values.dtype) == (own_name, (HEAD_DIM // 2,), torch.float32)
    assert not list(fixed.parameters())
    rows = [each.terms(torch.arange(3)).query.cos for each in (trained, fixed)]
    torch.testing.assert_close(*rows, atol=tolerances.T2_ATOL, rtol=tolerances.T2_RTOL)
    encoding = roformer_cpp.encoding("rope", head_dim=8, trainable=kind, rotary_value=True).double()
    q, k, v = (torch.from_numpy(random_THD(seed, tokens=3, head_dim=8))[None] for seed in range(3))

    def attend(freqs):
        return roformer_cpp.attention(q, k, v, encoding.terms(torch.tensor([0, 2, 5]), dtype=torch.double))

    (freqs,) = encoding.parameters()
    assert freqs.dtype == torch.float64 and torch.autograd.gradcheck(attend, (freqs,), fast_mode=True)


# ---- slow pairs ----


def test_clipped_in_float32_is_the_authors_arithmetic():
    """Their program multiplies torch's float32 frequencies by a float32 mask."""
    inv_freq = 1.0 / (10000.0 ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.int64).float() / HEAD_DIM))
    mask = 0.5 * (1.0 + torch.cos(torch.linspace(0.0, torch.pi, steps=5)))
    inv_freq[-5:] *= mask
    positions = torch.tensor([0, 1, 77, 4095])
    encoding = roformer_cpp.encoding("rope", head_dim=HEAD_DIM, rope_parameters=CLIPPED, precision="float32")
    rotation = encoding.terms(positions).query
    angle = positions[:, None].float() * inv_freq
    assert torch.equal(rotation.cos[0], angle.cos()) and torch.equal(rotation.sin[0], angle.sin())


# ---- xPos ----

ZETA = 0.4 / 1.4  # of pair 0
# What a product q . k may come to without xPos, for the longest sequence; 2^8 in float16.
ROOM = 2.0**20


def xpos_of(**keys):
    return roformer_cpp.encoding("xpos", head_dim=HEAD_DIM, **keys)


def xpos_scores(q_THD, k_SHD, query_positions, key_positions, scale_base=512):
    """q . k [T,S,H] by distances: a rotation, times zeta to the distance over scale_base. Where scores are large, they
    are sums of what no vector holds."""
    pairs = np.arange(0, HEAD_DIM, 2) / HEAD_DIM
    distance_TS1 = np.subtract.outer(query_positions, key_positions)[..., None].astype(float)
    angle = distance_TS1 * 10000.0**-pairs
    (qa, qb), (ka, kb) = ((x[..., 0::2], x[..., 1::2]) for x in (q_THD[:, None], k_SHD[None]))
    real, imaginary = qa * ka + qb * kb, qa * kb - qb * ka  # [T, S, H, R/2]
    turned = real * np.cos(angle)[:, :, None] + imaginary * np.sin(angle)[:, :, None]
    return (turned * ((pairs + 0.4) / 1.4) ** (distance_TS1 / scale_base)[:, :, None]).sum(-1)


@pytest.mark.parametrize("scale_base", [512, 64])
def test_scores_of_xpos(scale_base):
    q, k = random_THD(0), random_THD(1)
    positions = [0, 1, 5, 40, 200]
    terms = xpos_of(scale_base=scale_base).terms(torch.tensor(positions), dtype=torch.double)
    expected = xpos_scores(q, k, positions, positions, scale_base).transpose(2, 0, 1)
    np.testing.assert_allclose(scores(terms, q, k), expected, atol=tolerances.SUM_ATOL, rtol=tolerances.SUM_ATOL)


def longest_of(xpos, dtype):
    """From the error about too long a sequence."""
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=f"products of {name} to stay in range, got 1000000001") as refusal:
        xpos.terms(torch.tensor([0, 10**9]), dtype=dtype)
    return int(str(refusal.value).split("at most ")[1].split()[0])


@pytest.mark.parametrize("dtype, factor", [
    (torch.float32, 1e-6), (torch.float32, 1e6), (torch.float16, None), (torch.float16, 8.0), (torch.float16, 0.125),
    (torch.bfloat16, None), (torch.float64, None),
])  # fmt: skip
def test_the_longest_sequence_has_room_for_products(dtype, factor):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": factor}
    xpos = xpos_of(**({"rope_parameters": yarn} if factor else {}))
    limits, room, factor = torch.finfo(dtype), 2.0**8 if dtype == torch.float16 else ROOM, factor or 1.0
    longest = longest_of(xpos, dtype)
    for start in (0, 10**6):
        terms = xpos.terms(torch.tensor([start, start + longest - 1, start]), dtype=dtype)
        with pytest.raises(ValueError, match=f"at most {longest} positions .* got {longest + 1}"):
            xpos.terms(torch.tensor([start, start + longest]), dtype=dtype)
    q, k = (np.hypot(*(rows.double().numpy() for rows in side)) for side in (terms.query, terms.key))
    assert (q.max() * room * (1 - tolerances.T2_RTOL)) <= limits.max / k.max()
    assert min(q.min(), k.min()) * (1 + tolerances.T2_RTOL) >= limits.tiny
    np.testing.assert_allclose(q.max() / k.max(), 1, rtol=tolerances.T2_RTOL)
    # One more leaves the range at one end.
    decay = math.log(1 / ZETA) * longest / 512
    largest, smallest = 2 * math.log(factor) + decay, math.log(factor) - decay / 2
    assert largest > math.log(limits.max / room) or smallest < math.log(limits.tiny)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("dtype, kernel", [
    (torch.float64, "explicit"), (torch.float32, "explicit"), (torch.float32, "fused"), (torch.bfloat16, "explicit"),
    (torch.bfloat16, "fused"), (torch.float16, "explicit"), (torch.float16, "fused"),
])  # fmt: skip
def test_attention_over_the_longest_sequence(dtype, kernel, is_causal):
    longest = longest_of(xpos_of(), dtype)
    keys = np.concatenate([np.arange(40), np.arange(longest // 2, longest // 2 + 30), np.arange(longest - 40, longest)])
    queries = keys[-3:] if is_causal else keys[[0, 55, -1]]
    tokens = enumerate((3, len(keys), len(keys)))
    q, k, v = (torch.from_numpy(random_THD(seed, count))[None].to(dtype) for seed, count in tokens)
    k = 8 * k  # rotated, they were no longer numbers where only rows were held to the range
    open_TS = np.tri(3, len(keys), len(keys) - 3, dtype=bool) | (not is_causal)
    positions = torch.from_numpy(queries), torch.from_numpy(keys)
    terms = xpos_of().terms(*positions, dtype=dtype)
    places = {"positions": positions[0], "key_positions": positions[1]}
    ours = roformer_cpp.attention(q, k, v, terms, **places, is_causal=is_causal, kernel=kernel)
    q, k, v = (x[0].double().numpy() for x in (q, k, v))
    scores_TSH = xpos_scores(q, k, queries, keys) / math.sqrt(HEAD_DIM)
    weights = np.exp(np.where(open_TS[..., None], scores_TSH - scores_TSH.max(1, keepdims=True), -np.inf))
    truth = np.einsum("tsh,shd->thd", weights / weights.sum(1, keepdims=True), v)
    error = np.abs(ours[0].double().numpy() - truth).max()
    if dtype == torch.float64:
        assert error <= tolerances.LINEAR_LONG_F64
    elif dtype == torch.float32:
        assert error <= tolerances.FUSED_F32
    elif is_causal:
        assert error <= tolerances.XPOS_EPS * torch.finfo(dtype).eps
    else:  # the largest scores are beyond what 16 bits can tell from the next
        assert np.isfinite(error)


# ---- log n ----

TRAINED = 3
SPREAD = torch.tensor([0, 1, 2, 9, 40])


def log_n(rule="position"):
    keys = {"num_attention_heads": 2, "head_dim": 6, "original_max_position_embeddings": TRAINED}
    return roformer_cpp.encoding("log-n", rule=rule, **keys)


@pytest.mark.parametrize("rule", ["position", "length"])
@pytest.mark.parametrize("layout", [None, "pairs", "halves"])
def test_scores_by_log_n(layout, rule):
    """Of `rope` with a key the rotated product is scaled, and values stay as they are."""
    case, at = Case(tokens=5, head_dim=6), SPREAD.tolist()
    rope = {"layout": layout, "log_n": rule, "max_position_embeddings": TRAINED}
    encoding = log_n(rule) if layout is None else roformer_cpp.encoding("rope", head_dim=6, **rope)
    lengths = [at[-1] - at[0] + 1] * 5 if rule == "length" else [max(TRAINED, p + 1) for p in at]

    def turned(x, place):
        return x if layout is None else rope_reference.rope(x[None, None], [at[place]], layout=layout)[0, 0]

    def score(b, h, m, n):
        product = turned(case.q(b, m, h), m) @ turned(case.k(b, n, h), n)
        return np.log(lengths[m]) / np.log(TRAINED) * product / np.sqrt(6)

    case.check(encoding, score, SPREAD)


def test_sequences_have_lengths_of_their_own():
    positions, sequences = torch.tensor([0, 1, 2, 0, 1, 2, 3]), torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    packed = log_n("length").terms(positions, sequences=sequences).query.cos
    alone = [log_n("length").terms(torch.arange(n)).query.cos for n in (3, 4)]
    assert torch.equal(packed, torch.cat(alone, 1))
    assert log_n("length").changes_with_length and not log_n().changes_with_length


@pytest.mark.parametrize("encoding, named", [
    ("log-n", "log-n"),
    (["sinusoidal", {"type": "log-n", "rule": "length"}], "log-n"),
    ({"type": "rope", "log_n": "position"}, "rope with log_n"),
    ({"type": "rope", "log_n": "length"}, "rope with log_n"),
])  # fmt: skip
def test_linear_attention_has_no_scores(encoding, named):
    config = TINY_MODEL | {"position_encoding": encoding, "attention": "linear"}
    message = rf"\[linear_attention\] position_encoding must not scale scores by log n, .* got {named}$"
    with pytest.raises(ValueError, match=message):
        roformer_cpp.build_model(config)
    roformer_cpp.build_model(config | {"attention": "softmax"})


# ---- ReRoPE ----

REFUSED |= {"rerope": [
    ({"window": 0}, "window"),
    ({"scaling_factor": 0.5}, "scaling_factor"),
    ({"trainable": True}, "rotary_value, trainable and log_n must be absent for rerope"),
    ({"rotary_value": True}, "must be absent for rerope"),
    ({"log_n": "position"}, "must be absent for rerope"),
    ({"rule": "self-extend", "scaling_factor": 2}, "scaling_factor"),
    ({"rule": "self-extend", "group_size": 0}, "group_size"),
    ({"group_size": 2}, "group_size"),
    ({"rule": "dual-chunk"}, "rule dual-chunk needs causal attention"),
    ({"rule": "dual-chunk", "window": 8, "chunk_size": 7, "is_decoder": True}, "chunk_size"),
    ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "frequencies of rerope must not depend on the len"),
]}  # fmt: skip

SWEEP_KEYS |= {"rerope": {"window": 3}}

WINDOW = 4
FAR = torch.tensor([0, 3, 4, 5, 20, 21, 700])


def rerope_of(case, **keys):
    return case.encoding("rerope", window=WINDOW, **keys)


def rectified(distance, factor):
    """The distance that a pair is rotated by; factor None: ReRoPE."""
    if abs(distance) < WINDOW:
        return distance
    beyond = 0 if factor is None else (abs(distance) - WINDOW) / factor
    return math.copysign(WINDOW + beyond, distance)


def grouped(m, n, size):
    """The distance of Self-Extend: both positions divided, and the end of the window kept."""
    if abs(m - n) < WINDOW:
        return m - n
    return m // size - n // size + int(math.copysign(WINDOW - WINDOW // size, m - n))


def chunked(m, n, size):
    """The distance of dual chunk attention, by the three kinds of chunks of its paper."""
    apart = m // size - n // size
    query = m if apart == 0 else size + WINDOW - 1 if apart >= 2 else min(m % size + size, size + WINDOW - 1)
    return query - (n if apart == 0 else n % size)


def rerope_score(case, factor=None, base=10000, rotary_dim=None, layout="pairs", rule=None):
    pairs = (rotary_dim or case.head_dim) // 2
    theta = base ** (-np.arange(pairs) / pairs)
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    if layout == "halves":
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)

    def of(b, h, m, n):
        q, k = case.q(b, m, h), case.k(b, n, h)
        places = int(FAR[m]), int(FAR[n])
        angle = (rule(*places) if rule else rectified(places[0] - places[1], factor)) * theta
        product = (q[first] + 1j * q[second]) * np.conj(k[first] + 1j * k[second]) * np.exp(1j * angle)
        return (product.real.sum() + q[2 * pairs :] @ k[2 * pairs :]) / math.sqrt(case.head_dim)

    return of


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("keys", "loops"), [
    ({}, {}),
    ({"scaling_factor": 16}, {"factor": 16}),
    ({"scaling_factor": 1}, {"factor": 1}),
    ({"rope_theta": 100, "layout": "halves", "partial_rotary_factor": 0.5},
     {"base": 100, "layout": "halves", "rotary_dim": 4}),
    *[({"rule": "self-extend", "group_size": size}, {"rule": partial(grouped, size=size)}) for size in (1, 3, 7)],
])  # fmt: skip
def test_scores_are_those_of_the_author(keys, loops, causal):
    case = Case(heads=3, head_dim=8)
    case.check(rerope_of(case, **keys), rerope_score(case, **loops), FAR, causal=causal)


@pytest.mark.parametrize("size", [4, 6, 16, 1000])
def test_dual_chunk_attention(size):
    case = Case(heads=3, head_dim=8)
    encoding = rerope_of(case, rule="dual-chunk", chunk_size=size, is_decoder=True)
    case.check(encoding, rerope_score(case, rule=partial(chunked, size=size)), FAR, causal=True)


def test_grouped_keys():
    case = Case(heads=4, head_dim=8)
    q, k, v = case.qkv()
    encoding, outs = rerope_of(case), []
    few = k[:, :, :2], v[:, :, :2]
    for keys, values in (few, [x.repeat_interleave(2, 2) for x in few]):
        terms = encoding.terms(FAR, queries=q, keys=keys, dtype=torch.float64)
        outs.append(roformer_cpp.attention(q, keys, values, terms, positions=FAR))
    torch.testing.assert_close(*outs, atol=T1_ATOL, rtol=T1_RTOL)


def test_what_it_reads_must_be_given():
    encoding = roformer_cpp.encoding("rerope", head_dim=8)
    q = torch.zeros(1, 3, 1, 8)
    for given, words in (
        ({}, "terms must be given queries, which this encoding reads, got none"),
        ({"queries": q}, "terms must be given keys, which this encoding reads, got none"),
        ({"queries": q, "keys": q[:, :2]}, r"keys must be \[batch, 3 tokens, heads, head_dim\], got \[1, 2, 1, 8\]"),
        ({"queries": q, "keys": q[..., :4]}, r"keys must fit queries \[1, 3, 1, 8\], got \[1, 3, 1, 4\]"),
        ({"queries": q[..., :4], "keys": q[..., :4]}, "queries must have head_dim 8 numbers, got 4"),
        ({"queries": q.long(), "keys": q}, "queries must be floating-point, got Long"),
        ({"queries": q, "keys": q.to("meta")}, "keys must have values, got a tensor of the device meta"),
    ):
        with pytest.raises(ValueError, match=words):
            encoding.terms(torch.arange(3), **given)
    with pytest.raises(TypeError, match="queries must be a tensor, got list"):
        encoding.terms(torch.arange(3), queries=[1], keys=q)


# ---- FoPE ----

REFUSED |= {"fope": [
    ({"head_dim": 5}, "head_dim must be even for fope, got 5"),
    ({"max_position_embeddings": 6}, "fope.num_inv_freq must be given where no frequency turns within"),
    ({"num_inv_freq": 0}, "num_inv_freq"),
    ({"num_inv_freq": 5, "head_dim": 8}, "num_inv_freq"),
    ({"num_inv_freq": 2, "output_dim": 3}, "fope.output_dim must be at most the 2 frequencies, got 3"),
    ({"fope_init_factor": -1}, "fope_init_factor"),
    ({"rope_theta": 0}, "rope_theta"),
]}  # fmt: skip

SWEEP_KEYS |= {"fope": {"trainable": True}}


def identity_and_noise(values, name):
    """[H, K, d], as the authors' program: 1 at the pair's own frequency, and 0.3 of Glorot's draw. Two of four
    frequencies turn once in the 64 positions of the sweep."""
    assert values.shape == (HEADS, 2, 2)
    normal(values - np.eye(2), name, deviation=0.3 * math.sqrt(2 / (HEADS * 2 + 2 * 2)))


STARTS = {"fope": {"cos_coef": identity_and_noise, "sin_coef": identity_and_noise}}

LAYER, LENGTH = 1, 100  # of heads of 8, the first two of four frequencies are above 2 pi / 100
PLACES = torch.tensor([0, 1, 5, 63, 700, 100000, 3])


def fope_of(case, **keys):
    return case.encoding("fope", num_hidden_layers=2, max_position_embeddings=LENGTH, **keys)


def turned(x, cos, sin):
    """Pairs (d, d + D/2) of a vector, the first pairs by cos and sin, the rest as they are."""
    half = len(x) // 2
    cos = np.concatenate([cos, np.ones(half - len(cos))])
    sin = np.concatenate([sin, np.zeros(half - len(sin))])
    a, b = x[:half], x[half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos])


def fourier(case, encoding, frequencies, base=10000):
    cos_coef, sin_coef = (parameter(encoding, f"layer.{LAYER}.{name}_coef") for name in ("cos", "sin"))
    theta = base ** (-2 * np.arange(frequencies) / case.head_dim)

    def rotated(x, at, h):
        h %= len(cos_coef)
        angle = int(PLACES[at]) * theta
        return turned(x, np.cos(angle) @ cos_coef[h], np.sin(angle) @ sin_coef[h])

    def score(b, h, m, n):
        return rotated(case.q(b, m, h), m, h) @ rotated(case.k(b, n, h), n, h) / math.sqrt(case.head_dim)

    return score


@pytest.mark.parametrize(("keys", "frequencies"), [
    ({}, 2),
    ({"num_inv_freq": 4}, 4),
    ({"num_inv_freq": 3, "output_dim": 2}, 3),
    ({"rope_theta": 100}, 3),
    ({"fope_sep_head": False}, 2),
])  # fmt: skip
def test_scores_of_fope(keys, frequencies):
    case = Case(heads=3, head_dim=8)
    encoding = fope_of(case, **keys)
    coefficients = encoding.get_parameter(f"layer.{LAYER}.cos_coef")
    heads = 3 if keys.get("fope_sep_head", True) else 1
    assert coefficients.shape == (heads, frequencies, keys.get("output_dim", frequencies))
    case.check(encoding, fourier(case, encoding, frequencies, keys.get("rope_theta", 10000)), PLACES, layer=LAYER)


def test_fope_starts_as_the_authors_do():
    """At 1 where the frequency is the pair's own; the draw is that of STARTS, which has the default factor of 0.3."""
    torch.manual_seed(0)
    shape = {"num_attention_heads": 300, "head_dim": 32, "num_inv_freq": 12, "max_position_embeddings": LENGTH}
    encoding = roformer_cpp.encoding("fope", output_dim=5, fope_init_factor=0.6, **shape)
    cos, sin = (parameter(encoding, f"layer.0.{name}_coef").astype(float) for name in ("cos", "sin"))
    for drawn in (cos, sin):
        drawn[:, [0, 3, 6, 9], [0, 1, 2, 3]] -= 1
        normal(drawn, "coefficients", deviation=0.6 * math.sqrt(2 / (300 * 5 + 12 * 5)))
    assert not np.array_equal(cos, sin)


@pytest.mark.parametrize("trainable", [False, True])
def test_coefficients_are_trained_where_asked_for(trainable):
    model = roformer_cpp.build_model(TINY_MODEL | {"position_encoding": {"type": "fope", "trainable": trainable}})
    coefficients = [(name, each) for name, each in model.named_parameters() if name.endswith("_coef")]
    assert len(coefficients) == 2 * TINY_MODEL["num_hidden_layers"]
    model.encode(TINY_IDS).square().sum().backward()
    for _, each in coefficients:
        assert each.requires_grad == trainable
        assert (each.grad is not None and each.grad.abs().max() > 0) == trainable


def test_given_frequencies():
    given = [0.5, 0.25, 0.0, 3.0]
    encoding = roformer_cpp.encoding("rope", head_dim=8, frequencies=given)
    terms = encoding.terms(torch.tensor([0, 3, 1000]), dtype=torch.float64)
    angles = np.outer([0, 3, 1000], given)
    for ours, theirs in ((terms.key.cos, np.cos(angles)), (terms.key.sin, np.sin(angles))):
        np.testing.assert_allclose(ours.squeeze().numpy(), theirs, rtol=tolerances.T1_RTOL, atol=tolerances.T1_ATOL)


@pytest.mark.parametrize("keys, words", [
    ({"frequencies": [1.0, 0.5]}, r"frequencies must be 4 numbers of at least 0, .*, got \[1.0,0.5\]"),
    ({"frequencies": [1.0, 0.5, -1, 2]}, "frequencies must be 4 numbers"), ({"frequencies": "x"}, "must be 4 numbers"),
    ({"frequencies": [1.0] * 4, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "must be absent where"),
])  # fmt: skip
def test_frequencies_that_are_refused(keys, words):
    with pytest.raises((ValueError, RuntimeError), match=words):
        roformer_cpp.encoding("rope", head_dim=8, **keys)
