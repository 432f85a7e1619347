"""torch.compile, torch.export, torch.func and meta tensors: each public function runs under them with the results of a
plain call, or refuses with a sentence.
"""

import pytest
import torch
from torch.distributed.utils import _apply_to_tensors

import roformer_cpp
import tolerances as tol
from compiled_modules import assert_compiled_equals, same
from roformer_cpp import DistanceTable, Rotation, Terms
from roformer_cpp.model import HEADS as model_heads

H, D = 2, 8
FEATURES = roformer_cpp.orthogonal_features(16, D, seed=0)


def tables(tokens):
    return Terms(
        key_table=DistanceTable(torch.linspace(-1, 1, 7 * D).view(1, 7, D), -3, 3),
        bias=DistanceTable(torch.linspace(-1, 1, 7 * H).view(H, 7), -3, 3),
        scale=0.3,
    )


def rotation(tokens):
    freqs = 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    cos, sin = roformer_cpp.rope_table(torch.arange(tokens), freqs)
    return Terms(query=Rotation(cos[None], sin[None]), key=Rotation(cos[None], sin[None]))


def packed(q):
    return roformer_cpp.attention(q[:1], q[:1], q[:1], cu_seqlens=torch.tensor([0, 3, q.shape[1]]))


FUNCTIONS = {
    "rope": lambda q: roformer_cpp.rope(q, torch.arange(q.shape[1]), layout="pairs"),
    "rotate": lambda q: roformer_cpp.rotate(q, *rotation(q.shape[1]).query, layout="halves"),
    "attention": lambda q: roformer_cpp.attention(q, q, q),
    "causal": lambda q: roformer_cpp.attention(q, q, q, is_causal=True, window=5, scale=0.5),
    "rotations": lambda q: roformer_cpp.attention(q, q, q, rotation(q.shape[1])),
    "tables": lambda q: roformer_cpp.attention(q, q, q, tables(q.shape[1])),
    "mask": lambda q: roformer_cpp.attention(q, q, q, mask=torch.ones(1, 1, 1, q.shape[1], dtype=torch.bool)),
    "packed": packed,
    "heads first": lambda q: roformer_cpp.attention(*[q.transpose(1, 2)] * 3, heads_first=True).transpose(1, 2),
    "explicit": lambda q: roformer_cpp.attention(q, q, q, rotation(q.shape[1]), is_causal=True, kernel="explicit"),
    "linear": lambda q: roformer_cpp.linear_attention(q, q, q, "elu"),
    "linear causal": lambda q: roformer_cpp.linear_attention(q, q, q, "elu", rotation(q.shape[1]), is_causal=True),
    "favor": lambda q: roformer_cpp.linear_attention(q, q, q, "favor", projection=FEATURES.to(q.device)),
}
STATIC = {"explicit", "favor", "linear", "linear causal", "packed"}  # shapes become part of the compiled code
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def inputs(tokens=8, dtype=torch.float32):
    return torch.randn(2, tokens, H, D, generator=torch.Generator().manual_seed(tokens)).to(dtype)


def results(function, q):
    q = q.clone().requires_grad_()
    out = function(q)
    out.float().square().sum().backward()
    return out.detach(), q.grad


@every_function
def test_compiled_as_one_graph(name):
    """One of each operator for several lengths, without gradients and in bfloat16 too; test_exported has the others."""
    function, several = FUNCTIONS[name], name in ("rope", "rotate", "tables", "linear causal")
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=several and name not in STATIC)
    for tokens, dtype in ((8, torch.float32), (8, torch.float32), (9, torch.float32), (12, torch.bfloat16)):
        if several or tokens == 8:
            q, bound = inputs(tokens, dtype), tol.COMPILED_F32 if dtype == torch.float32 else tol.COMPILED_BF16
            assert same(results(compiled, q), results(function, q), bound)
    if several:
        with torch.no_grad():
            assert torch.allclose(compiled(q), function(q), **bound)


@every_function
def test_exported(name):
    class Module(torch.nn.Module):
        def forward(self, q):
            return FUNCTIONS[name](q)

    shapes = None if name in STATIC else ({1: torch.export.Dim("tokens", min=2, max=4096)},)
    exported = torch.export.export(Module(), (inputs(8),), dynamic_shapes=shapes).module()
    for tokens in (8,) if name in STATIC else (8, 5, 33):
        assert torch.allclose(exported(inputs(tokens)), FUNCTIONS[name](inputs(tokens)), **tol.COMPILED_F32)


