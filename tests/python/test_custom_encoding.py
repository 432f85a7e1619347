"""Encodings written in Python take part where built-in ones do. The oracle: alibi, t5 and learned, written again in
Python, equal those of C++.
"""

import copy
import gc
import pickle
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import roformer_cpp
from encoding_case import TINY_IDS as IDS
from encoding_case import TINY_MODEL
from roformer_cpp import DistanceTable, Terms, custom_encoding

MODEL = {"model_type": "rf_encoder", **TINY_MODEL}


class PlainShaw(roformer_cpp.CustomEncoding):
    """shaw (nn/posenc/shaw.cpp) with a table for each layer, and a vector added to the input."""

    def __init__(self, shape, max_relative_position=16):
        super().__init__()
        self.clip = max_relative_position
        rows = 2 * max_relative_position + 1
        self.layer = nn.ModuleList(nn.Module() for _ in range(shape.num_hidden_layers))
        for each in self.layer:
            each.key = nn.Parameter(torch.randn(rows, shape.head_dim) * shape.initializer_range)
            each.value = nn.Parameter(torch.randn(rows, shape.head_dim) * shape.initializer_range)

    def layer_terms(self, layer, shared, projections):
        def table(rows):
            return DistanceTable(rows.flip(0).unsqueeze(0), -self.clip, self.clip)

        return Terms(key_table=table(self.layer[layer].key), value_table=table(self.layer[layer].value))


class PlainLearned(roformer_cpp.CustomEncoding):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape.max_position_embeddings, shape.embedding_size))

    def input(self, positions, dtype):
        return self.weight[positions].to(dtype)

    def shared(self, positions, key_positions, dtype):
        return Terms()


class Rotating(roformer_cpp.CustomEncoding):
    """rope: computed by positions, so that it sees those of a cache and of packed rows."""

    def shared(self, positions, key_positions, dtype):
        def rows(ids):
            angles = ids.double().unsqueeze(-1) * self.freqs
            return roformer_cpp.Rotation(angles.cos().to(dtype), angles.sin().to(dtype))

        return Terms(query=rows(positions), key=rows(key_positions))

    def __init__(self, shape, base=10000.0):
        super().__init__()
        self.freqs = base ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)


class NumbersByKey(roformer_cpp.CustomEncoding):
    """Causal alibi: softmax does not see what a score has of its query alone, so that slope p_n remains."""

    def __init__(self, shape):
        super().__init__()
        self.slopes = 2.0 ** (-8 * torch.arange(1, shape.num_attention_heads + 1) / shape.num_attention_heads)

    def shared(self, positions, key_positions, dtype):
        return Terms(key_score=self.slopes[:, None] * key_positions[:, None])


class PlainCope(roformer_cpp.CustomEncoding):
    """cope (nn/posenc/cope.cpp), by distances to the rows of its table."""

    reads_vectors = True

    def __init__(self, shape):
        super().__init__()
        self.layer = nn.ModuleList(nn.Module() for _ in range(shape.num_hidden_layers))
        for each in self.layer:
            each.pos_emb = nn.Parameter(torch.zeros(shape.head_dim, 64))

    def layer_terms(self, layer, shared, projections, queries, keys):
        table = self.layer[layer].pos_emb
        scores = torch.einsum("bthd,bshd->bhts", queries, keys) / queries.shape[-1] ** 0.5
        gates = scores.sigmoid().tril(keys.shape[1] - queries.shape[1])
        places = (gates.sum(-1, keepdim=True) - gates.cumsum(-1) + gates).clamp_max(63)
        near = (1 - (places[..., None] - torch.arange(64)).abs()).clamp_min(0)
        return Terms(pair_bias=torch.einsum("bhtsp,bthd,dp->bhts", near, queries, table))


