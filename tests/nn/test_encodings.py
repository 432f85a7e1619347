"""What every position encoding must keep, over the whole table (nn/posenc/table.cpp): a new one is covered by its line.

Each is put into a layer, x -> attention of (x + input) W_q, W_k, W_v under its terms, with enlarged parameters.
Attention is computed by the explicit path in float64, by the fused kernel in float32 and, with float32 parameters, on
queries, keys and values in bfloat16.
"""

import copy
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import roformer_cpp
import tolerances as tol
from attention_terms import to_dict
from encoding_files import INFOS, refused_of, sweep_keys
from term_list import NUMBERS, PAIRS, SCORES, TABLES, scores_shape, shape

ROOT = Path(__file__).resolve().parent.parent.parent
H, D, T, LAYERS, ROWS, WORDS = 2, 8, 7, 2, 64, 11
C = H * D
# The dtypes of each path: of parameters, and of queries, keys and values.
DTYPES = {
    "explicit": (torch.float64, torch.float64),
    "fused": (torch.float32, torch.float32),
    "fused bfloat16": (torch.float32, torch.bfloat16),
}


every = pytest.mark.parametrize("name", INFOS)
every_path = pytest.mark.parametrize("name, path", [(name, path) for path in ("explicit", "fused") for name in INFOS])


def make(name, seed=0, **config):
    torch.manual_seed(seed)
    shape = {"num_hidden_layers": LAYERS, "num_attention_heads": H, "head_dim": D, "max_position_embeddings": ROWS}
    shape |= {"vocab_size": WORDS, "is_decoder": INFOS[name]["needs_causal"]}
    return roformer_cpp.encoding(name, **shape, **sweep_keys(name, D), **config)


class Layer:
    """The last layer of a model with this encoding."""

    def __init__(self, name, path="explicit", dtype=None):
        self.kernel = path.split()[0]
        self.dtype, self.of_data = (dtype, dtype) if dtype else DTYPES[path]
        self.encoding = make(name).to(self.dtype)
        with torch.no_grad():
            for parameter in self.encoding.parameters():
                parameter += tol.PERTURBED * torch.randn_like(parameter)
        self.weights = tuple(torch.randn(C, C, dtype=self.dtype) / C**0.5 for _ in range(3))
        self.is_causal = INFOS[name]["needs_causal"]

    def draw(self, batch=2, tokens=T):
        return torch.randn(batch, tokens, C, dtype=self.dtype)

    def terms(self, positions, key_positions=None, sequences=None, dtype=None, hidden=None):
        if hidden is None:
            keys = (positions if key_positions is None else key_positions).shape[-1]
            hidden = torch.randn(1, keys, C, generator=torch.Generator().manual_seed(2)).to(self.dtype)
        q, k = (self.heads(hidden, weight, dtype) for weight in self.weights[:2])
        given = {"sequences": sequences, "projections": self.weights, "hidden_states": hidden, "keys": k}
        given |= {"queries": q[:, k.shape[1] - positions.shape[-1] :], "dtype": dtype or self.of_data}
        return self.encoding.terms(positions, key_positions, layer=LAYERS - 1, **given)

    def heads(self, x, weight, dtype=None):
        return (x @ weight.T).unflatten(-1, (H, D)).to(dtype or self.of_data)

    def words(self, x, positions):
        ids = (7 * x[..., 0].detach()).floor().long() % WORDS  # a token's id goes with its vector
        return self.encoding.words(x, ids, positions)

    def with_layer_input(self, x, positions):
        added = self.encoding.layer_input(positions, layer=LAYERS - 1, dtype=self.dtype)
        return x if added is None else x + added

    def __call__(self, x, positions=None, queries=None, sequences=None, dtype=None, **rules):
        """Outputs of the last `queries` tokens (default: all)."""
        positions = torch.arange(x.shape[1]) if positions is None else positions
        x = self.words(x, positions)
        added = self.encoding.input(positions, dtype=self.dtype)
        x = x if added is None else x + added
        y = self.with_layer_input(x, positions)
        q, k, v = (self.heads(y, weight, dtype) for weight in self.weights)
        asked = positions[..., positions.shape[-1] - (queries or x.shape[1]) :]
        terms = self.terms(asked, positions, sequences, dtype, x)
        q = q[:, q.shape[1] - asked.shape[-1] :]
        rules = {"is_causal": self.is_causal, "kernel": self.kernel} | rules
        return roformer_cpp.attention(q, k, v, terms, positions=asked, key_positions=positions, **rules)