def test_shapes_of_meta_tensors():
    for name in ("causal", "linear", "favor"):
        with torch.device("meta"):
            out = FUNCTIONS[name](torch.empty(2, 8, H, D))
        assert out.is_meta and out.shape == (2, 8, H, D)


def assert_transforms(function, plain):
    """A gradient by torch.func and a call of vmap are those of plain calls."""
    q = inputs()
    found = torch.func.grad(lambda q: function(q).square().sum())(q)
    assert torch.allclose(found, results(plain, q)[1], **tol.COMPILED_GRADIENT_F32)
    expected = torch.stack([plain(q), plain(2 * q)])
    assert torch.allclose(torch.vmap(function)(torch.stack([q, 2 * q])), expected, **tol.COMPILED_GRADIENT_F32)


@pytest.mark.parametrize("name", ["causal", "tables", "rotations", "linear causal", "favor"])
def test_transforms_of_torch_func(name):
    assert_transforms(FUNCTIONS[name], FUNCTIONS[name])


ROTATING = [("rope", {}), ("rope", {"layout": "halves", "partial_rotary_factor": 0.5}), ("xpos", {}), ("fope", {})]


@pytest.mark.parametrize(("name", "keys"), [*ROTATING, ("rope", {"rotary_value": True})])
def test_transforms_of_rotations(name, keys):
    encoding = roformer_cpp.encoding(name, num_attention_heads=H, head_dim=D, hidden_size=H * D, **keys)
    terms = encoding.terms(torch.arange(8))
    k, v = inputs().flip(1), inputs() + 1

    def function(q, kernel="explicit"):
        return roformer_cpp.attention(q, k, v, terms, kernel=kernel)

    assert_transforms(function, lambda q: function(q, "auto"))


