"""Arguments that a user gets wrong: tensors of other kinds, devices and shapes, and values of other types. Each is
refused with one sentence that names the argument and the rule; what is unusual and right has the right result.
"""

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
words = roformer_cpp.encoding("complex", hidden_size=16, head_dim=D, num_attention_heads=H, vocab_size=37)
on_meta = {"sum": torch.ones(2, H, D, D, device="meta"), "norm": torch.ones(2, H, D, 1, device="meta")}


def of_layer(name):
    return roformer_cpp.encoding(name, hidden_size=16, head_dim=D, num_attention_heads=H, is_decoder=True)


def rotated(x=q, positions=places, **options):
    return roformer_cpp.rope(x, positions, **{"layout": "pairs"} | options)


def by_rows(x=q, cos=cos, sin=sin, **options):
    return roformer_cpp.rotate(x, cos, sin, **{"layout": "pairs"} | options)


def attended(q=q, k=q, v=q, *terms, **options):
    return roformer_cpp.attention(q, k, v, *terms, **options)


def packed(ends):
    return roformer_cpp.attention(q[:1], q[:1], q[:1], cu_seqlens=ends)


def linear(q=q, k=q, v=q, *options, **named):
    return roformer_cpp.linear_attention(q, k, v, *options, **named)


TYPES = [
    (lambda: rotated(q.tolist()), "[rope] x must be a tensor, got list"),
    (lambda: rotated(q.numpy()), "[rope] x must be a tensor, got ndarray"),
    (lambda: rotated(positions=[0, 1, 2, 3, 4]), "[rope] positions must be a tensor, got list"),
    (lambda: rotated(positions=None), "[rope] positions must be a tensor, got NoneType"),
    (lambda: rotated(layout=3), "[rope] layout must be a string, got int"),
    (lambda: rotated(base="x"), "[rope] base must be a number, got str"),
    (lambda: rotated(rotary_dim=2.5), "[rope] rotary_dim must be an integer, got float"),
    (lambda: rotated(freqs=[1.0]), "[rope] freqs must be a tensor, got list"),
    (lambda: by_rows(cos=None), "[rotate] cos must be a tensor, got NoneType"),
    (lambda: by_rows(direction=3), "[rotate] direction must be a string, got int"),
    (lambda: roformer_cpp.rope_table([1, 2], freqs), "[rope_table] positions must be a tensor, got list"),
    (lambda: roformer_cpp.rope_table(places, freqs, scale="x"), "[rope_table] scale must be a number, got str"),
    (lambda: attended(q.tolist()), "[attention] q must be a tensor, got list"),
    (lambda: attended(q, None), "[attention] k must be a tensor, got NoneType"),
    (lambda: attended(q, q, q, {"bias": 1}), "[attention] terms must be Terms, as"),
    (lambda: attended(q, q, q, rope), "[attention] terms must be Terms, as"),
    (lambda: attended(positions=[0, 1, 2, 3, 4]), "[attention] positions must be a tensor, got list"),
    (lambda: attended(mask=[[True]]), "[attention] mask must be a tensor, got list"),
    (lambda: attended(prefix=[1, 2], is_causal=True), "[attention] prefix must be a tensor, got list"),
    (lambda: attended(kernel=3), "[attention] kernel must be a string, got int"),
    (lambda: attended(dropout="x"), "[attention] dropout must be a number, got str"),
    (lambda: attended(scale="x"), "[attention] scale must be a number, got str"),
    (lambda: attended(is_causal="x"), "[attention] is_causal must be True or False, got 'x'"),
    (lambda: packed([0, 5]), "[attention] cu_seqlens must be a tensor, got list"),
    (lambda: linear(q.tolist()), "[linear_attention] q must be a tensor, got list"),
    (lambda: linear(q, q, q, "elu", rope), "[linear_attention] terms must be Terms, as"),
    (lambda: linear(key_mask=[1]), "[linear_attention] key_mask must be a tensor, got list"),
    (lambda: linear(is_causal="x"), "[linear_attention] causal must be True or False, got str"),
    (lambda: linear(kernel=3), "[linear_attention] kernel must be a string, got int"),
    (lambda: linear(state=3, is_causal=True), "[linear_attention] state must be a LinearAttentionState, got int"),
    (lambda: linear(feature_map="favor", scale="x"), "[linear_attention] scale must be a number, got str"),
    (lambda: linear(feature_map="favor", projection=[1]), "[linear_attention] projection must be a tensor, got list"),
    (lambda: roformer_cpp.orthogonal_features("x", 2, 0), "[linear_attention] num_features must be an integer"),
    (lambda: roformer_cpp.linear_feature_dim("x"), "[linear_attention] head_dim must be an integer, got str"),
    (lambda: rope.terms([0, 1]), "[encoding] positions must be a tensor, got list"),
    (lambda: rope.terms(None), "[encoding] positions must be a tensor, got NoneType"),
    (lambda: rope.terms(places, layer="x"), "[encoding] layer must be an integer, got str"),
    (lambda: rope.terms(places, layer=0.5), "[encoding] layer must be an integer, got float"),
    (lambda: rope.terms(places, sequences=[1]), "[encoding] sequences must be a tensor, got list"),
    (lambda: rope.terms(places, projections=3), "[encoding] projections must be tensors, got int"),
    (lambda: rope.terms(places, projections=(3,)), "[encoding] projections[0] must be a tensor, got int"),
    (lambda: learned.input([1]), "[encoding] positions must be a tensor, got list"),
    (lambda: roformer_cpp.encoding(3), "[encoding] name must be a string, got int"),
    (lambda: roformer_cpp.combine_encodings([3]), "[encoding] encodings must be a list of encodings, got [3]"),
    (lambda: model(ids.tolist()), "[input] input_ids must be a tensor, got list"),
    (lambda: model(None), "[input] input_ids must be a tensor, got none"),
    (lambda: model(ids, num_choices="x"), "[input] num_choices must be an integer, got str"),
    (lambda: model(ids, dropout_key=3), "[input] dropout_key must be two integers, seed and step, got 3"),
    (lambda: model(ids, cache=3), "[input] cache must be KeyValueCache, got int"),
    (lambda: model.masked_lm_logits(3), "[input] hidden must be a tensor, got int"),
    (lambda: model.save(3), "[model] model_dir must be a path, got int"),
    (lambda: roformer_cpp.load_model(3), "[model] model_dir must be a path, got int"),
    (lambda: roformer_cpp.build_model(CONFIG, head=3), "[config] head must be a string, got int"),
    (lambda: roformer_cpp.build_model(CONFIG, seed="x"), "[config] seed must be an integer, got str"),
    (lambda: roformer_cpp.EncoderLayer(16, 2, 3), "[attention] encoding must be an Encoding, got int"),
    (lambda: roformer_cpp.EncoderLayer("x", 2), "[encoder_layer] hidden_size must be an integer, got str"),
    (lambda: roformer_cpp.Attention("x", 2), "[attention] hidden_size must be an integer, got str"),
    (lambda: roformer_cpp.EncoderLayer(16, 2)([1]), "[attention] x must be a tensor, got list"),
    (lambda: roformer_cpp.Engine(3), "[engine] the model directory must be a path, got int"),
    (lambda: roformer_cpp.Tokenizer.from_pretrained(3), "[tokenizer] the model directory must be a path, got int"),
]
VALUES = [
    (lambda: rotated(q.to("meta")), "[rope] positions must be on the device of x, meta, got cpu"),
    (lambda: rotated(positions=places.to("meta")), "[rope] positions must be on the device of x, cpu, got meta"),
    (lambda: rotated(freqs=freqs.to("meta")), "[rope] freqs must be on the device of x, cpu, got meta"),
    (lambda: rotated(q.int()), "[rope] x must be float32, float64, bfloat16 or float16, got Int"),
    (lambda: rotated(q.to_sparse()), "[rope] x must be a dense tensor, got torch.sparse_coo"),
    (lambda: rotated(positions=places.bool()), "[rope] positions must be integers or float64, got Bool"),
    (lambda: rotated(q[..., :0]), "[rope] rotary_dim must be even, >= 2"),
    (lambda: by_rows(cos=cos.to("meta")), "[rotate] cos must be on the device of x, cpu, got meta"),
    (lambda: by_rows(cos=cos.double()), "[rotate] cos must be Float for x of Float, got Double"),
    (lambda: by_rows(sin=sin[:, :3]), "[rotate] sin must be [batch or 1, tokens, rotary_dim/2]"),
    (lambda: attended(q, q.to("meta")), "[attention] k must be on the device of q, cpu, got meta"),
    (lambda: attended(q.to("meta"), q, q), "[attention] k must be on the device of q, meta, got cpu"),
    (lambda: attended(*[q.to("meta")] * 2, q), "[attention] v must be on the device of q, meta, got cpu"),
    (lambda: attended(*[q.to("meta")] * 3, rope.terms(places)), "[attention] query_cos must be on the device of q, me"),
    (lambda: attended(q.to("meta"), q, q, kernel="fused"), "[attention] k must be on the device of q, meta, got cpu"),
    (lambda: attended(*[q.to("meta")] * 3, mask=seen), "[attention] mask must be on the device of q, meta, got cpu"),
    (lambda: attended(mask=seen.to("meta")), "[attention] mask must be on the device of q, cpu, got meta"),
    (lambda: attended(*[q.to("meta")] * 3, positions=places), "[attention] query_positions must be on the device of q"),
    (lambda: attended(q.int(), q.int(), q.int()), "[attention] q must be floating-point, got Int"),
    (lambda: attended(q, q.double()), "[attention] k must be [batch, tokens, heads, size] of Float, got Double"),
    (lambda: attended(q.to_sparse()), "[attention] q must be a dense tensor, got torch.sparse_coo"),
    (lambda: attended(positions=places.to("meta")), "[attention] query_positions must be on the device of q"),
    (lambda: attended(*[q[..., :0]] * 3), "[attention] head_dim must be >= 1, got 0"),
    (lambda: packed(ends.to("meta")), "[attention] cu_seqlens must have values, got a tensor of the device meta"),
    (lambda: linear(q, q.to("meta")), "[linear_attention] k must be on the device of q, cpu, got meta"),
    (lambda: linear(q.to("meta"), q, q), "[linear_attention] k must be on the device of q, meta, got cpu"),
    (lambda: linear(*[q.to("meta")] * 2, q), "[linear_attention] v must be on the device of q, meta, got cpu"),
    (
        lambda: linear(*[q.to("meta")] * 3, "elu", rope.terms(places)),
        "[linear_attention] query_cos must be on the device of q, meta, got cpu",
    ),
    (lambda: linear(key_mask=seen.to("meta")), "[linear_attention] key_mask must be on the device of q, cpu, got meta"),
    (
        lambda: linear(is_causal=True, state=roformer_cpp.LinearAttentionState(on_meta)),
        "[linear_attention] sum of the state must be on the device of q, cpu, got meta",
    ),
    (
        lambda: linear(feature_map="favor", projection=torch.ones(4, D, device="meta")),
        "[linear_attention] projection must be on the device of q, cpu, got meta",
    ),
    (
        lambda: roformer_cpp.linear_attention(q[:1], q[:1], q[:1], cu_seqlens=ends.to("meta")),
        "[linear_attention] cu_seqlens must have values, got a tensor of the device meta",
    ),
    (lambda: rope.terms(places.to("meta")), "[encoding] positions must have values, got a tensor of the device meta"),
    (
        lambda: learned.input(places.to("meta")),
        "[encoding] positions must have values, got a tensor of the device meta",
    ),
    (
        lambda: words.words(vectors, ids.to("meta"), places),
        "[encoding] input_ids must be on the device of positions, cpu, got meta",
    ),
    (lambda: words.words(vectors.to("meta"), ids, places), "[encoding] words must be on the device of positions, cpu"),
    (
        lambda: words.words(vectors, ids, places.to("meta")),
        "[encoding] positions must have values, got a tensor of the device meta",
    ),
    *(
        (
            lambda name=name: of_layer(name).terms(places, hidden_states=vectors.to("meta")),
            "[encoding] hidden_states must be on the device of positions, cpu, got meta",
        )
        for name in ("fox", "path")
    ),
    (
        lambda: of_layer("transformer-xl-literal").terms(places, projections=[torch.ones(16, 16, device="meta")] * 3),
        "[encoding] projections[0] must be on the device of positions, cpu, got meta",
    ),
    (
        lambda: speaker.masked_lm_logits(torch.ones(1, 16, device="meta")),
        "[input] hidden must be on the device of the model, cpu, got meta",
    ),
    (lambda: rope.terms(places, dtype=torch.int8), "[encoding] dtype must be float32, float64, float16 or bfloat16"),
    (lambda: model(ids.to("meta")), "[input] input_ids must be on the device of the model, cpu, got meta"),
    (lambda: model(ids, ids.to("meta")), "[input] attention_mask must be on the device of the model, cpu, got meta"),
    (lambda: model(ids[:, :0]), "[input] a sequence must have at least one token, got shape [2, 0]"),
]


