"""What layers and attention do with every encoding: they compute all of it, in the attention that it was made for, or
refuse it by name. The oracle is the formula in float64, or one sequence alone.
"""

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_MODEL
from roformer_cpp import Attention, EncoderLayer, GatedAttentionUnit

C, H, T = 16, 2, 7
ENDS = torch.tensor([0, 4, T])
SEQUENCES = torch.tensor([[0] * 4 + [1] * 3])
PACKED = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
T1 = {"rtol": tol.T1_RTOL, "atol": tol.T1_ATOL}
CAUSAL = {info["name"] for info in roformer_cpp.encodings() if info["needs_causal"]}
KEYS = {"axial": {"grid_width": 3}, "axial-nd": {"grid_shape": [-1, 3]}, "rope-mixed": {"grid_width": 3}}
OUTSIDE = {"learned": {}, "sinusoidal": {}, "complex": {"vocab_size": 5}}


def made(name, heads=H, dim=C // H, **keys):
    torch.manual_seed(1)
    keys = {"is_decoder": name in CAUSAL, "max_position_embeddings": 32} | KEYS.get(name, {}) | keys
    encoding = roformer_cpp.encoding(name, num_attention_heads=heads, head_dim=dim, hidden_size=C, **keys)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return encoding


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def test_vectors_of_every_layer_reach_the_projections():
    """W (x + p_l) for floater; the residual connection does not see p."""
    encoding = made("floater", num_hidden_layers=2).double()
    layer = Attention(C, H, encoding, layer=1).double()
    x = drawn(2, T, C)
    added = encoding.layer_input(torch.arange(T), layer=1, dtype=torch.float64)
    y = (x + added).detach().numpy()
    of = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    q, k, v = ((y @ of[f"{x}.weight"].T + of[f"{x}.bias"]).reshape(2, T, H, -1) for x in ("query", "key", "value"))
    scores = np.einsum("bthd,bshd->bhts", q, k) / (C // H) ** 0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = np.einsum("bhts,bshd->bthd", weights / weights.sum(-1, keepdims=True), v).reshape(2, T, C)
    expected = out @ of["output.weight"].T + of["output.bias"]
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, **T1)
    block = EncoderLayer(C, H, encoding, layer=1, norm="pre").double()
    inner = x + block.attention(block.attention_norm(x))
    assert torch.equal(block(x), inner + block._inner(block.output_norm(inner)))


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_acts_on_the_input_is_refused_by_name(name):
    encoding = made(name, **OUTSIDE[name])
    for given in (encoding, roformer_cpp.combine_encodings([made("rope"), encoding])):
        for make in (Attention, EncoderLayer):
            with pytest.raises(ValueError, match=rf"^\[attention\] encoding must act in .* got {name}, which acts on"):
                make(C, H, given)
    with pytest.raises(ValueError, match=r"^\[gated_attention_unit\] encoding must act in .* alone, got floater"):
        GatedAttentionUnit(C, made("floater", 1, 4), key_size=4)


DEPENDING = {
    "path": {},
    "rope": {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 2},
    "log-n": {"rule": "length", "original_max_position_embeddings": 2},
    "xpos": {},
}


@pytest.mark.parametrize("name", DEPENDING)
def test_packed_rows_are_those_of_each_sequence(name):
    """With `sequences`; terms without them are refused where they would be others."""
    encoding = made(name, **DEPENDING[name]).double()
    layer = Attention(C, H, encoding, is_causal=name in CAUSAL).double()
    x = drawn(1, T, C)
    alone = torch.cat([layer(x[:, :4]), layer(x[:, 4:])], 1)
    torch.testing.assert_close(layer(x, cu_seqlens=ENDS), alone, **T1)
    q, k = (linear(x).unflatten(-1, (H, -1)) for linear in (layer.query, layer.key))
    given = {"hidden_states": x, "queries": q, "keys": k, "dtype": torch.float64}
    call = {"is_causal": name in CAUSAL, "cu_seqlens": ENDS}
    with pytest.raises(ValueError, match=r"terms that depend on where sequences begin .* got none and 2 sequences"):
        roformer_cpp.attention(q, k, q, encoding.terms(PACKED, **given), **call)
    out = roformer_cpp.attention(q, k, q, encoding.terms(PACKED, sequences=SEQUENCES, **given), **call)
    for a, b in ((0, 4), (4, T)):
        part = {key: x[:, a:b] if isinstance(x, torch.Tensor) else x for key, x in given.items()}
        terms = encoding.terms(torch.arange(b - a), **part)
        alone = roformer_cpp.attention(q[:, a:b], k[:, a:b], q[:, a:b], terms, is_causal=name in CAUSAL)
        torch.testing.assert_close(out[:, a:b], alone, **T1)


@pytest.mark.parametrize("name", DEPENDING)
def test_padded_rows_are_those_of_each_sequence(name):
    """A mask of keys tells the lengths to layers; terms that were made without them are refused beside any mask."""
    encoding = made(name, **DEPENDING[name]).double()
    causal = name in CAUSAL
    x, seen = drawn(2, T, C), torch.arange(T) < torch.tensor([[4], [T]])
    by_key = seen[:, None, None]
    for make in (Attention, EncoderLayer):
        layer = make(C, H, encoding, is_causal=causal).double()
        for mask in (seen, by_key):
            out = layer(x, mask=mask)
            for row, length in ((0, 4), (1, T)):
                alone = layer(x[row : row + 1, :length])
                torch.testing.assert_close(out[row : row + 1, :length], alone, **T1)
        shared = torch.tensor([[[[True] * 4 + [False] * 3]]])
        alone = layer(x[:, :4])
        torch.testing.assert_close(layer(x, mask=shared)[:, :4], alone, **T1)
        with pytest.raises(ValueError, match=r"must be made with sequences for rows with a mask, got none and a mask"):
            layer(x, mask=by_key.expand(-1, -1, T, -1))
    q = drawn(2, T, H, C // H)
    given = {"hidden_states": x, "queries": q, "keys": q, "dtype": torch.float64}
    for mask in (seen, by_key):
        with pytest.raises(ValueError, match=r"^\[attention\] terms that depend on .* got none and a mask\. Hint"):
            roformer_cpp.attention(q, q, q, encoding.terms(torch.arange(T), **given), is_causal=causal, mask=mask)
    terms = encoding.terms(torch.arange(T), sequences=seen.long() - 1, **given)
    first = {key: each[:1, :4] if isinstance(each, torch.Tensor) else each for key, each in given.items()}
    alone = roformer_cpp.attention(*[q[:1, :4]] * 3, encoding.terms(torch.arange(4), **first), is_causal=causal)
    out = roformer_cpp.attention(q, q, q, terms, is_causal=causal, mask=seen)
    torch.testing.assert_close(out[:1, :4], alone, **T1)


@pytest.mark.parametrize(("name", "is_decoder"), [("fox", True), ("path", True), ("t5", True), ("t5", False)])
def test_terms_are_for_the_attention_that_they_were_made_for(name, is_decoder):
    encoding = made(name, is_decoder=is_decoder)
    direction, hint = ("causal", "is_causal=True") if is_decoder else ("bidirectional", "is_decoder=True")
    for make in (Attention, EncoderLayer):
        with pytest.raises(ValueError, match=rf"^\[attention\] attention must be {direction} with {name}.*{hint}"):
            make(C, H, encoding, is_causal=not is_decoder)
    combined = roformer_cpp.combine_encodings([made("log-n"), encoding]) if name != "t5" else encoding
    assert combined.made_for == direction
    q = torch.randn(1, T, H, C // H)
    terms = encoding.terms(torch.arange(T), queries=q, keys=q, hidden_states=torch.randn(1, T, C))
    with pytest.raises(ValueError, match=rf"^\[attention\] attention must be {direction} .*{hint}"):
        roformer_cpp.attention(q, q, q, terms, is_causal=not is_decoder)
    assert roformer_cpp.attention(q, q, q, terms, is_causal=is_decoder).isfinite().all()
    if is_decoder:
        with pytest.raises(ValueError, match="attention must be causal"):
            roformer_cpp.attention(q, q, q, terms, is_causal=True, prefix=torch.tensor([3]))
        step = encoding.terms(torch.tensor([T - 1]), torch.arange(T), queries=q[:, -1:], keys=q,
                              hidden_states=torch.randn(1, T, C))  # fmt: skip
        assert roformer_cpp.attention(q[:, -1:], q, q, step).isfinite().all()


def test_a_score_keeps_its_scale_beside_t5():
    """T5 leaves 1/sqrt(D) out of the whole score; beside another encoding it must not."""
    rule = r"^\[position_encoding\] scores must be divided by sqrt\(head_dim\) where .* combined with others"
    for other in ("rope", "shaw", "log-n", "floater"):
        with pytest.raises(ValueError, match=rule):
            roformer_cpp.combine_encodings([made(other), made("t5")])
    with pytest.raises(ValueError, match=rule):
        roformer_cpp.build_model(TINY_MODEL | {"model_type": "rf_encoder", "position_encoding": ["rope", "t5"]})
    rope, t5 = made("rope").double(), made("t5", scale="sqrt").double()
    q, positions = drawn(1, T, H, C // H), torch.arange(T)
    both = roformer_cpp.combine_encodings([rope, t5]).terms(positions, dtype=torch.float64)
    rotated = roformer_cpp.rotate(q, *rope.terms(positions, dtype=torch.float64).query, layout="pairs")
    table = t5.terms(positions, dtype=torch.float64).bias
    bias = table.rows[:, (positions[:, None] - positions).clamp(table.lo, table.hi) - table.lo]
    scores = torch.einsum("bthd,bshd->bhts", rotated, rotated) / (C // H) ** 0.5 + bias
    expected = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), q)
    torch.testing.assert_close(roformer_cpp.attention(q, q, q, both), expected, **T1)
    for inputs in ("learned", "sinusoidal", "none"):  # these set no score
        roformer_cpp.combine_encodings([made(inputs), made("t5")])


@pytest.mark.parametrize("name", ["rope", "t5"])
def test_queries_of_float64_refuse_terms_of_float32(name):
    """An encoding's terms default to float32, with errors of 1e-7 for queries of 1e-16."""
    encoding, q, positions = made(name), drawn(1, T, H, C // H), torch.arange(T)
    with pytest.raises(ValueError, match=r"^\[attention\] terms must be float64 as the queries are, got float32"):
        roformer_cpp.attention(q, q, q, encoding.terms(positions))
    terms = encoding.double().terms(positions, dtype=torch.float64)
    assert roformer_cpp.attention(q, q, q, terms).dtype == torch.float64


def test_linear_attention_refuses_them_too():
    encoding = made("rope", **DEPENDING["rope"])
    q = torch.randn(1, T, H, C // H)
    with pytest.raises(ValueError, match=r"^\[linear_attention\] terms must be float64"):
        roformer_cpp.linear_attention(q.double(), q.double(), q.double(), "elu", encoding.terms(torch.arange(T)))
    with pytest.raises(ValueError, match=r"^\[linear_attention\] terms that depend on where sequences begin"):
        roformer_cpp.linear_attention(q, q, q, "elu", encoding.terms(PACKED), cu_seqlens=ENDS)
    seen = torch.ones(1, T, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^\[linear_attention\] terms that depend on .* got none and a mask"):
        roformer_cpp.linear_attention(q, q, q, "elu", encoding.terms(torch.arange(T)), key_mask=seen)
