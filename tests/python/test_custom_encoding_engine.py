"""Encodings written in Python, served by the engine: it computes the model's numbers from the stored terms at every
length, or refuses the model by the name of what no file has. The oracle: the model, which calls the encoding.
"""

import re

import numpy as np
import pytest
import torch
from torch import nn

import roformer_cpp
from engine_case import SIZES, assert_close
from rf_engine import Engine as Rows
from rf_engine import EngineError
from roformer_cpp import DistanceTable, Rotation, Terms

LENGTHS = (1, 2, 9, 30)
LAYERS, HEADS, POSITIONS = map(SIZES.get, ("num_hidden_layers", "num_attention_heads", "max_position_embeddings"))
DIM = SIZES["hidden_size"] // HEADS


class Custom(roformer_cpp.CustomEncoding):
    """Numbers for each layer, and rows by distance as in a user's own code."""

    width = ()

    def __init__(self, shape):
        super().__init__()
        layers = shape.num_hidden_layers
        self.slope = nn.Parameter(torch.rand(layers, shape.num_attention_heads, *[1] * (1 + len(self.width))) + 0.1)
        self.vectors = nn.Parameter(torch.randn(layers, shape.num_attention_heads, POSITIONS, shape.head_dim))

    def shared(self, positions, key_positions, dtype):
        return positions, key_positions

    def table(self, layer, shared):
        """slope cos(d) for every distance of the call."""
        positions, key_positions = shared
        lo, hi = int(positions.min() - key_positions.max()), int(positions.max() - key_positions.min())
        distance = torch.arange(lo, hi + 1).view(1, -1, *[1] * len(self.width))
        return DistanceTable((self.slope[layer] * distance.cos()).expand(-1, -1, *self.width), lo, hi)


def made(compute, base=Custom, **attributes):
    """A class whose terms of a layer are ``compute(self, layer, shared)``."""

    def layer_terms(self, layer, shared, projections, *vectors):
        return compute(self, layer, shared)

    return type("Made", (base,), {"layer_terms": layer_terms} | attributes)


def kerple(self, layer, shared):
    """All layers share it."""
    _, lo, hi = self.table(layer, shared)
    return Terms(bias=DistanceTable(-torch.log1p(self.slope[0].exp() * torch.arange(lo, hi + 1).abs()), lo, hi))


def by_tokens(self, layer, shared):
    """Distances from the number of tokens."""
    tokens = shared[0].shape[1]
    distance = torch.arange(1 - tokens, tokens)
    return Terms(bias=DistanceTable(self.slope[layer] * distance.sin(), 1 - tokens, tokens - 1))


def tables(self, layer, shared):
    table = self.table(layer, shared)
    one = DistanceTable(table.rows[:1] * 0.3, table.lo, table.hi)  # of all heads
    return Terms(key_table=table, query_table=one, value_table=table)


def gate(self, layer, shared):
    rows, lo, hi = self.table(layer, shared)
    return Terms(gate=DistanceTable(rows.unsqueeze(-1), lo, hi))


class Biases(Custom):
    """u, w and another scale, with vectors that go through the layer's projection."""

    def layer_terms(self, layer, shared, projections):
        through = (projections[1] @ torch.ones(projections[1].shape[1])).view(HEADS, DIM)
        table = DistanceTable(self.vectors[layer, :, :5], -2, 2)
        return Terms(content_bias=through, position_bias=self.vectors[layer, :, 0], key_table=table, scale=0.2)


def positions(self, layer, shared):
    """a, c, row and col; the rows end with max_position_embeddings."""
    last = int(max(each.max() for each in shared))
    rows = self.vectors[layer][:, : last + 1]
    if rows.shape[1] != last + 1:
        raise IndexError(f"row {last}")
    ends = {"reset_row": self.slope[layer, :, 0], "reset_col": self.vectors[layer, :, 0, 0]}
    return Terms(position_query=rows, position_key=rows.flip(-1), **ends)


def window(self, layer, shared):
    """Another number beyond three tokens."""
    rows, lo, hi = self.table(layer, shared)
    return Terms(bias=DistanceTable(torch.where(torch.arange(lo, hi + 1).abs() > 3, self.beyond, rows), lo, hi))