def test_transforms_of_torch_func_without_a_rule():
    q, freqs = inputs(), torch.ones(D // 2, dtype=torch.float64)
    for name in ("rope", "rotate"):
        both = torch.vmap(FUNCTIONS[name])(torch.stack([q, 2 * q]))
        assert torch.equal(both, torch.stack([FUNCTIONS[name](each) for each in (q, 2 * q)]))
    functions = {name: FUNCTIONS[name] for name in ("rope", "rotate")} | {"attention": FUNCTIONS["packed"]}
    functions["rope_table"] = lambda q: roformer_cpp.rope_table(torch.arange(4), freqs * q.sum())[0]
    calls = {where: lambda f=f: torch.func.grad(lambda q: f(q).square().sum())(q) for where, f in functions.items()}
    model = roformer_cpp.build_model(CONFIG | {"model_type": "rf_encoder", "position_encoding": "complex"})
    ids = torch.ones(3, 2, 8, dtype=torch.int64)
    calls["encoding"] = lambda: torch.vmap(model)(ids)
    for where, call in calls.items():
        with pytest.raises(NotImplementedError, match=rf"^\[{where}\] transforms of torch.func .* must not be applied"):
            call()
    model = roformer_cpp.build_model(CONFIG | {"model_type": "rf_encoder", "position_encoding": "xpos"})
    with pytest.raises(NotImplementedError, match=r"^\[encoding\] transforms of torch.func"):  # the sequences of a mask
        torch.vmap(model)(ids, ids)
    assert torch.vmap(model)(ids)["hidden"].shape == (3, 2, 8, 16)


def opcheck(operator, *arguments):
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(operator.default, arguments, test_utils=checks)


def test_operators_pass_opcheck():
    q, positions = inputs().requires_grad_(), torch.arange(8)
    places = positions, positions, None, -1, 0, None, None, "auto"
    opcheck(torch.ops.roformer.attention, q, q, q, *tables(8).arguments(), *places)
    terms = [], [], [], "pairs", None
    opcheck(torch.ops.roformer.linear_attention, q, q, q, *terms, "{}", None, True, None, None, None)


CAUSAL = {"fox", "cope"}
# Terms of positions, of parameters, of projections, of hidden states, and of queries and keys.
ENCODINGS = ["rope", "t5", "transformer-xl", "fox", "cope"]
CONFIG = dict(vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20)
CONFIG |= {"max_position_embeddings": 16, "model_type": "roformer"}
HEADS = [*model_heads, "BertModel", "BertForMultipleChoice"]


def encoder_layer(name, **options):
    torch.manual_seed(0)
    encoding = roformer_cpp.encoding(name, num_attention_heads=H, head_dim=D, is_decoder=name in CAUSAL)
    return roformer_cpp.EncoderLayer(H * D, H, encoding, is_causal=name in CAUSAL, **options)


def model_and_loss(head, **config):
    family = {"model_type": "bert" if head.startswith("Bert") else "roformer", "is_decoder": "Causal" in head}
    model = roformer_cpp.build_model(CONFIG | {"num_hidden_layers": 1} | family | config, head)
    choices = 2 if head.endswith("MultipleChoice") else 1
    return model, lambda ids: sum(x.exp().mean() for x in model(ids, num_choices=choices).values())


@pytest.mark.parametrize("name", ENCODINGS)
def test_layers_compile_as_one_graph(name):
    """For any length with a table of projections, and with queries and keys in terms."""
    layer = encoder_layer(name, dropout=0.2, attention_dropout=0.2)
    lengths = (5, 9) if name in ("transformer-xl", "cope") else (5,)
    assert_compiled_equals(layer, layer, [torch.randn(2, tokens, H * D) for tokens in lengths])


@pytest.mark.parametrize("head", HEADS)
def test_models_compile_as_one_graph(head):
    """For any length with the heads of tokens and of choices, whose results depend on shapes."""
    model, loss = model_and_loss(head)
    model.train(head.endswith("ForMaskedLM"))
    lengths = (5, 7) if head in ("RoFormerForMaskedLM", "RoFormerForMultipleChoice") else (5,)
    assert_compiled_equals(model, loss, [torch.randint(0, 37, (2, tokens)) for tokens in lengths])


def test_checkpointed_layers_compile_as_one_graph():
    """Each of their passes drops what it drops in plain calls."""
    model, loss = model_and_loss("RoFormerForMaskedLM", num_hidden_layers=2, hidden_dropout_prob=0.2)
    model.train().gradient_checkpointing_enable()
    assert_compiled_equals(model, loss, [torch.randint(0, 37, (2, 5))])


def loaded_again(exported, folder):
    torch.export.save(exported, folder / "m.pt2")
    return torch.export.load(folder / "m.pt2").module()


def test_models_are_exported_for_any_length_with_inputs_by_name(tmp_path):
    """torch knows a dynamic shape by the name of the argument."""
    model = roformer_cpp.build_model(CONFIG | {"model_type": "rf_encoder", "position_encoding": "rope"})

    def given(tokens):
        ids = torch.randint(1, 37, (2, tokens), generator=torch.Generator().manual_seed(tokens))
        seen, types = torch.ones_like(ids), torch.zeros_like(ids)
        seen[0, 2:], types[:, 1:] = 0, 1
        return dict(input_ids=ids, attention_mask=seen, token_type_ids=types, positions=torch.arange(tokens) + 3)

    tokens = torch.export.Dim("tokens", min=2, max=30)
    shapes = {name: {x.dim() - 1: tokens} for name, x in given(6).items()}
    exported = torch.export.export(model, (), given(6), dynamic_shapes=shapes, strict=False)
    exported = loaded_again(exported, tmp_path)
    for count in (6, 11):
        assert torch.allclose(exported(**given(count))["hidden"], model(**given(count))["hidden"], **tol.COMPILED_F32)


@pytest.mark.parametrize("strict", (False, True))
def test_models_are_exported_for_any_batch(strict):
    model = roformer_cpp.build_model(CONFIG | {"model_type": "rf_encoder", "position_encoding": "alibi"})
    sizes = {axis: torch.export.Dim(name) for axis, name in enumerate(("batch", "tokens"))}
    ids = torch.ones(2, 6, dtype=torch.int64)
    exported = torch.export.export(model, (ids,), dynamic_shapes={"input_ids": sizes}, strict=strict)
    ids = torch.arange(1, 28).view(3, 9)
    assert torch.allclose(exported.module()(ids)["hidden"], model(ids)["hidden"], **tol.COMPILED_F32)


def test_layers_whose_arguments_are_copied():
    """As FSDP does with mixed precision: it rebuilds what it finds tensors in."""
    model = roformer_cpp.build_model(CONFIG | {"model_type": "rf_encoder", "position_encoding": "alibi"})
    ids = torch.arange(1, 13).view(2, 6)
    expected = model(ids)["hidden"]
    for layer in model.encoder.layer:
        layer.register_forward_pre_hook(lambda _, given: _apply_to_tensors(lambda x: x.clone(), given))
    assert torch.equal(model(ids)["hidden"], expected)


def test_compiled_by_inductor():
    model, loss = model_and_loss("RoFormerModel", model_type="rf_encoder", position_encoding="t5")
    assert_compiled_equals(model, loss, [torch.randint(0, 37, (2, 5))], backend="inductor")


def test_compiled_dropout_follows_the_generator():
    model, loss = model_and_loss("RoFormerForMaskedLM", hidden_dropout_prob=0.3)
    model.train()
    torch._dynamo.reset()
    compiled, ids = torch.compile(loss, fullgraph=True, backend="aot_eager"), torch.arange(1, 11).view(2, 5)
    torch.manual_seed(1)
    first, second = compiled(ids), compiled(ids)
    torch.manual_seed(1)
    assert torch.equal(loss(ids), first) and torch.equal(loss(ids), second) and not torch.equal(first, second)

    def keyed(ids):
        return model(ids, dropout_key=(5, 2))["hidden"]

    assert torch.equal(torch.compile(keyed, fullgraph=True, backend="aot_eager")(ids), keyed(ids))


@pytest.mark.parametrize("function", ["layer", "model", "encode"])
def test_compiled_modules_under_autocast(function):
    torch._dynamo.reset()
    layer, (model, _) = encoder_layer("t5"), model_and_loss("RoFormerForMaskedLM")
    functions = {
        "layer": lambda ids: layer(ids[:, :, None] / torch.arange(1, H * D + 1)),
        "model": lambda ids: model(ids)["logits"],
        "encode": lambda ids: model.encode(ids),
    }
    ids = torch.arange(1, 11).view(2, 5)
    with torch.autocast("cpu", torch.bfloat16):
        expected = functions[function](ids)
        found = torch.compile(functions[function], fullgraph=True, backend="aot_eager")(ids)
        assert found.dtype == expected.dtype and torch.equal(found, expected)


class Table(roformer_cpp.CustomEncoding):
    def __init__(self, shape):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(shape.max_position_embeddings, shape.embedding_size))

    def input(self, positions, dtype):
        return self.table[positions].to(dtype)

    def shared(self, positions, key_positions, dtype):
        return roformer_cpp.Terms()


