"""Encodings written in Python, served by the engine: it computes the model's numbers from the stored terms at every
length, or refuses the model by the name of what no file has. The oracle: the model, which calls the encoding.
"""

import json
import re
import string

import numpy as np
import pytest
import torch
from torch import nn

import roformer_cpp
from engine_case import SIZES, assert_close
from rf_engine import Engine as Rows
from rf_engine import EngineError
from roformer_cpp import DistanceTable, Rotation, Terms
from roformer_cpp.engine import Engine

LENGTHS = (1, 2, 9, 30)
LAYERS, HEADS, POSITIONS = (
    SIZES[key] for key in ("num_hidden_layers", "num_attention_heads", "max_position_embeddings")
)
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


class Kerple(Custom):
    """All layers share it."""

    def layer_terms(self, layer, shared, projections):
        positions, key_positions = shared
        lo, hi = int(positions.min() - key_positions.max()), int(positions.max() - key_positions.min())
        return Terms(bias=DistanceTable(-torch.log1p(self.slope[0].exp() * torch.arange(lo, hi + 1).abs()), lo, hi))


class ByTokens(Custom):
    """Distances from the number of tokens."""

    def layer_terms(self, layer, shared, projections):
        tokens = shared[0].shape[1]
        distance = torch.arange(1 - tokens, tokens)
        return Terms(bias=DistanceTable(self.slope[layer] * distance.sin(), 1 - tokens, tokens - 1))


class Tables(Custom):
    width = (DIM,)

    def layer_terms(self, layer, shared, projections):
        table = self.table(layer, shared)
        one = DistanceTable(table.rows[:1] * 0.3, table.lo, table.hi)  # of all heads
        return Terms(key_table=table, query_table=one, value_table=table)


class Clipped(Custom):
    def layer_terms(self, layer, shared, projections):
        return Terms(key_table=DistanceTable(self.vectors[layer, :, :7], -3, 3))


class Gate(Custom):
    def layer_terms(self, layer, shared, projections):
        return Terms(gate=DistanceTable(self.table(layer, shared).rows.unsqueeze(-1), *self.table(layer, shared)[1:]))


class Biases(Custom):
    """u, w and another scale, with vectors that go through the layer's projection."""

    def layer_terms(self, layer, shared, projections):
        through = (projections[1] @ torch.ones(projections[1].shape[1])).view(HEADS, DIM)
        table = DistanceTable(self.vectors[layer, :, :5], -2, 2)
        return Terms(content_bias=through, position_bias=self.vectors[layer, :, 0], key_table=table, scale=0.2)


class Positions(Custom):
    """a, c, row and col; the rows end with max_position_embeddings."""

    max_length = POSITIONS

    def layer_terms(self, layer, shared, projections):
        last = int(max(each.max() for each in shared))
        rows = self.vectors[layer][:, : last + 1]
        if rows.shape[1] != last + 1:
            raise IndexError(f"row {last}")
        ends = {"reset_row": self.slope[layer, :, 0], "reset_col": self.vectors[layer, :, 0, 0]}
        return Terms(position_query=rows, position_key=rows.flip(-1), **ends)


class SilentEnd(Positions):
    max_length = None


class Window(Custom):
    """A large number beyond three tokens."""

    beyond = -1e9

    def layer_terms(self, layer, shared, projections):
        rows, lo, hi = self.table(layer, shared)
        return Terms(bias=DistanceTable(torch.where(torch.arange(lo, hi + 1).abs() > 3, self.beyond, rows), lo, hi))


SERVED = {
    "bias": Kerple,
    "bias by tokens": ByTokens,
    "K, Q, V": Tables,
    "clipped K": Clipped,
    "G": Gate,
    "u, w, K, s": Biases,
    "a, c, row, col": Positions,
    "a, c of a silent end": SilentEnd,
    "window": Window,
}
BESIDE = {"rope": "bias", "learned": "K, Q, V", "sinusoidal": "bias by tokens"}


class Input(Custom):
    def input(self, positions, dtype):
        return 2 * torch.ones(*positions.shape, SIZES["hidden_size"], dtype=dtype)

    def layer_terms(self, layer, shared, projections):
        return Terms()


class InputAndBias(Input, Kerple):
    layer_terms = Kerple.layer_terms


