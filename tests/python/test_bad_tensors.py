"""Arguments that a user gets wrong: tensors of other kinds, devices and shapes, and values of other types. Each is
refused with one sentence that names the argument and the rule; what is unusual and right has the right result.
"""

import re

import pytest
import torch

import roformer_cpp

H, D = 2, 8
q = torch.randn(2, 5, H, D, generator=torch.Generator().manual_seed(0))
places = torch.arange(5)
freqs = torch.ones(D // 2, dtype=torch.float64)
cos, sin = (x[None] for x in roformer_cpp.rope_table(places, freqs))
ends = torch.tensor([0, 5])
rope = roformer_cpp.encoding("rope", num_attention_heads=H, head_dim=D)
learned = roformer_cpp.encoding("learned", num_attention_heads=H, head_dim=D)
CONFIG = dict(vocab_size=37, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20)
model = roformer_cpp.build_model(CONFIG | {"model_type": "roformer", "max_position_embeddings": 16})
speaker = roformer_cpp.build_model(CONFIG | {"model_type": "roformer"}, "RoFormerForMaskedLM")
ids = torch.arange(1, 11).view(2, 5)
vectors, seen = torch.ones(2, 5, 16), torch.ones(2, 5, dtype=torch.bool)
fox = roformer_cpp.encoding("fox", hidden_size=16, head_dim=D, num_attention_heads=H, is_decoder=True)
words = roformer_cpp.encoding("complex", hidden_size=16, head_dim=D, num_attention_heads=H, vocab_size=37)
state = {"sum": torch.ones(2, H, D, D, device="meta"), "norm": torch.ones(2, H, D, 1, device="meta")}
meta = q.to("meta")


def rotated(x=q, positions=places, **options):
    return roformer_cpp.rope(x, positions, **{"layout": "pairs"} | options)


def by_rows(x=q, cos=cos, sin=sin, **options):
    return roformer_cpp.rotate(x, cos, sin, **{"layout": "pairs"} | options)


def attended(q=q, k=q, v=q, *terms, **options):
    return roformer_cpp.attention(q, k, v, *terms, **options)


def packed(ends):
    return roformer_cpp.attention(q[:1], q[:1], q[:1], cu_seqlens=ends)


def unit(hidden_size=16, **sizes):
    return roformer_cpp.GatedAttentionUnit(hidden_size, None, **sizes)


def linear(q=q, k=q, v=q, *options, **named):
    return roformer_cpp.linear_attention(q, k, v, *options, **named)


TYPES = [
    (lambda: rotated(q.tolist()), "[rope] x must be a tensor, got list"),
    (lambda: rotated(positions=[0, 1, 2, 3, 4]), "[rope] positions must be a tensor, got list"),
    (lambda: rotated(layout=3), "[rope] layout must be a string, got int"),
    (lambda: rotated(rotary_dim=2.5), "[rope] rotary_dim must be an integer, got float"),
    (lambda: rotated(freqs=[1.0]), "[rope] freqs must be a tensor, got list"),
    (lambda: by_rows(cos=None), "[rotate] cos must be a tensor, got NoneType"),
    (lambda: roformer_cpp.rope_table([1, 2], freqs), "[rope_table] positions must be a tensor, got list"),
    (lambda: attended(q.tolist()), "[attention] q must be a tensor, got list"),
    (lambda: attended(q, None), "[attention] k must be a tensor, got NoneType"),
    (lambda: attended(q, q, q, rope), "[attention] terms must be Terms, as"),
    (lambda: attended(positions=[0, 1, 2, 3, 4]), "[attention] positions must be a tensor, got list"),
    (lambda: attended(mask=[[True]]), "[attention] mask must be a tensor, got list"),
    (lambda: attended(prefix=[1, 2], is_causal=True), "[attention] prefix must be a tensor, got list"),
    (lambda: attended(dropout="x"), "[attention] dropout must be a number, got str"),
    (lambda: attended(scale="x"), "[attention] scale must be a number, got str"),
    (lambda: attended(is_causal="x"), "[attention] is_causal must be True or False, got 'x'"),
    (lambda: packed([0, 5]), "[attention] cu_seqlens must be a tensor, got list"),
    (lambda: linear(q.tolist()), "[linear_attention] q must be a tensor, got list"),
    (lambda: linear(q, q, q, "elu", rope), "[linear_attention] terms must be Terms, as"),
    (lambda: linear(is_causal="x"), "[linear_attention] causal must be True or False, got str"),
    (lambda: linear(state=3, is_causal=True), "[linear_attention] state must be a LinearAttentionState, got int"),
    (lambda: linear(feature_map="favor", scale="x"), "[linear_attention] scale must be a number, got str"),
    (lambda: linear(feature_map="favor", projection=[1]), "[linear_attention] projection must be a tensor, got list"),
    (lambda: roformer_cpp.orthogonal_features("x", 2, 0), "[linear_attention] num_features must be an integer"),
    (lambda: roformer_cpp.linear_feature_dim("x"), "[linear_attention] head_dim must be an integer, got str"),
    (lambda: rope.terms([0, 1]), "[encoding] positions must be a tensor, got list"),
    (lambda: rope.terms(places, layer="x"), "[encoding] layer must be an integer, got str"),
    (lambda: rope.terms(places, sequences=[1]), "[encoding] sequences must be a tensor, got list"),
    (lambda: rope.terms(places, projections=3), "[encoding] projections must be tensors, got int"),
    (lambda: rope.terms(places, projections=(3,)), "[encoding] projections[0] must be a tensor, got int"),
    (lambda: learned.input([1]), "[encoding] positions must be a tensor, got list"),
    (lambda: roformer_cpp.encoding(3), "[encoding] name must be a string, got int"),
    (lambda: model(ids.tolist()), "[input] input_ids must be a tensor, got list"),
    (lambda: model(ids, num_choices="x"), "[input] num_choices must be an integer, got str"),
    (lambda: model(ids, dropout_key=3), "[input] dropout_key must be two integers, seed and step, got 3"),
    (lambda: model.masked_lm_logits(3), "[input] hidden must be a tensor, got int"),
    (lambda: model.save(3), "[model] model_dir must be a path, got int"),
    (lambda: roformer_cpp.build_model(CONFIG, head=3), "[config] head must be a string, got int"),
    (lambda: roformer_cpp.build_model(CONFIG, seed="x"), "[config] seed must be an integer, got str"),
    (lambda: roformer_cpp.EncoderLayer(16, 2, 3), "[attention] encoding must be an Encoding, got int"),
    (lambda: roformer_cpp.EncoderLayer("x", 2), "[encoder_layer] hidden_size must be an integer, got str"),
    (lambda: roformer_cpp.Attention("x", 2), "[attention] hidden_size must be an integer, got str"),
    (lambda: roformer_cpp.Engine(3), "[engine] the model directory must be a path, got int"),
    (lambda: roformer_cpp.Tokenizer.from_pretrained(3), "[tokenizer] the model directory must be a path, got int"),
]
VALUES = [
    (lambda: rotated(positions=places.to("meta")), "[rope] positions must be on the device of x, cpu, got meta"),
    (lambda: rotated(freqs=freqs.to("meta")), "[rope] freqs must be on the device of x, cpu, got meta"),
    (lambda: rotated(q.int()), "[rope] x must be float32, float64, bfloat16 or float16, got Int"),
    (lambda: rotated(q.to_sparse()), "[rope] x must be a dense tensor, got torch.sparse_coo"),
    (lambda: rotated(q[..., :0]), "[rope] rotary_dim must be even, >= 2"),
    (lambda: by_rows(cos=cos.to("meta")), "[rotate] cos must be on the device of x, cpu, got meta"),
    (lambda: by_rows(sin=sin[:, :3]), "[rotate] sin must be [batch or 1, tokens, rotary_dim/2]"),
    (lambda: attended(q, meta), "[attention] k must be on the device of q, cpu, got meta"),
    (lambda: attended(*[meta] * 3, rope.terms(places)), "[attention] query_cos must be on the device of q, me"),
    (lambda: attended(mask=seen.to("meta")), "[attention] mask must be on the device of q, cpu, got meta"),
    (lambda: attended(q.int(), q.int(), q.int()), "[attention] q must be floating-point, got Int"),
    (lambda: attended(q, q.double()), "[attention] k must be [batch, tokens, heads, size] of Float, got Double"),
    (lambda: attended(q.to_sparse()), "[attention] q must be a dense tensor, got torch.sparse_coo"),
    (lambda: attended(*[q[..., :0]] * 3), "[attention] head_dim must be >= 1, got 0"),
    (lambda: packed(ends.to("meta")), "[attention] cu_seqlens must have values, got a tensor of the device meta"),
    (lambda: linear(q, meta), "[linear_attention] k must be on the device of q, cpu, got meta"),
    (lambda: linear(meta, meta, meta, "elu", rope.terms(places)), "[linear_attention] query_cos must be on the device"),
    (lambda: linear(key_mask=seen.to("meta")), "[linear_attention] key_mask must be on the device of q, cpu, got meta"),
    (
        lambda: linear(is_causal=True, state=roformer_cpp.LinearAttentionState(state)),
        "[linear_attention] sum of the state",
    ),
    (
        lambda: linear(feature_map="favor", projection=meta[0, :4, 0]),
        "[linear_attention] projection must be on the device",
    ),
    (lambda: linear(cu_seqlens=ends.to("meta")), "[linear_attention] cu_seqlens must have values, got a tensor of the"),
    (lambda: rope.terms(places.to("meta")), "[encoding] positions must have values, got a tensor of the device meta"),
    (
        lambda: learned.input(places.to("meta")),
        "[encoding] positions must have values, got a tensor of the device meta",
    ),
    (lambda: words.words(vectors, ids.to("meta"), places), "[encoding] input_ids must be on the device of positions"),
    (lambda: words.words(vectors.to("meta"), ids, places), "[encoding] words must be on the device of positions, cpu"),
    (
        lambda: words.words(vectors, ids, places.to("meta")),
        "[encoding] positions must have values, got a tensor of the",
    ),
    (lambda: fox.terms(places, hidden_states=vectors.to("meta")), "[encoding] hidden_states must be on the device of"),
    (
        lambda: rope.terms(places, projections=[meta] * 3),
        "[encoding] projections[0] must be on the device of positions",
    ),
    (
        lambda: speaker.masked_lm_logits(meta[0, :, 0]),
        "[input] hidden must be on the device of the model, cpu, got meta",
    ),
    (lambda: model(ids.to("meta")), "[input] input_ids must be on the device of the model, cpu, got meta"),
    (lambda: roformer_cpp.Attention(16, 3), "[attention] hidden_size must be a multiple of num_attention_heads where"),
    (
        lambda: roformer_cpp.Attention(16, 4, num_key_value_heads=3),
        "[attention] num_attention_heads must be a multiple",
    ),
    (lambda: roformer_cpp.EncoderLayer(16, 4, norm="both"), "[encoder_layer] norm must be post or pre, got 'both'"),
    (lambda: roformer_cpp.EncoderLayer(16, 4, activation="sin"), "[encoder_layer] activation must be one of gelu"),
    *(
        (lambda name=name: unit(**{name: 0}), f"[gated_attention_unit] {name} must be at least 1, got 0")
        for name in ("hidden_size", "intermediate_size", "key_size")
    ),
    (lambda: model(ids[:, :0]), "[input] a sequence must have at least one token, got shape [2, 0]"),
]


CASES = [(*case, TypeError) for case in TYPES] + [(*case, ValueError) for case in VALUES]


@pytest.mark.parametrize(("call", "sentence", "kind"), CASES, ids=[sentence.split(",")[0] for _, sentence, _ in CASES])
def test_another_type_device_dtype_or_shape_is_named(call, sentence, kind):
    with pytest.raises(kind) as refused:
        call()
    message = str(refused.value)
    assert message.startswith(sentence) and "\n" not in message and len(message) < 300


SAME = {
    "rope": rotated,
    "rotate": by_rows,
    "attention": lambda x: attended(x, x, x),
    "linear": lambda x: linear(x, x, x),
}


@pytest.mark.parametrize("name", SAME)
def test_unusual_tensors_have_the_results_of_copies(name):
    """Expanded ones, others with steps between their elements, and none at all."""
    function, stepped = SAME[name], torch.stack([q, q + 1], -1)[..., 0]
    expanded, swapped = q[:1].expand(4, 5, H, D), stepped.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(function(expanded), function(expanded.contiguous())) and function(expanded).abs().max() > 0.1
    assert torch.equal(function(stepped), function(q)) and torch.equal(function(swapped), function(q))
    assert function(q[:0]).shape == (0, 5, H, D)


@pytest.mark.parametrize("name", ["attention", "linear"])
def test_second_derivatives_name_the_kernel_that_has_them(name):
    x = q.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match=r"must be false.*Hint: kernel explicit has derivatives of any order"):
        (gradient,) = torch.autograd.grad(SAME[name](x).square().sum(), x, create_graph=True)
        gradient.sum().backward()


