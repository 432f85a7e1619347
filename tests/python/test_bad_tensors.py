"""Arguments that a user gets wrong: tensors of other kinds, devices and shapes, and values of other types. Each is
refused with one sentence that names the argument and the rule; what is unusual and right has the right result.
"""

from functools import partial

import pytest
import torch

import roformer_cpp

H, D = 2, 8
LONG = "x" * 1_000_000  # of which a message quotes a part
q = torch.randn(2, 5, H, D, generator=torch.Generator().manual_seed(0))
places = torch.arange(5)
freqs = torch.ones(D // 2, dtype=torch.float64)
cos, sin = (x[None] for x in roformer_cpp.rope_table(places, freqs))
ends = torch.tensor([0, 5])
SHAPE = dict(num_attention_heads=H, head_dim=D)
rope, learned = (roformer_cpp.encoding(name, **SHAPE) for name in ("rope", "learned"))
fox = roformer_cpp.encoding("fox", hidden_size=16, is_decoder=True, **SHAPE)
words = roformer_cpp.encoding("complex", hidden_size=16, vocab_size=37, **SHAPE)
CONFIG = dict(vocab_size=37, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20)
model = roformer_cpp.build_model(CONFIG | {"model_type": "roformer", "max_position_embeddings": 16})
speaker = roformer_cpp.build_model(CONFIG | {"model_type": "roformer"}, "RoFormerForMaskedLM")
ids = torch.arange(1, 11).view(2, 5)
vectors, seen = torch.ones(2, 5, 16), torch.ones(2, 5, dtype=torch.bool)
meta = q.to("meta")
state = {"sum": torch.ones(2, H, D, D, device="meta"), "norm": torch.ones(2, H, D, 1, device="meta")}

rotated = partial(roformer_cpp.rope, layout="pairs")
by_rows = partial(roformer_cpp.rotate, layout="pairs")
attend, linear = roformer_cpp.attention, roformer_cpp.linear_attention
QKV = {"q": q, "k": q, "v": q}
PACKED = {name: x[:1] for name, x in QKV.items()}
X = {"x": q, "positions": places}
ROWS = {"x": q, "cos": cos, "sin": sin}
WORDS = {"words": vectors, "input_ids": ids, "positions": places}
PLACES = {"positions": places}


def attended(q=q, k=q, v=q, *terms, **options):
    return attend(q, k, v, *terms, **options)


# A call that is right, and arguments in which a list must not take the place of a tensor.
TENSORS = [
    ("rope", rotated, X, "x positions freqs"),
    ("rotate", by_rows, ROWS, "x cos sin"),
    ("rope_table", roformer_cpp.rope_table, {"positions": places, "freqs": freqs}, "positions freqs"),
    ("attention", attend, QKV, "q k v positions key_positions mask prefix cu_seqlens cu_seqlens_k"),
    ("linear_attention", linear, QKV, "q k v projection key_mask cu_seqlens"),
    ("encoding", rope.terms, PLACES, "positions key_positions sequences hidden_states queries keys"),
    ("encoding", learned.input, PLACES, "positions"),
    ("encoding", words.words, WORDS, "words input_ids positions"),
    ("input", model, {}, "input_ids"),
    ("input", model.masked_lm_logits, {}, "hidden"),
]
# A call, its argument whose device the others must have, and these others.
DEVICES = [
    ("rope", rotated, X, "x, cpu", {"positions": places, "freqs": freqs}),
    ("rotate", by_rows, ROWS, "x, cpu", {"cos": cos}),
    ("attention", attend, QKV, "q, cpu", {"k": q, "mask": seen}),
    ("linear_attention", linear, QKV, "q, cpu", {"k": q, "key_mask": seen}),
    ("encoding", words.words, WORDS, "positions, cpu", {"input_ids": ids, "words": vectors}),
    ("encoding", fox.terms, PLACES, "positions, cpu", {"hidden_states": vectors}),
    ("input", model, {}, "the model, cpu", {"input_ids": ids}),
    ("input", speaker.masked_lm_logits, {}, "the model, cpu", {"hidden": q[0, :, 0]}),
]
# A call that reads the values of its last argument.
READ = [
    ("attention", attend, PACKED | {"cu_seqlens": ends}),
    ("linear_attention", linear, PACKED | {"cu_seqlens": ends}),
    ("encoding", rope.terms, PLACES),
    ("encoding", learned.input, PLACES),
    ("encoding", words.words, WORDS),
]
CASES = []
for where, call, right, names in TENSORS:
    for name in names.split():
        CASES.append((partial(call, **right | {name: [1]}), f"[{where}] {name} must be a tensor, got list", TypeError))
for where, call, right, like, others in DEVICES:
    for name, x in others.items():
        sentence = f"[{where}] {name} must be on the device of {like}, got meta"
        CASES.append((partial(call, **right | {name: x.to("meta")}), sentence, ValueError))
for where, call, right in READ:
    *_, (name, x) = right.items()
    sentence = f"[{where}] {name} must have values, got a tensor of the device meta"
    CASES.append((partial(call, **right | {name: x.to("meta")}), sentence, ValueError))
TYPES = [
    (lambda: rotated(q, places, layout=3), "[rope] layout must be a string, got int"),
    (lambda: rotated(q, places, rotary_dim=2.5), "[rope] rotary_dim must be an integer, got float"),
    (lambda: attended(q, q, q, rope), "[attention] terms must be Terms, as"),
    (lambda: attended(dropout="x"), "[attention] dropout must be a number, got str"),
    (lambda: attended(scale="x"), "[attention] scale must be a number, got str"),
    (lambda: attended(is_causal=LONG), "[attention] is_causal must be True or False, got 'xxx"),
    (lambda: linear(q, q, q, "elu", rope), "[linear_attention] terms must be Terms, as"),
    (lambda: linear(q, q, q, is_causal="x"), "[linear_attention] causal must be True or False, got str"),
    (lambda: linear(q, q, q, state=3, is_causal=True), "[linear_attention] state must be a LinearAttentionState, got"),
    (lambda: linear(q, q, q, "favor", scale="x"), "[linear_attention] scale must be a number, got str"),
    (lambda: roformer_cpp.orthogonal_features("x", 2, 0), "[linear_attention] num_features must be an integer"),
    (lambda: roformer_cpp.linear_feature_dim("x"), "[linear_attention] head_dim must be an integer, got str"),
    (lambda: rope.terms(places, layer="x"), "[encoding] layer must be an integer, got str"),
    (lambda: rope.terms(places, projections=3), "[encoding] projections must be tensors, got int"),
    (lambda: rope.terms(places, projections=(3,)), "[encoding] projections[0] must be a tensor, got int"),
    (lambda: roformer_cpp.encoding(3), "[encoding] name must be a string, got int"),
    (lambda: model(ids, num_choices="x"), "[input] num_choices must be an integer, got str"),
    (lambda: model(ids, dropout_key=LONG), "[input] dropout_key must be two integers, seed and step, got 'xxx"),
    (lambda: model.save(3), "[model] model_dir must be a path, got int"),
    (lambda: roformer_cpp.build_model(CONFIG, head=3), "[config] head must be a string, got int"),
    (lambda: roformer_cpp.build_model(CONFIG, seed="x"), "[config] seed must be an integer, got str"),
    (lambda: roformer_cpp.EncoderLayer(16, 2, 3), "[attention] encoding must be an Encoding, got int"),
    (lambda: roformer_cpp.EncoderLayer("x", 2), "[encoder_layer] hidden_size must be an integer, got str"),
    (lambda: roformer_cpp.Attention("x", 2), "[attention] hidden_size must be an integer, got str"),
    (lambda: roformer_cpp.Engine(3), "[engine] the model directory must be a path, got int"),
    (lambda: roformer_cpp.Tokenizer.from_pretrained(3), "[tokenizer] the model directory must be a path, got int"),
]
LINEAR_STATE = {"is_causal": True, "state": roformer_cpp.LinearAttentionState(state)}
UNIT = "[gated_attention_unit]"
VALUES = [
    (lambda: rotated(q.to_sparse(), places), "[rope] x must be a dense tensor, got torch.sparse_coo"),
    (lambda: attended(*[meta] * 3, rope.terms(places)), "[attention] query_cos must be on the device of q, me"),
    (lambda: attended(q.to_sparse()), "[attention] q must be a dense tensor, got torch.sparse_coo"),
    (lambda: linear(meta, meta, meta, "elu", rope.terms(places)), "[linear_attention] query_cos must be on the device"),
    (lambda: linear(q, q, q, **LINEAR_STATE), "[linear_attention] sum of the state"),
    (lambda: linear(q, q, q, "favor", projection=meta[0, :4, 0]), "[linear_attention] projection must be on the devi"),
    (lambda: rope.terms(places, projections=[meta] * 3), "[encoding] projections[0] must be on the device of positi"),
    (lambda: roformer_cpp.Attention(16, 3), "[attention] hidden_size must be a multiple of num_attention_heads where"),
    (lambda: roformer_cpp.Attention(16, 4, num_key_value_heads=3), "[attention] num_attention_heads must be a mul"),
    (lambda: roformer_cpp.EncoderLayer(16, 4, norm=LONG), "[encoder_layer] norm must be post or pre, got 'xxx"),
    (lambda: roformer_cpp.EncoderLayer(16, 4, activation=LONG), "[encoder_layer] activation must be one of gelu"),
    (lambda: roformer_cpp.GatedAttentionUnit(0), f"{UNIT} hidden_size must be at least 1, got 0"),
    (lambda: roformer_cpp.GatedAttentionUnit(16, key_size=0), f"{UNIT} key_size must be at least 1, got 0"),
    (lambda: roformer_cpp.GatedAttentionUnit(16, intermediate_size=0), f"{UNIT} intermediate_size must be at least 1"),
]
CASES += [(*case, TypeError) for case in TYPES] + [(*case, ValueError) for case in VALUES]


@pytest.mark.parametrize(("call", "sentence", "kind"), CASES, ids=[sentence.split(",")[0] for _, sentence, _ in CASES])
def test_another_type_device_dtype_or_shape_is_named(call, sentence, kind):
    with pytest.raises(kind) as refused:
        call()
    message = str(refused.value)
    assert message.startswith(sentence) and "\n" not in message and len(message) < 300


SAME = {"rope": lambda x: rotated(x, places), "rotate": lambda x: by_rows(x, cos, sin)}
SAME |= {"attention": lambda x: attend(x, x, x), "linear": lambda x: linear(x, x, x)}


@pytest.mark.parametrize("name", SAME)
def test_unusual_tensors_have_the_results_of_copies(name):
    """Expanded ones, others with steps between their elements, and none at all."""
    function, stepped = SAME[name], torch.stack([q, q + 1], -1)[..., 0]
    expanded, swapped = q[:1].expand(4, 5, H, D), stepped.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(function(expanded), function(expanded.contiguous())) and function(expanded).abs().max() > 0.1
    assert torch.equal(function(stepped), function(q)) and torch.equal(function(swapped), function(q))
    assert function(q[:0]).shape == (0, 5, H, D)