def rotation_of(ids):
    angle = ids.unsqueeze(-1) * torch.ones(DIM // 2)
    return Rotation(angle.cos(), angle.sin())


class Rotated(Custom):
    def layer_terms(self, layer, shared, projections):
        return Terms(query=rotation_of(shared[0]), key=rotation_of(shared[1]))


class RotatedValues(Custom):
    def layer_terms(self, layer, shared, projections):
        return Terms(value=rotation_of(shared[1]))


class ByKey(Custom):
    """In the last layer alone."""

    def layer_terms(self, layer, shared, projections):
        return Terms(key_score=shared[1][:, None].float()) if layer == LAYERS - 1 else Terms()


class ByPair(Custom):
    def layer_terms(self, layer, shared, projections):
        distance = shared[0][:, None, :, None] - shared[1][:, None, None]
        return Terms(pair_bias=-distance.abs().float())


class Reading(Custom):
    reads_vectors = True

    def layer_terms(self, layer, shared, projections, queries, keys):
        return Terms(bias=self.table(layer, shared))


class ByLength(Custom):
    """The distance over the sequence's length."""

    def layer_terms(self, layer, shared, projections):
        table = self.table(layer, shared)
        return Terms(bias=DistanceTable(table.rows / (1 + int(shared[1].max())), table.lo, table.hi))


class HeadByLength(Custom):
    """One head attends to its own token alone, another by the distance over the length."""

    def layer_terms(self, layer, shared, projections):
        _, lo, hi = self.table(layer, shared)
        rows = torch.arange(lo, hi + 1).repeat(HEADS, 1) / (1 + int(shared[1].max()))
        rows[0, torch.arange(lo, hi + 1) != 0] = -1e9
        return Terms(bias=DistanceTable(rows, lo, hi))


class KeysByLength(Custom):
    """One head's vectors are long, another's depend on the length."""

    width = (DIM,)

    def layer_terms(self, layer, shared, projections):
        rows, lo, hi = self.table(layer, shared)
        factors = torch.ones(HEADS, 1, 1)
        factors[0], factors[1] = 1e6, 1 / (1 + int(shared[1].max()))
        return Terms(key_table=DistanceTable(rows * factors, lo, hi))


class UnitsOfHead(Custom):
    """u of one head is long, and w of another depends on the length, beside a long one."""

    def layer_terms(self, layer, shared, projections):
        factors = torch.ones(HEADS, 1)
        factors[0], factors[1] = 1e6, 1 / (1 + int(shared[1].max()))
        return Terms(content_bias=self.vectors[layer, :, 0], position_bias=self.vectors[layer, :, 1] * factors)


class InfiniteWindow(Window):
    beyond = -torch.inf


class InputOfSequences(Input):
    def input(self, positions, dtype):
        return None if positions.shape[1] == 1 else super().input(positions, dtype)


class FarFromStart(Custom):
    """A scale that grows from the eighth position on."""

    def layer_terms(self, layer, shared, projections):
        return Terms(bias=self.table(layer, shared), scale=max(8, int(shared[1].max())) ** -0.5)


class InSomeLayers(Custom):
    def layer_terms(self, layer, shared, projections):
        return Terms(bias=self.table(layer, shared)) if layer else Terms()


class ScaleOfLayer(Custom):
    def layer_terms(self, layer, shared, projections):
        return Terms(scale=1.0 / (1 + layer))


VECTORS = "vectors added to the input by an encoding of Python"
REFUSED = {
    "input": (Input, VECTORS),
    "input and bias": (InputAndBias, VECTORS),
    "rotations": (Rotated, "query (R^q)"),
    "kappa": (ByKey, "key_score (kappa)"),
    "P": (ByPair, "pair_bias (P)"),
    "queries and keys": (Reading, "terms that depend on queries and keys"),
    "length": (ByLength, "bias (b) that changes with the length"),
    "length beside a mask": (HeadByLength, "bias (b) that changes with the length"),
    "length beside long vectors": (KeysByLength, "key_table (K) that changes with the length"),
    "length beside a long head": (UnitsOfHead, "position_bias (w) that changes with the length"),
    "infinity": (InfiniteWindow, "bias (b) with a number that is not finite"),
    "input of sequences alone": (InputOfSequences, VECTORS),
    "scale of long sequences": (FarFromStart, "a scale (s) that changes with the length"),
    "some layers": (InSomeLayers, "bias (b) in some layers alone"),
    "scales": (ScaleOfLayer, "a scale (s) for each layer"),
    "rope and values": (RotatedValues, "value (R^v)"),
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


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("name", SERVED)
def test_the_engine_computes_what_the_model_does(name, is_decoder, tmp_path):
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


def test_fill_mask(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase]
    model = saved(Kerple, tmp_path, head="RfEncoderForMaskedLM", vocab_size=len(words))
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    ids = torch.tensor([[2, 5, 4, 6, 7, 8, 3]])
    with torch.no_grad():
        expected = model(ids)["logits"][0, 2].double().softmax(-1).topk(5)
    (found,) = Engine(tmp_path).fill_mask("a [MASK] b c d")
    assert [each["id"] for each in found] == expected.indices.tolist()
    assert_close(np.array([each["probability"] for each in found]), expected.values.numpy())


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


def test_mistakes_of_max_length():
    for length in (0, True, "long", 2.5):
        roformer_cpp.register_encoding("custom", type("Mistaken", (Kerple,), {"max_length": length}))
        with pytest.raises(ValueError, match=r"^\[encoding\] max_length must be an integer >= 1 or None, got"):
            roformer_cpp.encoding("custom")