class PlainFox(roformer_cpp.CustomEncoding):
    """fox (nn/posenc/fox.cpp): it reads the input of the layer."""

    def __init__(self, shape):
        super().__init__()
        self.numbers_per_token = shape.num_attention_heads
        self.layer = nn.ModuleList(nn.Module() for _ in range(shape.num_hidden_layers))
        for each in self.layer:
            each.fgate_proj_weight = nn.Parameter(torch.zeros(shape.num_attention_heads, shape.hidden_size))
            each.fgate_proj_bias = nn.Parameter(torch.zeros(shape.num_attention_heads))

    def token_numbers(self, layer, hidden_states):
        gate = self.layer[layer]
        return nn.functional.logsigmoid(hidden_states @ gate.fgate_proj_weight.T + gate.fgate_proj_bias)

    def layer_terms(self, layer, shared, projections, token_numbers):
        return Terms(key_score=(token_numbers.sum(1, keepdim=True) - token_numbers.cumsum(1)).transpose(1, 2))


class FoxAndCope(roformer_cpp.CustomEncoding):
    """Both at once: it reads the input of the layer, and its queries and keys."""

    reads_vectors = True

    def __init__(self, shape):
        super().__init__()
        self.numbers_per_token = shape.num_attention_heads
        self.add_module("0", PlainFox(shape))
        self.add_module("1", PlainCope(shape))

    def token_numbers(self, *given):
        return self.get_submodule("0").token_numbers(*given)

    def layer_terms(self, layer, shared, projections, token_numbers, queries, keys):
        fox, cope = self.children()
        pair_bias = cope.layer_terms(layer, shared, projections, queries, keys).pair_bias
        return replace(fox.layer_terms(layer, shared, projections, token_numbers), pair_bias=pair_bias)