Kerple, Positions = made(kerple), made(positions, max_length=POSITIONS)
SERVED = {
    "bias": Kerple,
    "bias by tokens": made(by_tokens),
    "K, Q, V": made(tables, width=(DIM,)),
    "G": made(gate),
    "u, w, K, s": Biases,
    "a, c, row, col": Positions,
    "a, c of a silent end": made(positions),
    "window": made(window, beyond=-1e9),
}
BESIDE = {"rope": "bias", "learned": "K, Q, V", "sinusoidal": "bias by tokens"}


# ---- what no file has


def added(self, positions, dtype):
    return 2 * torch.ones(*positions.shape, SIZES["hidden_size"], dtype=dtype)


def added_to_sequences(self, positions, dtype):
    return None if positions.shape[1] == 1 else added(self, positions, dtype)


def rotation_of(ids):
    angle = ids.unsqueeze(-1) * torch.ones(DIM // 2)
    return Rotation(angle.cos(), angle.sin())


def nothing(self, layer, shared):
    return Terms()


def by_pair(self, layer, shared):
    distance = shared[0][:, None, :, None] - shared[1][:, None, None]
    return Terms(pair_bias=-distance.abs().float())


def length(shared):
    return 1 + int(shared[1].max())


def bias(self, layer, shared):
    return Terms(bias=self.table(layer, shared))


def bias_by_length(self, layer, shared):
    """The distance over the sequence's length."""
    rows, lo, hi = self.table(layer, shared)
    return Terms(bias=DistanceTable(rows / length(shared), lo, hi))


def head_by_length(self, layer, shared):
    """One head attends to its own token alone, another by the distance over the length."""
    _, lo, hi = self.table(layer, shared)
    rows = torch.arange(lo, hi + 1).repeat(HEADS, 1) / length(shared)
    rows[0, torch.arange(lo, hi + 1) != 0] = -1e9
    return Terms(bias=DistanceTable(rows, lo, hi))


def one_long(shared, *shape):
    """Factors of the heads: one is large, and another depends on the length."""
    factors = torch.ones(HEADS, *shape)
    factors[0], factors[1] = 1e6, 1 / length(shared)
    return factors


def keys_by_length(self, layer, shared):
    rows, lo, hi = self.table(layer, shared)
    return Terms(key_table=DistanceTable(rows * one_long(shared, 1, 1), lo, hi))


def units_by_length(self, layer, shared):
    vectors = self.vectors[layer]
    return Terms(content_bias=vectors[:, 0], position_bias=vectors[:, 1] * one_long(shared, 1))


def far_from_start(self, layer, shared):
    """A scale that grows from the eighth position on."""
    return Terms(bias=self.table(layer, shared), scale=max(8, int(shared[1].max())) ** -0.5)


VECTORS = "vectors added to the input by an encoding of Python"


def of_tokens(self, layer, shared, projections, token_numbers):
    return bias(self, layer, shared)


ON_TOKENS = dict(layer_terms=of_tokens, numbers_per_token=1, token_numbers=lambda self, layer, x: x[..., :1])
REFUSED = {
    "words": (made(kerple, words=lambda self, x, *_: 2 * x), "word embeddings changed by an encoding of Python"),
    "layers": (
        made(kerple, layer_input=lambda self, layer, x: torch.ones(*x[0].shape, SIZES["hidden_size"])),
        "vectors added to the input of every layer by an encoding of Python",
    ),
    "tokens": (made(None, **ON_TOKENS), "terms that depend on tokens"),
    "input": (made(nothing, input=added), VECTORS),
    "input and bias": (made(kerple, input=added), VECTORS),
    "input of sequences alone": (made(nothing, input=added_to_sequences), VECTORS),
    "rotations": (made(lambda s, i, x: Terms(query=rotation_of(x[0]), key=rotation_of(x[1]))), "query (R^q)"),
    "rope and values": (made(lambda self, layer, shared: Terms(value=rotation_of(shared[1]))), "value (R^v)"),
    "kappa of one layer": (
        made(lambda s, i, x: Terms(key_score=x[1][:, None].float()) if i == LAYERS - 1 else Terms()),
        "key_score (kappa)",
    ),
    "P": (made(by_pair), "pair_bias (P)"),
    "queries and keys": (made(bias, reads_vectors=True), "terms that depend on queries and keys"),
    "length": (made(bias_by_length), "bias (b) that changes with the length"),
    "length beside a mask": (made(head_by_length), "bias (b) that changes with the length"),
    "length beside long vectors": (made(keys_by_length, width=(DIM,)), "key_table (K) that changes with the length"),
    "length beside a long head": (made(units_by_length), "position_bias (w) that changes with the length"),
    "infinity": (made(window, beyond=-torch.inf), "bias (b) with a number that is not finite"),
    "scale of long sequences": (made(far_from_start), "a scale (s) that changes with the length"),
    "some layers": (made(lambda s, i, x: bias(s, i, x) if i else Terms()), "bias (b) in some layers alone"),
    "scales": (made(lambda self, layer, shared: Terms(scale=1.0 / (1 + layer))), "a scale (s) for each layer"),
}


def saved(cls, folder, beside=None, head=None, **changes):
    roformer_cpp.register_encoding("custom", cls)
    encoding = "custom" if beside is None else [beside, "custom"]
    config = SIZES | {"model_type": "rf_encoder", "position_encoding": encoding} | changes
    model = roformer_cpp.build_model(config, head)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    model.save(folder)
    return model


def assert_served(model, folder, lengths=LENGTHS):
    draw = np.random.default_rng(2)
    ids = [draw.integers(1, SIZES["vocab_size"], n).astype(np.int32) for n in lengths]
    with torch.no_grad():
        expected = [model.encode(torch.from_numpy(row)[None].long())[0].numpy() for row in ids]
    assert_close(Rows(folder, head="none").hidden(ids), np.concatenate(expected))


@pytest.mark.parametrize("name", SERVED)
def test_the_engine_computes_what_the_model_does(name, tmp_path):
    for is_decoder in (False, True):
        assert_served(saved(SERVED[name], tmp_path, is_decoder=is_decoder), tmp_path)


@pytest.mark.parametrize("beside", BESIDE)
def test_beside_an_encoding_of_the_program(beside, tmp_path):
    assert_served(saved(SERVED[BESIDE[beside]], tmp_path, beside), tmp_path)


def test_bake_and_the_end_of_rows(tmp_path):
    model = saved(Kerple, tmp_path, max_position_embeddings=32)
    for tokens in (3, 40):
        baked = roformer_cpp.bake(tmp_path, tokens)
        assert baked["tokens"] == tokens and baked["longest"] is None
        assert_served(model, tmp_path, (1, tokens))
    with pytest.raises(EngineError, match=r"at most the 40 positions .*, got 41; roformer bake"):
        Rows(tmp_path).hidden([np.ones(41)])
    model = saved(Positions, tmp_path)
    assert roformer_cpp.bake(tmp_path)["longest"] == POSITIONS
    for call in (lambda: Rows(tmp_path).hidden([np.ones(33)]), lambda: model(torch.ones(1, 33, dtype=torch.long))):
        with pytest.raises((EngineError, ValueError), match=r"32.* got 3[23]"):
            call()
    with pytest.raises(ValueError, match="at most the 32 that the position encoding reads, got 33"):
        roformer_cpp.bake(tmp_path, 33)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_file_has_is_refused_by_name(name, tmp_path):
    cls, lacking = REFUSED[name]
    model = saved(cls, tmp_path, "rope" if name.startswith("rope") else None)
    ids = torch.arange(1, 10)[None]
    assert torch.equal(roformer_cpp.load_model(tmp_path)(ids)["hidden"], model(ids)["hidden"])
    rule = re.escape(f"terms must be rows by distance or by position, got {lacking} from the position encoding")
    with pytest.raises(RuntimeError, match=rule):
        roformer_cpp.bake(tmp_path)
    with pytest.raises(EngineError, match=re.escape(lacking)):
        Rows(tmp_path)