def assert_same(ours, theirs):
    is_double = ours.dtype == torch.float64
    atol, rtol = (tol.T1_ATOL, tol.T1_RTOL) if is_double else (tol.T3_ATOL, tol.T3_RTOL)
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=rtol)


def largest_difference(a, b):
    return (a.double() - b.double()).abs().max().item()


def is_visible(a, b):
    """Whether two results differ by more than roundings."""
    return largest_difference(a, b) > tol.VISIBLE


@every
def test_the_table_says_everything(name):
    """Terms need what `reads` lists, and nothing else."""
    info = INFOS[name]
    assert all(info[key] for key in info if isinstance(info[key], str))
    assert (ROOT / info["file"]).is_file() and (ROOT / info["test"]).is_file()
    layer = Layer(name)
    hidden = layer.draw()
    q, k = (layer.heads(hidden, weight) for weight in layer.weights[:2])
    arguments = {"tokens": ("hidden_states", hidden), "queries": ("queries", q), "keys": ("keys", k)}
    given = dict(arguments[read] for read in INFOS[name]["reads"])
    fixed = {"layer": LAYERS - 1, "projections": layer.weights, "dtype": torch.float64}
    layer.encoding.terms(torch.arange(T), **fixed, **given)
    for missing in given:
        with pytest.raises(ValueError, match=f"terms must be given {missing}"):
            layer.encoding.terms(torch.arange(T), **fixed, **{key: x for key, x in given.items() if key != missing})


@every
def test_refused_keys(name):
    """Those that the file of its tests lists, and an unknown one."""
    with pytest.raises(ValueError, match="no_such_key"):
        make(name, no_such_key=1)
    for keys, words in refused_of(name):
        with pytest.raises(ValueError, match=words):
            roformer_cpp.encoding(name, **({"is_decoder": INFOS[name]["needs_causal"]} | keys))


SIZES = ("num_hidden_layers", "num_attention_heads", "head_dim", "hidden_size", "embedding_size")


@pytest.mark.parametrize(("name", "config", "message"), [
    *[("none", {size: 0}, rf"\[encoding\] {size} must be an integer >= 1, got 0") for size in SIZES],
    ("none", {"max_position_embeddings": 0}, "max_position_embeddings must be an integer >= 1, got 0"),
    ("none", {"head_dim": 4.5}, "head_dim must be an integer >= 1, got 4.5"),
    ("none", {"is_decoder": "no"}, "is_decoder must be true or false, got 'no'"),
    ("none", {"initializer_range": float("nan")}, "initializer_range must be a number >= 0, got nan"),
    ("none", {"initializer_range": -1}, "initializer_range must be a number >= 0, got -1"),
    ("none", {"rope_theta": float("nan")}, r"\[none\] options must be finite numbers, .*'rope_theta': nan"),
    ("alibi", {"slope": 1}, r'got "alibi.slope" \(known here: none\)'),
    ("shew", {}, 'must be a known encoding, got "shew"; did you mean shaw'),
])  # fmt: skip
def test_refused_shapes_and_names(name, config, message):
    with pytest.raises(ValueError, match=message):
        roformer_cpp.encoding(name, **config)


@every
def test_the_seed_decides(name):
    first, again = make(name).state_dict(), make(name).state_dict()
    assert first.keys() == again.keys()
    assert all(torch.equal(first[key], again[key]) for key in first)


def all_tensors(layer):
    positions = torch.arange(T)
    added = {
        "input": layer.encoding.input(positions, dtype=layer.dtype),
        "layer input": layer.encoding.layer_input(positions, layer=LAYERS - 1, dtype=layer.dtype),
        "words": layer.words(torch.arange(T * C, dtype=layer.dtype).sin().view(1, T, C), positions),
    }
    return to_dict(layer.terms(positions)) | {key: value for key, value in added.items() if value is not None}


