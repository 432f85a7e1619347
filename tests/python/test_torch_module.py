"""Encodings, linear attention, layers and models are modules of torch: what torch and its users do to parameters of any
module is what they compute with.
"""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import roformer_cpp
import tolerances as tol
from attention_terms import to_dict
from encoding_case import TINY_IDS as IDS
from encoding_case import TINY_MODEL as MODEL

SHAPE = {"num_attention_heads": 2, "head_dim": 8, "num_hidden_layers": 2, "hidden_size": 16}
TRAINED = {"learned": {}, "shaw": {}, "transformer-xl": {}, "t5": {}, "tupe-r": {}, "rope": {"trainable": True}}
TOKENS = torch.arange(6)


def of_numbers(encoding):
    """Everything that an encoding computes from its parameters, as one vector."""
    projections = tuple(torch.linspace(-1, 1, 256).view(16, 16).to(next(encoding.parameters()).dtype) for _ in range(3))
    terms = encoding.terms(TOKENS, layer=1, projections=projections)
    flat = [x for name, x in to_dict(terms).items() if x.is_floating_point() and name != "scale"]
    added = encoding.input(TOKENS)
    return torch.cat([x.double().flatten() for x in flat + ([] if added is None else [added])])


every_encoding = pytest.mark.parametrize("name", TRAINED)


def made(name):
    return roformer_cpp.encoding(name, **SHAPE, **TRAINED[name])


def replaced(module, seed=3):
    """Other values for every parameter."""
    generator = torch.Generator().manual_seed(seed)
    named = module.named_parameters()
    return {name: torch.rand(x.shape, generator=generator).to(x.dtype) + 0.1 for name, x in named}


def with_values(encoding, values):
    """Oracle: the same encoding, whose parameters are overwritten in place."""
    with torch.no_grad():
        for name, parameter in encoding.named_parameters():
            parameter.copy_(values[name])
    return of_numbers(encoding)


@every_encoding
def test_parameters_given_in_place_of_an_encodings_are_used(name):
    encoding, values = made(name), replaced(made(name))
    before = of_numbers(encoding)
    expected = with_values(made(name), values)
    assert not torch.equal(before, expected)

    wrapper = nn.ModuleDict({"encoding": encoding})
    wrapper.forward = lambda: of_numbers(encoding)
    given = {f"encoding.{key}": value.requires_grad_() for key, value in values.items()}
    called = torch.func.functional_call(wrapper, given)
    assert torch.equal(called, expected)
    called.sum().backward()
    for key, value in given.items():  # layer 0 has tables of its own, which layer 1 does not read
        assert value.grad is not None or ".0." in key, key
    assert torch.equal(of_numbers(encoding), before)
    assert all(parameter.grad is None for parameter in encoding.parameters())

    encoding.load_state_dict({key: value.detach() for key, value in values.items()}, assign=True)
    assert torch.equal(of_numbers(encoding), expected)


@every_encoding
def test_copies_of_encodings_are_apart_and_parametrized(name):
    encoding = made(name)
    before = of_numbers(encoding)
    file = io.BytesIO()
    torch.save(encoding, file)
    file.seek(0)
    others = [copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding)), torch.load(file, weights_only=False)]
    for other in (*others, torch.optim.swa_utils.AveragedModel(encoding).module):
        assert torch.equal(of_numbers(other), before)
        with torch.no_grad():
            next(iter(other.parameters())).add_(1)
    assert torch.equal(of_numbers(encoding), before)
    expected = with_values(copy.deepcopy(encoding), {k: 2 * v for k, v in encoding.state_dict().items()})

    class Doubled(nn.Module):
        def forward(self, x):
            return 2 * x

    for full_name, _ in list(encoding.named_parameters()):
        path, _, leaf = full_name.rpartition(".")
        parametrize.register_parametrization(encoding.get_submodule(path), leaf, Doubled())
    assert torch.equal(of_numbers(encoding), expected)


@every_encoding
def test_devices_and_dtypes_of_encodings(name):
    with torch.device("meta"):
        empty = made(name)
    assert all(parameter.is_meta for parameter in empty.parameters())
    with pytest.raises(ValueError, match=r"\[encoding\] .* must have values, got a tensor on the device meta"):
        of_numbers(empty)
    encoding = made(name)
    empty.load_state_dict(encoding.state_dict(), assign=True)
    assert torch.equal(of_numbers(empty), of_numbers(encoding))
    expected = of_numbers(encoding)
    assert all(parameter.dtype == torch.float64 for parameter in encoding.double().parameters())
    assert torch.allclose(of_numbers(encoding), expected, **tol.CAST_PARAMETERS)
    encoding.share_memory()
    assert all(parameter.is_shared() for parameter in encoding.parameters())


def test_a_parameter_of_another_shape_is_refused():
    encoding = made("t5")
    encoding.relative_attention_bias = nn.Parameter(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"relative_attention_bias must keep its shape \[32, 2\], got \[3, 2\]"):
        of_numbers(encoding)


def test_combinations_share_their_parts():
    t5, learned = made("t5"), made("learned")
    both = roformer_cpp.combine_encodings([learned, t5])
    assert dict(both.named_parameters())["1.relative_attention_bias"] is t5.relative_attention_bias
    values = replaced(both)
    both.load_state_dict(values, assign=True)
    own = {"relative_attention_bias": values["1.relative_attention_bias"]}
    assert torch.equal(of_numbers(t5), with_values(made("t5"), own))
    for other in (copy.deepcopy(both), pickle.loads(pickle.dumps(both))):
        assert torch.equal(of_numbers(other), of_numbers(both))


# ---- models ----

HEAD_NAMES = ("RoFormerForSequenceClassification", "BertForMaskedLM")