def numbered(cases):
    return pytest.mark.parametrize("case", cases, ids=[sentence.split(",")[0] for _, sentence in cases])


def assert_refused(case, kind):
    call, sentence = case
    with pytest.raises(kind) as refused:
        call()
    message = str(refused.value)
    assert message.startswith(sentence) and "\n" not in message and len(message) < 300


@numbered(TYPES)
def test_another_type_is_named(case):
    assert_refused(case, TypeError)


@numbered(VALUES)
def test_another_device_dtype_or_shape_is_named(case):
    assert_refused(case, ValueError)


SAME = {
    "rope": rotated,
    "rotate": by_rows,
    "attention": lambda x: attended(x, x, x),
    "linear": lambda x: linear(x, x, x),
}


@pytest.mark.parametrize("name", SAME)
def test_expanded_tensors_have_the_results_of_copies(name):
    x = q[:1].expand(4, 5, H, D)
    assert torch.equal(SAME[name](x), SAME[name](x.contiguous()))
    assert SAME[name](x).abs().max() > 0.1


@pytest.mark.parametrize("name", SAME)
def test_steps_between_elements_have_the_results_of_copies(name):
    x = torch.stack([q, q + 1], -1)[..., 0].transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(SAME[name](torch.stack([q, q + 1], -1)[..., 0]), SAME[name](q))
    assert torch.equal(SAME[name](x), SAME[name](q))


@pytest.mark.parametrize("name", SAME)
def test_no_sequences_are_allowed(name):
    assert SAME[name](q[:0]).shape == (0, 5, H, D)


@pytest.mark.parametrize("name", ["attention", "linear"])
def test_second_derivatives_name_the_kernel_that_has_them(name):
    x = q.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match=r"must be false.*Hint: kernel explicit has derivatives of any order"):
        (gradient,) = torch.autograd.grad(SAME[name](x).square().sum(), x, create_graph=True)
        gradient.sum().backward()