def test_encoding_compiles_with_linear_attention_and_inputs():
    roformer_cpp.register_encoding("compiled-table", Table)
    torch._dynamo.reset()
    shape = dict(num_attention_heads=H, head_dim=D)
    rope, learned, table = (roformer_cpp.encoding(name, **shape) for name in ("rope", "learned", "compiled-table"))
    both = roformer_cpp.combine_encodings([table, rope])

    def function(q):
        positions = torch.arange(q.shape[1])
        attended = roformer_cpp.linear_attention(q, q, q, "elu", rope.terms(positions), is_causal=True)
        return attended.flatten(2) + learned.input(positions) + both.input(positions) + (rope.input(positions) or 0)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert same(results(compiled, inputs()), results(function, inputs()))


@pytest.mark.parametrize("feature_map", ["favor", "relu"])
def test_linear_attention_draws_vectors_in_compiled_code(feature_map):
    torch._dynamo.reset()
    options = {"feature_map": feature_map, "num_features": 12, "redraw_every": 2}
    plain, inside = (roformer_cpp.LinearAttention(D, **options).train() for _ in range(2))
    compiled = torch.compile(inside, fullgraph=True, backend="aot_eager")
    first = inside.projection.clone()
    for _ in range(5):
        found, expected = (results(lambda q, f=f: f(q, q, q), inputs()) for f in (compiled, plain))
        assert same(found, expected, tol.COMPILED_GRADIENT_F32)
        assert all(torch.equal(x, y) for x, y in zip(inside.buffers(), plain.buffers(), strict=True))
    assert inside.calls.item() == 5 and not torch.equal(inside.projection, first)

    def twice(layer):
        """Draws between two calls of one graph, and before the backward of both."""

        def function(q):
            return layer(q, q, q).square() + layer(2 * q, q, q)

        first, second = inputs().requires_grad_(), inputs().requires_grad_()
        backend = "inductor" if feature_map == "relu" else "aot_eager"
        compiled = torch.compile(function, fullgraph=True, backend=backend) if layer is inside else function
        (compiled(first).sum() + compiled(second).square().sum()).backward()
        return [first.grad, second.grad]

    assert same(twice(inside), twice(plain), tol.COMPILED_GRADIENT_F32)
    assert all(torch.equal(x, y) for x, y in zip(inside.buffers(), plain.buffers(), strict=True))


