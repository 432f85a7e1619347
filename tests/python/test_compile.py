"""torch.compile, torch.export, torch.func and meta tensors: each public function runs under them with the results of a
plain call, or refuses with a sentence.
"""

import pytest
import torch

import roformer_cpp
import tolerances as tol
from roformer_cpp import DistanceTable, Rotation, Terms

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
    ends = torch.tensor([0, 3, q.shape[1]])
    return roformer_cpp.attention(q[:1], q[:1], q[:1], cu_seqlens=ends)


FUNCTIONS = {
    "rope": lambda q: roformer_cpp.rope(q, torch.arange(q.shape[1]), layout="pairs"),
    "rotate": lambda q: roformer_cpp.rotate(q, *rotation(q.shape[1]).query, layout="halves"),
    "attention": lambda q: roformer_cpp.attention(q, q, q),
    "causal": lambda q: roformer_cpp.attention(q, q, q, is_causal=True, window=5, scale=0.5),
    "rotations": lambda q: roformer_cpp.attention(q, q, q, rotation(q.shape[1])),
    "tables": lambda q: roformer_cpp.attention(q, q, q, tables(q.shape[1])),
    "mask": lambda q: roformer_cpp.attention(q, q, q, mask=torch.ones(1, 1, 1, q.shape[1], dtype=torch.bool)),
    "packed": packed,
    "heads first": lambda q: roformer_cpp.attention(
        q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2), heads_first=True
    ).transpose(1, 2),
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


def same(a, b, bound=tol.COMPILED_F32):
    return all(torch.allclose(x, y, **bound) for x, y in zip(a, b, strict=True))


@every_function
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_as_one_graph(name, dtype):
    function = FUNCTIONS[name]
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=name not in STATIC)
    for tokens in (8, 8, 9, 12):
        q = inputs(tokens, dtype)
        found, expected = results(compiled, q), results(function, q)
        bound = tol.COMPILED_F32 if dtype == torch.float32 else tol.COMPILED_BF16
        assert same(found, expected, bound)
        with torch.no_grad():
            assert torch.allclose(compiled(q), function(q), **bound)


@pytest.mark.parametrize("name", ["attention", "rotations", "tables"])
def test_compiled_under_autocast(name):
    torch._dynamo.reset()
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(inputs()), FUNCTIONS[name](inputs()))


@every_function
def test_exported(name):
    class Module(torch.nn.Module):
        def forward(self, q):
            return FUNCTIONS[name](q)

    shapes = None if name in STATIC else ({1: torch.export.Dim("tokens", min=2, max=4096)},)
    exported = torch.export.export(Module(), (inputs(8),), dynamic_shapes=shapes).module()
    for tokens in (8,) if name in STATIC else (8, 5, 33):
        assert torch.allclose(exported(inputs(tokens)), FUNCTIONS[name](inputs(tokens)), **tol.COMPILED_F32)


@pytest.mark.parametrize("name", ["attention", "causal", "linear", "favor"])
def test_shapes_of_meta_tensors(name):
    with torch.device("meta"):
        out = FUNCTIONS[name](torch.empty(2, 8, H, D))
    assert out.is_meta and out.shape == (2, 8, H, D)


@pytest.mark.parametrize("name", ["attention", "causal", "rotations", "tables", "explicit"])
def test_transforms_of_torch_func(name):
    function = FUNCTIONS[name]
    q = inputs(dtype=torch.float64 if name == "explicit" else torch.float32)
    if name in ("rotations", "explicit"):
        # The rotation's operator is not one that torch.func knows how to transform; it says so.
        with pytest.raises(RuntimeError, match="functorch"):
            torch.func.grad(lambda q: function(q).square().sum())(q)
        return
    found = torch.func.grad(lambda q: function(q).square().sum())(q)
    assert torch.allclose(found, results(function, q)[1], **tol.COMPILED_GRADIENT_F32)
    many = torch.stack([q, 2 * q])
    mapped = torch.vmap(function)(many)
    assert torch.allclose(mapped, torch.stack([function(q), function(2 * q)]), **tol.COMPILED_GRADIENT_F32)


def test_operators_pass_opcheck():
    q = inputs().requires_grad_()
    terms = tables(8).arguments()
    positions = torch.arange(8)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    arguments = (q, q, q, *terms, positions, positions, None, -1, 0, None, None, "auto")
    torch.library.opcheck(torch.ops.roformer.attention.default, arguments, test_utils=checks)
    linear = (q, q, q, [], [], [], "pairs", None, "{}", None, True, None, None, None)
    torch.library.opcheck(torch.ops.roformer.linear_attention.default, linear, test_utils=checks)


def test_modules_compile_with_breaks():
    """Terms of an encoding depend on the values of positions, and a model is one call: both leave the graph."""
    torch._dynamo.reset()
    encoding = roformer_cpp.encoding("t5", num_attention_heads=H, head_dim=D)
    layer = roformer_cpp.EncoderLayer(H * D, H, encoding)
    x = torch.randn(2, 5, H * D)
    assert torch.allclose(torch.compile(layer, backend="eager")(x), layer(x), **tol.COMPILED_F32)
    config = dict(vocab_size=37, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20)
    model = roformer_cpp.build_model(config | {"model_type": "roformer", "max_position_embeddings": 16})
    ids = torch.arange(1, 11).view(2, 5)
    compiled = torch.compile(lambda ids: model(ids)["hidden"].sum(-1), backend="eager")
    assert torch.equal(compiled(ids), model(ids)["hidden"].sum(-1))