@every
def test_conversion_reaches_the_encoding(name):
    """.double() and .to() change the parameters that C++ computes with."""
    layer = Layer(name, dtype=torch.float32)
    single = all_tensors(layer)
    layer.encoding.double()
    layer.weights = tuple(weight.double() for weight in layer.weights)
    layer.dtype = layer.of_data = torch.float64
    for key, value in all_tensors(layer).items():
        if value.is_floating_point():
            assert value.dtype == torch.float64, key
            torch.testing.assert_close(value.float(), single[key].float(), atol=tol.T2_ATOL, rtol=tol.T2_RTOL)
    with torch.no_grad():
        for parameter in layer.encoding.parameters():
            parameter += 1
    changed = all_tensors(layer)
    if list(layer.encoding.parameters()):
        assert any(largest_difference(changed[key], single[key]) > tol.VISIBLE for key in single)


def check_shape(name, value, flat):
    if name.endswith(("_cos", "_sin")):
        assert value.shape[:2] == (1, T) and value.shape[2:-1] in [(), (H,)] and 2 * value.shape[-1] <= D
    elif name in TABLES:
        lo, hi = flat[f"{name}_window"].tolist()
        assert value.shape[0] in (1, H) and value.shape[1] == hi - lo + 1
        assert value.shape[2:] in [(1,), (D,)] if name == "gate" else value.shape[2:] == shape(name, H, T, D)[2:]
    elif name in PAIRS:
        assert value.dim() == 3 and value.shape[::2] == (H, D) and value.shape[1] >= T
    elif name in NUMBERS:
        assert value.shape == shape(name, H, T, D)
    elif name in SCORES:
        assert value.shape == scores_shape(name, 1, H, T, T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@every
def test_shapes_and_dtypes(name, dtype):
    layer = Layer(name, "auto", torch.float32)
    flat = to_dict(layer.terms(torch.arange(T), dtype=dtype))
    for key, value in flat.items():
        check_shape(key, value, flat)
        if key != "scale" and value.is_floating_point():
            assert value.dtype == layer.dtype, key
    out = layer(layer.draw(), dtype=dtype)
    assert out.shape == (2, T, H, D) and out.dtype == dtype and out.isfinite().all()


@every
def test_gradients(name):
    layer = Layer(name)
    leaves = [layer.draw(1, 5).requires_grad_(), *(weight.requires_grad_() for weight in layer.weights)]
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), (*leaves, *layer.encoding.parameters()), fast_mode=True)


def lowered(layer, path):
    """The same layer by another path, in its dtypes."""
    other = copy.copy(layer)
    other.kernel, (other.dtype, other.of_data) = path.split()[0], DTYPES[path]
    other.encoding = make(layer.encoding.name).to(other.dtype)
    other.encoding.load_state_dict(layer.encoding.state_dict())
    other.weights = tuple(weight.to(other.dtype) for weight in layer.weights)
    return other


def values_and_gradients(layer, x):
    x = x.detach().to(layer.dtype).requires_grad_()
    layer.weights = tuple(weight.detach().requires_grad_() for weight in layer.weights)
    leaves = [x, *layer.weights, *layer.encoding.parameters()]
    out = layer(x)
    loss = (out.double() * torch.arange(out.numel(), dtype=torch.float64).cos().view_as(out)).sum()
    grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)  # of other layers' parameters
    return out, *grads


@every
def test_fused_equals_explicit(name):
    exact = Layer(name)
    fused, x = lowered(exact, "fused"), exact.draw()
    for ours, theirs in zip(values_and_gradients(fused, x), values_and_gradients(exact, x), strict=True):
        assert largest_difference(ours, theirs) <= tol.GRADIENT_F32 * max(theirs.abs().max().item(), 1)


@every
def test_fused_in_bfloat16_beside_explicit(name):
    """Errors of outputs and gradients against float64, added up over draws: one draw's are the chance of roundings."""
    exact, errors = Layer(name), []
    fused = lowered(exact, "fused bfloat16")
    for _ in range(6):
        x = exact.draw(tokens=24)
        truth = values_and_gradients(exact, x)
        both = []
        for kernel in ("fused", "explicit"):
            fused.kernel = kernel
            both.append(values_and_gradients(fused, x))
        errors.append([[largest_difference(a, b) for a, b in zip(each, truth, strict=True)] for each in both])
    ours, theirs = torch.tensor(errors).sum(0)
    assert (ours <= tol.LOW_PRECISION_RATIO * theirs).all(), (ours, theirs)