def test_a_call_with_a_cache_is_outside_of_the_graph():
    torch._dynamo.reset()
    model, ids = model_and_loss("RoFormerForCausalLM")[0], torch.arange(1, 11).view(2, 5)

    def function(ids, cache):
        return model(ids, cache=cache)["logits"] * 2

    compiled, cache = torch.compile(function, backend="aot_eager"), model.new_cache()
    found = [compiled(ids[:, :3], cache), compiled(ids[:, 3:], cache)]
    assert cache.tokens() == 5 and torch.allclose(torch.cat(found, 1), 2 * model(ids)["logits"], **tol.COMPILED_F32)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="a call with a cache, which it changes, must be outside of a graph"):
        torch.compile(function, backend="aot_eager", fullgraph=True)(ids, model.new_cache())


def test_terms_of_compiled_code_are_used_outside_of_it():
    torch._dynamo.reset()
    encoding, q = roformer_cpp.encoding("t5", num_attention_heads=H, head_dim=D), inputs()
    positions = torch.arange(8)
    terms = torch.compile(encoding.terms, fullgraph=True, backend="eager")(positions)
    plain = encoding.terms(positions)
    assert torch.equal(terms.bias.rows, plain.bias.rows)
    assert torch.equal(roformer_cpp.attention(q, q, q, terms), roformer_cpp.attention(q, q, q, plain))
    with pytest.raises(Exception, match="terms must be given to attention or linear_attention inside compiled code"):
        torch.compile(lambda p: encoding.terms(p).bias.rows, fullgraph=True, backend="eager")(positions)


def test_a_layer_exported_and_loaded_again(tmp_path):
    layer, shapes = encoder_layer("t5").eval(), ({1: torch.export.Dim("tokens", min=2, max=16)},)
    given = [torch.randn(2, tokens, H * D) for tokens in (5, 9)]
    loaded = loaded_again(torch.export.export(layer, (given[0],), dynamic_shapes=shapes), tmp_path)
    assert same(map(loaded, given), map(layer, given))


def test_parameters_of_a_compiled_model_may_be_replaced():
    torch._dynamo.reset()
    model = model_and_loss("RoFormerModel")[0]
    other = roformer_cpp.build_model(model.config, "RoFormerModel", seed=7)
    ids = torch.arange(1, 11).view(2, 5)
    compiled = torch.compile(lambda ids: model(ids)["hidden"], fullgraph=True, backend="aot_eager")
    before = compiled(ids)
    model.load_state_dict(other.state_dict(), assign=True)
    assert torch.equal(compiled(ids), other(ids)["hidden"]) and not torch.equal(before, compiled(ids))


def test_whole_calls_pass_opcheck():
    layer, q = encoder_layer("t5"), inputs().requires_grad_()
    tensors = [q, q, q, *layer.attention.encoding.parameters(), torch.arange(8)]
    names = ["q", "k", "v", *["encoding"] * (len(tensors) - 4), "encoding_positions"]
    words, numbers = ["auto", layer.attention.encoding._text], [-1, -1, 0, 0, 6]
    opcheck(torch.ops.roformer_python.attention, words, tensors, names, numbers, [0.0, float("nan")])
    opcheck(torch.ops.roformer_python.dropout, [], [q, torch.tensor(5)], ["x", "seed"], [3], [0.5])