class PlainComplex(roformer_cpp.CustomEncoding):
    """complex (nn/posenc/complex_words.cpp)."""

    def __init__(self, shape):
        super().__init__()
        self.word_freqs = nn.Parameter(torch.zeros(shape.vocab_size, shape.embedding_size // 2))

    def words(self, words, input_ids, positions):
        turned = torch.polar(torch.ones(()), positions[..., None] * self.word_freqs[input_ids])
        return torch.view_as_real(torch.view_as_complex(words.unflatten(-1, (-1, 2))) * turned).flatten(-2)

    def shared(self, positions, key_positions, dtype):
        return Terms()


class PlainFloater(roformer_cpp.CustomEncoding):
    """floater (nn/posenc/floater.cpp)."""

    def __init__(self, shape):
        super().__init__()
        width = shape.hidden_size
        self.layer = nn.ModuleList(nn.Module() for _ in range(shape.num_hidden_layers))
        for each in self.layer:
            each.start = nn.Parameter(torch.zeros(width))
        self.h = nn.ModuleList(nn.Linear(width + 1, width) for _ in range(2))

    def velocity(self, t, p):
        for i, linear in enumerate(self.h):
            p = linear(torch.cat([p.relu() if i else p, torch.full((1,), t)]))
        return p

    def shared(self, positions, key_positions, dtype):
        return positions

    def layer_input(self, layer, positions):
        p, dt = self.layer[layer].start, 0.01
        rows = [p]
        for n in range(int(positions.max())):
            k1 = self.velocity(n * dt, p)
            k2 = self.velocity((n + 0.5) * dt, p + k1 * dt / 2)
            k3 = self.velocity((n + 0.5) * dt, p + k2 * dt / 2)
            p = p + (k1 + 2 * (k2 + k3) + self.velocity((n + 1) * dt, p + k3 * dt)) * dt / 6
            rows.append(p)
        return torch.stack(rows)[positions]

    def layer_terms(self, layer, shared, projections):
        return Terms()


class Nothing(roformer_cpp.CustomEncoding):
    def __init__(self, shape, **keys):
        super().__init__()


def subclass(base=Nothing, **attributes):
    """A class with these methods and attributes."""
    return type("Made", (base,), attributes)


# A built-in encoding, ours, and its class; those of CAUSAL are causal.
OURS = [("shaw", "plain-shaw", PlainShaw), ("learned", "plain-learned", PlainLearned), ("rope", "rotating", Rotating)]
OURS += [("complex", "plain-complex", PlainComplex), ("floater", "plain-floater", PlainFloater)]
OURS += [("alibi", "numbers-by-key", NumbersByKey), ("cope", "plain-cope", PlainCope), ("fox", "plain-fox", PlainFox)]
OURS += [(["fox", "cope"], "fox-and-cope", FoxAndCope)]
CAUSAL = {"numbers-by-key", "plain-cope", "plain-fox", "fox-and-cope"}
every_pair = pytest.mark.parametrize(("built_in", "ours"), [each[:2] for each in OURS])


@pytest.fixture(autouse=True)
def registered():
    for _, name, made in OURS:
        roformer_cpp.register_encoding(name)(made)


def built(name, seed=0, **changes):
    return roformer_cpp.build_model(MODEL | changes | {"position_encoding": name}, seed=seed)


def models(built_in, ours, **changes):
    """One of each with equal weights, N(0, 0.3^2)."""
    first, second = (built(name, **changes) for name in (built_in, ours))
    assert [name for name, _ in first.named_parameters()] == [name for name, _ in second.named_parameters()]
    torch.manual_seed(1)
    with torch.no_grad():
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            b.copy_(a.normal_(0, 0.3))
    return first, second


def close(a, b):
    return (a - b).abs().max() <= 1e-5 * b.abs().max()


@every_pair
def test_models_equal_those_of_the_built_in_encoding(built_in, ours):
    first, second = models(built_in, ours, is_decoder=ours in CAUSAL)
    results = []
    for model in (first, second):
        out = model(IDS, torch.tensor([[1] * 9, [1] * 6 + [0] * 3]))["hidden"]
        out.square().sum().backward()
        results.append(out.detach())
    assert close(results[1][0], results[0][0]) and close(results[1][1, :6], results[0][1, :6])
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or (b.grad - a.grad).abs().max() <= 1e-4 * max(a.grad.abs().max(), 1e-2), name


@every_pair
def test_caches_and_packed_rows(built_in, ours):
    first, second = models(built_in, ours, is_decoder=True)
    segments = torch.tensor([[0] * 4 + [1] * 5, [0] * 7 + [-1] * 2], dtype=torch.int32)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6, 0, 0]])
    shown = segments >= 0
    packed = [m(IDS, segments=segments, positions=positions)["hidden"][shown] for m in (first, second)]
    assert close(packed[1], packed[0])
    cache = second.new_cache()
    pieces = [second(IDS[:, i : i + 3], cache=cache)["hidden"] for i in (0, 3, 6)]
    assert close(torch.cat(pieces, 1), first(IDS)["hidden"])


def test_the_input_and_the_vectors_of_a_layer_must_be_given():
    shape = {"num_attention_heads": 2, "head_dim": 8, "hidden_size": 16, "is_decoder": True}
    plain = roformer_cpp.encoding("fox-and-cope", **shape)
    for given in ({}, {"hidden_states": torch.zeros(1, 3, 16)}):
        with pytest.raises(ValueError, match=r"terms must be given (hidden_states of all 3 keys|queries)"):
            plain.terms(torch.arange(3), **given)


def test_encodings_by_name_and_combined():
    shape = {"num_attention_heads": 2, "head_dim": 8, "num_hidden_layers": 2}
    encoding = roformer_cpp.encoding("plain-shaw", **shape, max_relative_position=3)
    assert len(list(encoding.parameters())) == 4
    q, k, v = torch.randn(3, 2, 5, 2, 8)
    roformer_cpp.attention(q, k, v, encoding.terms(torch.arange(5), layer=1)).sum().backward()
    assert encoding.get_parameter("layer.1.key").grad is not None
    both = roformer_cpp.combine_encodings([encoding, roformer_cpp.encoding("rope", **shape)])
    terms = both.terms(torch.arange(5), layer=1)
    assert terms.query is not None and terms.key_table is not None
    with pytest.raises(ValueError, match="each term must be set by one encoding, got key_table from two"):
        roformer_cpp.combine_encodings([encoding, roformer_cpp.encoding("shaw", **shape)]).terms(torch.arange(5))