def built(head="RoFormerForMaskedLM", seed=0, **changes):
    family = {"Be": "bert", "Rf": "rf_encoder"}.get(head[:2], "roformer")
    return roformer_cpp.build_model(MODEL | {"model_type": family} | changes, head, seed)


@pytest.mark.parametrize("head", HEAD_NAMES)
def test_parameters_given_in_place_of_a_models_are_used(head, tmp_path):
    model, other = built(head), built(head, seed=1)
    expected = other(IDS)["logits"].detach()
    before = model(IDS)["logits"].detach()
    given = {name: value.clone().requires_grad_() for name, value in other.state_dict().items()}
    called = torch.func.functional_call(model, given, (IDS,))["logits"]
    assert torch.equal(called, expected)
    called.square().sum().backward()
    other(IDS)["logits"].square().sum().backward()
    for name, parameter in other.named_parameters():
        assert (parameter.grad is None) == (given[name].grad is None)
        assert parameter.grad is None or torch.equal(parameter.grad, given[name].grad)
    for i, copied in enumerate((copy.deepcopy(model), pickle.loads(pickle.dumps(model)))):
        assert torch.equal(copied(IDS)["logits"], before)
        with torch.no_grad():
            next(iter(copied.parameters())).add_(1)
        copied.save(tmp_path / str(i))
        again = roformer_cpp.load_model(tmp_path / str(i))(IDS)["logits"]
        assert torch.equal(again, copied(IDS)["logits"]) and not torch.equal(again, before)
    assert torch.equal(model(IDS)["logits"], before)
    model.load_state_dict(other.state_dict(), assign=True)
    assert torch.equal(model(IDS)["logits"], expected)


def test_a_model_without_values_is_made_and_filled():
    with torch.device("meta"):
        model = built()
    assert all(parameter.is_meta for parameter in model.parameters())
    with pytest.raises(ValueError, match="must have values, got a tensor on the device meta"):
        model(IDS)
    other = built(seed=2)
    model.load_state_dict(other.state_dict(), assign=True)
    assert torch.equal(model(IDS)["logits"], other(IDS)["logits"])


def test_distributed_data_parallel(tmp_path):
    """Of one process. FSDP2: test_researcher.py and test_distributed.py."""
    plain, model = built(), built()
    plain(IDS)["logits"].square().sum().backward()
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        out = wrapped(IDS)["logits"]
        assert torch.equal(out, plain(IDS)["logits"])
        out.square().sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    for (name, parameter), other in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert parameter.grad is None or torch.equal(other.grad, parameter.grad), name


# ---- linear attention and layers ----


def test_linear_attention_is_a_module_with_its_state():
    module = roformer_cpp.LinearAttention(8, feature_map="favor", redraw_every=2).eval()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 5, 2, 8)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(q, k, v), module(q, k, v))
        for _ in range(3):
            other.train()(q, k, v)
        assert int(other.calls) == 3 and int(other.redraws) == 1 and int(module.calls) == 0
        assert not torch.equal(other.projection, module.projection)
    drawn = torch.zeros_like(module.projection)
    changed = torch.func.functional_call(module.eval(), {"projection": drawn}, (q, k, v))
    assert not torch.equal(changed, module(q, k, v))
    assert next(iter(module.double().buffers())).dtype == torch.float64


@pytest.mark.parametrize("name", ["rope", "t5", "transformer-xl"])
def test_an_encoder_layer_computes_what_a_model_does(name):
    """With the weights of a model of one layer, whose embeddings are its input."""
    model = built("RfEncoderModel", num_hidden_layers=1, position_encoding=name, hidden_act="gelu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    weights = model.state_dict()
    embedded = weights["embeddings.word_embeddings.weight"][IDS] + weights["embeddings.token_type_embeddings.weight"][0]
    norm = [weights[f"embeddings.LayerNorm.{each}"] for each in ("weight", "bias")]
    x = nn.functional.layer_norm(embedded, (16,), *norm, eps=1e-12)
    encoding = roformer_cpp.encoding(name, num_attention_heads=2, head_dim=8, max_position_embeddings=32)
    layer = roformer_cpp.EncoderLayer(16, 2, encoding, intermediate_size=20)
    names = {f"attention.self.{side}": f"attention.{side}" for side in ("query", "key", "value")}
    names |= {"attention.output.dense": "attention.output", "attention.output.LayerNorm": "attention_norm"}
    names |= {"intermediate.dense": "intermediate", "output.dense": "output", "output.LayerNorm": "output_norm"}
    names = {f"encoder.layer.0.{theirs}": ours for theirs, ours in names.items()}
    names |= {"position_encoding": "attention.encoding"}
    state = {}
    for theirs, ours in names.items():
        state |= {key.replace(theirs, ours): x for key, x in weights.items() if key.startswith(f"{theirs}.")}
    layer.load_state_dict(state)
    expected = model.encode(IDS)
    assert (layer(x) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_attention_layers_against_torchs():
    """torch.nn.MultiheadAttention with the same weights, in float64; grouped keys, packing and other states."""
    torch.manual_seed(0)
    x, states = torch.randn(2, 5, 16).double(), torch.randn(2, 7, 16).double()
    ours = roformer_cpp.Attention(16, 4).double()
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    for context in (x, states):
        expected = theirs(x, context, context, need_weights=False)[0]
        assert torch.allclose(ours(x, context), expected, rtol=tol.T1_RTOL, atol=tol.T1_ATOL)
    grouped = roformer_cpp.Attention(16, 4, num_key_value_heads=2, is_causal=True)
    assert grouped(torch.randn(2, 5, 16)).shape == (2, 5, 16)
    assert torch.equal(grouped(x.float())[:, :3], grouped(x[:, :3].float()))