# ---- messages quote a part of a value of a million characters

LONG = "x" * 1_000_000
MANY = [7] * 500_000


class Custom(roformer_cpp.CustomEncoding):
    def __init__(self, shape, attribute=None, **keys):
        super().__init__()
        if attribute is not None:
            setattr(self, attribute, LONG)

    def shared(self, positions, key_positions, dtype):
        return LONG


def built(**keys):
    return roformer_cpp.build_model(CONFIG | {"model_type": "rf_encoder"} | keys)


def custom(attribute=None):
    roformer_cpp.register_encoding("custom", Custom)
    return roformer_cpp.encoding("custom", attribute=attribute)


CALLS = {
    "encoding name": lambda: roformer_cpp.encoding(LONG),
    "encoding key": lambda: roformer_cpp.encoding("rope", **{LONG: 1}),
    "encoding value": lambda: roformer_cpp.encoding("rope", layout=LONG),
    "encoding number": lambda: roformer_cpp.encoding("rope", base=LONG),
    "encoding list": lambda: roformer_cpp.encoding("axial-nd", num_attention_heads=2, head_dim=8, grid_shape=MANY),
    "pos_att_type": lambda: roformer_cpp.encoding("deberta", pos_att_type=[LONG]),
    "not JSON": lambda: roformer_cpp.encoding("rope", layout={LONG}),
    "head_dim": lambda: roformer_cpp.encoding("rope", head_dim=LONG),
    "is_decoder": lambda: roformer_cpp.encoding("rope", is_decoder=LONG),
    "initializer_range": lambda: roformer_cpp.encoding("rope", initializer_range=LONG),
    "combine": lambda: roformer_cpp.combine_encodings(LONG),
    "register": lambda: roformer_cpp.register_encoding(MANY, Custom),
    "reads_vectors": lambda: custom("reads_vectors"),
    "max_length": lambda: custom("max_length"),
    "shared": lambda: custom().terms(torch.arange(3)),
    "rope layout": lambda: roformer_cpp.rope(q, torch.arange(3), layout=LONG),
    "rotate layout": lambda: roformer_cpp.rotate(q, torch.ones(1, 3, 4), torch.ones(1, 3, 4), layout=LONG),
    "terms layout": lambda: roformer_cpp.attention(q, q, q, roformer_cpp.Terms(layout=LONG)),
    "kernel": lambda: roformer_cpp.attention(q, q, q, kernel=LONG),
    "is_causal": lambda: roformer_cpp.attention(q, q, q, is_causal=LONG),
    "window": lambda: roformer_cpp.attention(q, q, q, window=MANY),
    "feature_map": lambda: roformer_cpp.linear_attention(q, q, q, LONG),
    "linear option": lambda: roformer_cpp.LinearAttention(8, **{LONG: 1}),
    "cu_seqlens": lambda: roformer_cpp.linear_attention(q, q, q, cu_seqlens=torch.arange(500_000)),
    "norm": lambda: roformer_cpp.EncoderLayer(16, 2, norm=LONG),
    "configuration key": lambda: built(**{LONG: 1}),
    "configuration value": lambda: built(hidden_act=LONG),
    "position_encoding": lambda: built(position_encoding=LONG),
    "attention": lambda: built(attention=LONG),
    "head": lambda: roformer_cpp.build_model(CONFIG, LONG),
    "seed": lambda: roformer_cpp.build_model(CONFIG, seed=10**4000),
    "model directory": lambda: roformer_cpp.load_model(LONG),
    "save": lambda: model.save(LONG),
    "bake": lambda: roformer_cpp.bake(LONG),
    "dropout_key": lambda: model(ids, dropout_key=LONG),
    "engine": lambda: roformer_cpp.Engine(LONG),
    "convert": lambda: roformer_cpp.convert(LONG, "/tmp/none"),
}


@pytest.mark.parametrize("name", CALLS)
def test_messages_have_a_length_that_can_be_read(name):
    with pytest.raises((ValueError, TypeError, RuntimeError, OSError)) as refused:
        CALLS[name]()
    message = str(refused.value)
    assert len(message) < 4500 and re.match(r"\[[a-z_ -]+\] ", message), message[:300]