def test_nothing_is_kept_of_what_is_gone():
    gc.collect()
    before = len(custom_encoding._kept)
    model = built("plain-shaw")
    model(IDS)["hidden"].sum().backward()
    assert len(custom_encoding._kept) == before + 1
    del model
    gc.collect()
    assert len(custom_encoding._kept) == before


def test_projections_fit_scores_that_are_not_scaled():
    """As those of `t5` do (tests/nn/test_initial_values.py)."""
    roformer_cpp.register_encoding("unscaled", subclass(scales_scores=False, shared=lambda *_: Terms(scale=1.0)))
    sizes = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16, vocab_size=9)
    names = ("unscaled", "t5", "none")
    of = {name: roformer_cpp.build_model({**sizes, "position_encoding": name}).state_dict() for name in names}
    for part in ("query", "key", "value"):
        name = f"encoder.layer.0.attention.self.{part}.weight"
        assert torch.equal(of["unscaled"][name], of["t5"][name])
        assert torch.equal(of["unscaled"][name], of["none"][name]) == (part == "value")
    shape = {"num_attention_heads": 2, "head_dim": 8}
    for name, hint in (("unscaled", "scales_scores = True, and terms without scale"), ("t5", '"scale": "sqrt"')):
        parts = [roformer_cpp.encoding(each, **shape) for each in (name, "rope")]
        with pytest.raises(ValueError, match=f"Hint: {hint}$"):
            roformer_cpp.combine_encodings(parts)


def late(self, positions, dtype):
    self.register_buffer("late", torch.ones(3))


def no_terms(self, layer, shared, projections):
    return Terms()


longer = subclass(input=lambda self, positions, _: torch.ones(1, 3, 64) if positions.shape[1] > 2 else None)
HIDDEN = torch.zeros(1, 3, 64)
CALLS = {
    "made": id,
    "input": lambda it: [it.input(torch.arange(positions)) for positions in (2, 3)],
    "acts": lambda it: it.acts_on_input(),
    "terms": lambda it: it.terms(torch.arange(3), hidden_states=HIDDEN),
    "words": lambda it: it.words(HIDDEN, torch.ones(1, 3).long(), torch.arange(3)),
    "layer_input": lambda it: it.layer_input(torch.arange(2)),
}
TAKE = "layer_terms must take layer, shared, projections"
LENGTH = r"^\[encoding\] max_length must be an integer >= 1 or None, got"
# A class, the call of its encoding that refuses it, and what is said.
MISTAKES = [
    (Nothing, "terms", TypeError, "shared must return Terms where layer_terms is not def"),
    (lambda shape: 3, "made", TypeError, "mistaken must be made as a CustomEncoding, got int"),
    (lambda shape: PlainLearned(shape, depth=3), "made", TypeError, "unexpected keyword argument 'depth'"),
    (subclass(reads_vectors=True, layer_terms=no_terms), "made", TypeError, f"{TAKE}, queries and keys where reads_ve"),
    (subclass(reads_vectors="yes"), "made", TypeError, "reads_vectors must be True or False, got 'yes'"),
    (subclass(scales_scores=None), "made", TypeError, "scales_scores must be True or False, got None"),
    *((subclass(max_length=length), "made", ValueError, LENGTH) for length in (0, True, "long", 2.5)),
    (subclass(input=lambda *_: 3), "input", TypeError, "input must return a tensor or None, got int"),
    (subclass(input=lambda *_: torch.ones(1, 4, 8)), "input", ValueError, r"return \[1 or 1, 2, emb.* got \[1, 4, 8\]"),
    (longer, "input", ValueError, r"None for all, got a tensor for positions \[1, 3\] and the other before"),
    (longer, "acts", ValueError, "None for all, got a tensor"),
    (subclass(numbers_per_token=-1), "made", ValueError, "numbers_per_token must be an integer >= 0, got -1"),
    (subclass(numbers_per_token=2, layer_terms=no_terms), "made", TypeError, f"{TAKE} and token_numbers for nu"),
    (subclass(PlainFox, token_numbers=lambda s, i, x: x), "terms", ValueError, r"\[1, 3, 1\], got \[1, 3, 64\]"),
    (subclass(words=lambda *_: 3), "words", ValueError, r"words must return a tensor \[1, 3, 64\], got int"),
    (subclass(layer_input=lambda *_: HIDDEN), "layer_input", ValueError, r"2, hidden_size\], got \[1, 3, 64\]"),
    (subclass(input=late), "input", ValueError, "must be registered by the constructor, got 'late' after it"),
]