@every
def test_shifted_positions(name):
    layer = Layer(name)
    x = layer.draw()
    if INFOS[name]["shift_invariant"]:
        for shift in (1, 17, 100000):
            assert_same(layer(x, torch.arange(T) + shift), layer(x))
    else:
        assert is_visible(layer(x, torch.arange(T) + 17), layer(x))


@every
def test_order_is_seen(name):
    """R-ATT-03: without an encoding attention is equivariant under permutations, with one it is not."""
    layer = Layer(name)
    x, order = layer.draw(), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    if name == "none":
        assert_same(layer(x[:, order]), layer(x)[:, order])
    else:
        assert is_visible(layer(x[:, order]), layer(x)[:, order])


def score_rank(name):
    """Rank of a head's scores of 12 queries and the 12 keys before them, contents at random, but for a number for each
    query. A vector of the query by a vector of the key, both of D numbers, is at most D + 1."""
    layer, tokens = Layer(name), 24
    x, positions = layer.draw(1, tokens), torch.arange(tokens)
    terms = layer.terms(positions)
    terms.value_table = None
    q, k = ((x @ weight.T).unflatten(-1, (H, D)) for weight in layer.weights[:2])
    one_hot = torch.eye(tokens, dtype=x.dtype).expand(H, -1, -1).transpose(0, 1)[None]  # as values: the weights
    weights = roformer_cpp.attention(q, k, one_hot, terms, positions=positions, is_causal=layer.is_causal)[0, :, 0]
    return torch.linalg.matrix_rank(weights[tokens // 2 :, : tokens // 2].log(), rtol=tol.LINEAR_F64).item()


@every
def test_pairwise_is_what_cannot_be_split(name):
    """Linear attention takes exactly the encodings whose scores are products of a query's and a key's vector."""
    assert INFOS[name]["pairwise"] == (score_rank(name) > D + 1)
    layer = Layer(name)
    x, terms = layer.draw(1), layer.terms(torch.arange(T))
    q, k, v = ((x @ weight.T).unflatten(-1, (H, D)) for weight in layer.weights)
    if INFOS[name]["pairwise"]:
        with pytest.raises(ValueError, match="has no pairwise terms"):
            roformer_cpp.linear_attention(q, k, v, terms=terms)
    else:
        assert roformer_cpp.linear_attention(q, k, v, terms=terms).abs().max() > tol.VISIBLE


@every
def test_one_token(name):
    """Whatever its score, the only key has the whole weight."""
    layer = Layer(name)
    x, positions = layer.draw(tokens=1), torch.arange(1)
    words, added = layer.words(x, positions), layer.encoding.input(positions, dtype=layer.dtype)
    y = layer.with_layer_input(words if added is None else words + added, positions)
    value = (y @ layer.weights[2].T).unflatten(-1, (H, D))
    table = layer.terms(positions).value_table
    if table is not None:
        value = value + table.rows[:, -table.lo]  # of distance 0
    assert_same(layer(x), value)


@every_path
def test_the_last_queries_alone(name, path):
    layer = Layer(name, path)
    x = layer.draw()
    for queries in (1, 3):
        assert_same(layer(x, queries=queries), layer(x)[:, T - queries :])


@every_path
def test_packed_sequences_equal_separate_ones(name, path):
    layer, lengths = Layer(name, path), [4, 1, 6]
    x = layer.draw(1, sum(lengths))
    ends = torch.tensor([0, *lengths]).cumsum(0)
    sequences = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None]
    positions = torch.cat([torch.arange(length) for length in lengths])
    out = layer(x, positions, sequences=sequences, cu_seqlens=ends)
    for begin, end in pairwise(ends.tolist()):
        assert_same(out[:, begin:end], layer(x[:, begin:end]))


@pytest.mark.parametrize("side", ["left", "right"])
@every_path
def test_padding_changes_nothing(name, path, side):
    layer = Layer(name, path)
    x, padding = layer.draw(), layer.draw(tokens=3)
    at, real = (3, slice(3, None)) if side == "left" else (0, slice(0, T))
    padded = torch.cat([padding, x] if side == "left" else [x, padding], 1)
    mask = torch.zeros(2, T + 3, dtype=torch.bool)
    mask[:, real] = True
    positions = (torch.arange(T + 3) - at).clamp(0, T - 1)
    sequences = mask.long() - 1
    expected = layer(x)
    assert_same(layer(padded, positions, sequences=sequences, mask=mask)[:, real], expected)
    if INFOS[name]["shift_invariant"]:  # the padding may then be counted
        assert_same(layer(padded, sequences=sequences, mask=mask)[:, real], expected)


@every
def test_beyond_the_training_length(name):
    """An encoding that ends with its table says so and names the position; the others continue."""
    layer = Layer(name)
    x = layer.draw(1, ROWS + 6)
    if INFOS[name]["extrapolates"].startswith("no"):
        with pytest.raises(ValueError, match=rf"\b({ROWS - 1}|{ROWS})\b.*got {ROWS + 5}\b"):
            layer(x)
    else:
        assert layer(x).abs().max() > tol.VISIBLE
        assert_same(layer(x), layer(x, kernel="ref"))


def test_dtypes_without_terms():
    with pytest.raises(ValueError, match=r"dtype must be float32, .* got torch.int32"):
        roformer_cpp.encoding("none").terms(torch.arange(3), dtype=torch.int32)


@pytest.mark.parametrize("position", [2**53 + 1, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("name", ["alibi", "transformer-xl", "deberta", "fire"])
def test_positions_whose_differences_overflow(name, position):
    with pytest.raises(ValueError, match=rf"positions must be within 2\^53, got {position}"):
        make(name).terms(torch.tensor([0, position]), torch.tensor([2**52]))


@pytest.mark.parametrize("name", [name for name, info in INFOS.items() if info["lengths"] == "stored"])
def test_too_many_distances(name):
    with pytest.raises(ValueError, match="distances must span at most 16777216 rows, got -16777216 to 16777216"):
        make(name).terms(torch.tensor([0, 1 << 24]))


@pytest.mark.parametrize("name", ["rope", "axial", "fope", "xpos", "log-n", "rerope", "dai-literal"])
def test_several_axes_are_refused(name):
    axes, flat = torch.zeros(1, 4, 3, dtype=torch.long), torch.arange(4)
    for sides in ((axes, None), (axes, flat), (flat, axes)):
        with pytest.raises(ValueError, match=rf"\[{name}\] positions must be .* got 3 axes"):
            make(name).terms(*sides)


@pytest.mark.parametrize("layer", [-1, LAYERS])
def test_layers_are_counted(layer):
    for call in (make("none").terms, make("floater").layer_input):
        with pytest.raises(ValueError, match=f"below num_hidden_layers {LAYERS}, got {layer}"):
            call(torch.arange(T), layer=layer)


def test_combination():
    """Inputs are added, terms put together; parameters are those of the parts."""
    parts = [make(name) for name in ("learned", "sinusoidal", "shaw", "alibi")]
    combined, at = roformer_cpp.combine_encodings(parts), torch.arange(T)
    assert torch.equal(combined.input(at), parts[0].input(at) + parts[1].input(at))
    terms = combined.terms(at, layer=1)
    for name, part in (("key_table", parts[2]), ("value_table", parts[2]), ("bias", parts[3])):
        assert torch.equal(getattr(terms, name).rows, getattr(part.terms(at, layer=1), name).rows)
    tables = {f"2.layer.{layer}.{what}" for layer in range(LAYERS) for what in ("key", "value")}
    assert set(combined.state_dict()) == {"0.weight", *tables}
    assert combined.state_dict()["0.weight"].data_ptr() == parts[0].weight.data_ptr()
    assert not combined.changes_with_length
    with pytest.raises(ValueError, match="each term must be set by one encoding, got key_table from two"):
        roformer_cpp.combine_encodings([make("nezha"), make("shaw")]).terms(at)
