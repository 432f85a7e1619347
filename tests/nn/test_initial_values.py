"""Where the parameters of every encoding start, as its test file says (encoding_files.py). A comparison of encodings
after few steps depends on it."""

import math

import pytest
import torch

import roformer_cpp
from encoding_case import parameter
from encoding_files import INFOS, needs_keys, starts_of, sweep_keys
from initial_values import HEAD_DIM, HEADS, RANGE, WIDTH, check_normal, check_uniform
from tolerances import T2_RTOL

SIZES = {"num_attention_heads": HEADS, "head_dim": HEAD_DIM, "hidden_size": WIDTH, "num_hidden_layers": 2,
         "vocab_size": 300, "max_position_embeddings": 64, "initializer_range": RANGE}  # fmt: skip


@pytest.mark.parametrize("name", INFOS)
def test_starts_as_its_paper_does(name):
    """With the defaults of its keys: every parameter is listed, and no other."""
    torch.manual_seed(3)
    keys = sweep_keys(name, HEAD_DIM) if needs_keys(name) else {}
    encoding = roformer_cpp.encoding(name, **SIZES, **keys, is_decoder=INFOS[name]["needs_causal"])
    starts, found = starts_of(name), set()
    for full_name, values in encoding.named_parameters():
        own_name = full_name.split(".", 2)[2] if full_name.startswith("layer.") else full_name
        assert own_name in starts, f"{INFOS[name]['test']} must say in STARTS how {own_name} starts"
        starts[own_name](parameter(encoding, full_name).astype(float), f"{name}: {full_name}")
        found.add(own_name)
        assert values.dtype == torch.float32
    assert found == starts.keys()


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize(("position_encoding", "scales"), [
    ("rope", True), ({"type": "t5", "scale": "sqrt"}, True), ("t5", False), (["t5", "learned"], False)])  # fmt: skip
def test_projections_start_at_the_range_where_scores_are_scaled(position_encoding, scales, is_decoder):
    """tests/oracles/test_t5.py has those of T5 beside transformers' own."""
    heads, width = 4, 64
    config = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 64, "num_hidden_layers": 2,
              "vocab_size": 50, "initializer_range": RANGE, "is_decoder": is_decoder}  # fmt: skip

    def weights(encoding):
        torch.manual_seed(3)
        model = roformer_cpp.build_model({**config, "position_encoding": encoding})
        return dict(model.named_parameters())

    plain, model = weights("rope"), weights(position_encoding)
    for name, values in plain.items():
        factor = 1.0
        if not scales and name.endswith("attention.self.query.weight"):
            factor = 1 / (RANGE * math.sqrt(width * width / heads))
        if not scales and name.endswith("attention.self.key.weight"):
            factor = 1 / (RANGE * math.sqrt(width))
        torch.testing.assert_close(model[name], values * factor, rtol=T2_RTOL, atol=0)
    check_normal(plain["encoder.layer.1.attention.self.query.weight"].detach().double().numpy(), "query")


@pytest.mark.parametrize("name, keys, scales", [("rope", {}, True), ("t5", {"scale": "sqrt"}, True), ("t5", {}, False)])
def test_layers_start_as_models_do(name, keys, scales):
    """Without 1/sqrt(D), as T5's authors draw the projections (mesh_tensorflow, transformer_layers.py): q and k of
    inputs N(0, 1) then have a product N(0, 1). Otherwise as torch.nn.Linear."""
    torch.manual_seed(3)
    heads, head_dim, width = 8, 16, 96
    shape = {"num_attention_heads": heads, "head_dim": head_dim, "hidden_size": width}
    encoding = roformer_cpp.encoding(name, **keys, **shape)
    layers = [roformer_cpp.Attention(width, heads, encoding, head_dim=head_dim)]
    layers += [roformer_cpp.EncoderLayer(width, heads, encoding, head_dim=head_dim).attention]
    for layer in layers:
        for part, deviation in (("query", (width * head_dim) ** -0.5), ("key", width**-0.5), ("value", None)):
            weight, bias = (x.detach().double().numpy() for x in getattr(layer, part).parameters())
            if scales or deviation is None:
                check_uniform(weight, part, -(width**-0.5), width**-0.5)
                assert bias.any()
            else:
                check_normal(weight, part, deviation=deviation)
                assert not bias.any()
    bare = roformer_cpp.Attention(width, heads, encoding, head_dim=head_dim, bias=False)
    assert bare.query.bias is None