@pytest.mark.parametrize(("make", "call", "error", "rule"), MISTAKES)
def test_mistakes_in_an_encoding_name_it(make, call, error, rule):
    roformer_cpp.register_encoding("mistaken", make)
    with pytest.raises(error, match=rule):
        CALLS[call](roformer_cpp.encoding("mistaken", max_position_embeddings=16))


def test_names_that_are_taken_or_unknown():
    for name in ("rope", "", 3):
        with pytest.raises(ValueError, match="name must be a text that no built-in encoding has"):
            roformer_cpp.register_encoding(name, Nothing)
    with pytest.raises(TypeError, match="make must be called as make"):
        roformer_cpp.register_encoding("nothing", 3)
    with pytest.raises(ValueError, match='type must be a known encoding, got "unheard-of"'):
        roformer_cpp.encoding("unheard-of")
    linear = {"position_encoding": "rotating", "attention": {"type": "linear"}}
    with pytest.raises(ValueError, match="position_encoding must be one of the program's with linear attention"):
        roformer_cpp.build_model(MODEL | linear)


class WithBuffers(PlainLearned):
    """Its rows are buffers, of which one is not stored."""

    def __init__(self, shape, seed=1):
        super().__init__(shape)
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("rows", torch.randn(32, shape.embedding_size, generator=generator))
        self.register_buffer("moves", torch.tensor([seed]))
        self.register_buffer("again", torch.ones(32, 1), persistent=False)

    def input(self, positions, dtype):
        return (super().input(positions, dtype) + self.rows[positions] * self.again[positions] + self.moves).to(dtype)


def test_buffers_are_saved_and_replaced(tmp_path):
    roformer_cpp.register_encoding("with-buffers", WithBuffers)
    model = built("with-buffers")
    names = [f"position_encoding.{name}" for name in ("rows", "moves")]
    assert [name for name, _ in model.named_buffers()] == names
    rows, moves = (model.get_buffer(name) for name in names)
    with torch.no_grad():
        rows.normal_()
        moves.fill_(5)
    model.save(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(stored[name], model.get_buffer(name)) for name in names)
    expected = model(IDS)["hidden"].detach()
    plain = built("learned")
    weights = {name: x for name, x in model.state_dict().items() if name not in names}
    weights["position_encoding.weight"] = weights["position_encoding.weight"].clone()
    weights["position_encoding.weight"][:32] += rows + 5
    plain.load_state_dict(weights)
    assert close(expected, plain(IDS)["hidden"])
    for other in (roformer_cpp.load_model(tmp_path), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(IDS)["hidden"], expected)
    other = built("with-buffers", seed=3)
    assert torch.equal(torch.func.functional_call(other, model.state_dict(), (IDS,))["hidden"], expected)
    encoding = roformer_cpp.encoding("with-buffers", seed=4).double()
    assert encoding.get_buffer("rows").dtype == torch.float64 and encoding.get_buffer("moves").tolist() == [4]

    def masked(shape):
        encoding = PlainLearned(shape)
        encoding.register_buffer("seen", torch.ones(3, dtype=torch.bool))
        return encoding

    roformer_cpp.register_encoding("masked", masked)
    with pytest.raises(RuntimeError, match=r"buffers must be .* int64, got Bool for position_encoding\.seen"):
        built("masked").save(tmp_path)  # no file has those


class Dropping(PlainLearned):
    """Its own dropout, of the term of a bias."""

    def __init__(self, shape):
        super().__init__(shape)
        self.drop = nn.Dropout(0.5)

    def shared(self, positions, key_positions, dtype):
        return Terms(bias=DistanceTable(self.drop(torch.ones(1, 2 * 32 - 1)), -31, 31))


def test_the_mode_reaches_the_module(tmp_path):
    roformer_cpp.register_encoding("dropping", Dropping)
    encoding = roformer_cpp.encoding("dropping", num_attention_heads=2, head_dim=8)
    both = roformer_cpp.combine_encodings([encoding, roformer_cpp.encoding("rope", head_dim=8)])

    def values(each):
        return each.terms(torch.arange(4)).bias.rows.unique().tolist()

    def attended(q):
        return roformer_cpp.attention(q, q, q, encoding.terms(torch.arange(4)), heads_first=True)

    for holder in (encoding, both, nn.Sequential(encoding)):
        assert values(encoding) == [0, 2]
        holder.eval()
        copied = copy.deepcopy(encoding)
        assert values(encoding) == values(copied) == [1] and not copied.training
        q = torch.randn(1, 2, 4, 8)
        expected = nn.functional.scaled_dot_product_attention(q, q, q)  # which does not see a bias of 1
        assert close(torch.compile(attended, fullgraph=True, backend="aot_eager")(q), expected)
        holder.train()
    model = built("dropping")
    once = model(IDS)["hidden"]
    assert torch.equal(model(IDS)["hidden"], once)
    model.train()
    assert not torch.equal(model(IDS)["hidden"], model(IDS)["hidden"])
    assert torch.equal(model.eval()(IDS)["hidden"], once)


def test_dropout_of_an_encoding_is_not_trained_in_compiled_code():
    """The backward would draw other numbers than the forward."""
    roformer_cpp.register_encoding("dropping", Dropping)
    encoding = roformer_cpp.encoding("dropping", num_attention_heads=2, head_dim=8)
    q = torch.randn(1, 8, 2, 8, requires_grad=True)

    def attended(q):
        return roformer_cpp.attention(q, q, q, encoding.terms(torch.arange(8)))

    compiled = torch.compile(attended, fullgraph=True, backend="aot_eager")
    with pytest.raises(NotImplementedError, match=r"\[attention\] an encoding that draws random numbers"):
        compiled(q).sum().backward()
    encoding.eval()
    torch._dynamo.reset()
    functions = attended, torch.compile(attended, backend="aot_eager")
    assert close(*(torch.autograd.grad(function(q).pow(2).sum(), q)[0] for function in functions))


def test_errors_of_an_encoding_pass_through_save(tmp_path):
    def failing(self, positions, key_positions, dtype):
        return Terms(bias=DistanceTable(torch.zeros(2)[positions + 5], 0, 0))

    def missing(self, positions, key_positions, dtype):
        raise LookupError("no row")

    for shared, error, message in ((failing, IndexError, "out of (bounds|range)"), (missing, LookupError, "^no row$")):
        roformer_cpp.register_encoding("failing", subclass(NumbersByKey, shared=shared))
        with pytest.raises(error, match=message):
            built("failing").save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^\[load_model\]|^\[model\]"):
        roformer_cpp.load_model(tmp_path / "none")
