"""Encoder-decoders against transformers 5's Marian, the same function with sinusoids: logits and beam search."""

import copy
import re
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import tolerances as tol
from engine_case import assert_refused, change_config, random_sources
from parity_case import assert_close, perturbed
from roformer_cpp.translation import Translation, load_translation_model

PAD, END, START = 0, 1, 2
SIZES = dict(vocab_size=61, d_model=24, encoder_layers=2, decoder_layers=3, encoder_ffn_dim=37, decoder_ffn_dim=41)
SIZES |= dict(encoder_attention_heads=2, decoder_attention_heads=4, max_position_embeddings=64, scale_embedding=True)
SIZES |= dict(activation_function="swish", pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=START)
SIZES |= dict(forced_eos_token_id=None)


def make_oracle(folder=None, **changes):
    """Saved in a folder."""
    torch.manual_seed(0)
    model = perturbed(transformers.MarianMTModel(transformers.MarianConfig(**(SIZES | changes))))
    model.final_logits_bias.copy_(tol.PERTURBED * torch.randn(model.final_logits_bias.shape))
    if folder is not None:
        model.save_pretrained(folder)
    return model


def padded(rows):
    out = torch.full((len(rows), max(map(len, rows))), PAD)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row)
    return out


@pytest.fixture(scope="module")
def trained_oracle():
    """A model that has begun to learn to copy: a random one repeats a token, whatever the source is."""
    torch.manual_seed(0)
    oracle = transformers.MarianMTModel(transformers.MarianConfig(**SIZES, dropout=0.0))
    optimizer = torch.optim.Adam(oracle.parameters(), lr=1e-2)
    for step in range(80):
        source = padded(random_sources(32, step))
        labels = source.masked_fill(source == PAD, -100)
        oracle(input_ids=source, attention_mask=(source != PAD).long(), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return oracle.eval()


def make_inputs():
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(3, 61, (3, 9), generator=generator)
    mask = torch.ones(3, 9, dtype=torch.int64)
    for row, length in enumerate((9, 5, 7)):
        source[row, length - 1] = END
        source[row, length:] = PAD
        mask[row, length:] = 0
    target = torch.randint(3, 61, (3, 6), generator=generator)
    target[:, 0] = START
    return source, mask, target


def their_logits(oracle, source, mask, target):
    with torch.no_grad():
        return oracle(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits


@pytest.mark.parametrize("changes", ({}, {"scale_embedding": False, "activation_function": "relu"}))
def test_logits(changes, tmp_path):
    oracle, inputs = make_oracle(tmp_path, **changes), make_inputs()
    assert_close(load_translation_model(tmp_path).logits(*inputs), their_logits(oracle, *inputs))
    ours = load_translation_model(tmp_path, dtype="float64").logits(*inputs)
    theirs = their_logits(oracle.double(), *inputs)
    # Their table of sinusoids is rounded to float32.
    assert theirs.abs().max() > 1 and (ours - theirs).abs().max() <= tol.T4_MAX * theirs.abs().max()


def test_logits_in_a_compiled_graph(tmp_path):
    make_oracle(tmp_path)
    for dtype in ("float32", "float64"):
        torch._dynamo.reset()
        model = load_translation_model(tmp_path, dtype=dtype)
        compiled = torch.compile(model.logits, fullgraph=True, backend="aot_eager", dynamic=True)
        for rows in (3, 2):
            given = [x[:rows] for x in make_inputs()]
            expected = model.logits(*given)
            assert expected.abs().max() > 1 and torch.equal(compiled(*given), expected)
    again = copy.copy(model)
    del model
    assert torch.equal(again.logits(*given), expected)
    model = again
    with pytest.raises(TypeError, match="decoder_input_ids must be a tensor, got list"):
        model.logits(given[0], None, [[START]])


def rotated(projected, head_dim):
    """RoPE of pairs (2i, 2i + 1) in float64, arXiv 2104.09864 Eq. 34, of [B, T, C] by its place in the row."""
    x = projected.double().unflatten(-1, (-1, head_dim // 2, 2))
    angles = torch.arange(x.shape[1]).double()[:, None] * 10000.0 ** (-2 * torch.arange(head_dim // 2) / head_dim)
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
    return torch.view_as_real(torch.view_as_complex(x) * turns).flatten(2).to(projected.dtype)


def test_rope_in_self_attention_alone(tmp_path):
    """Their model without sinusoids, whose queries and keys of self-attention are rotated on their way."""
    oracle, inputs = make_oracle(tmp_path, scale_embedding=False), make_inputs()
    change_config(tmp_path, model_type="rf_translation", position_encoding="rope")
    with torch.no_grad():
        for side, heads in ((oracle.model.encoder, 2), (oracle.model.decoder, 4)):
            side.embed_positions.weight.zero_()
            for layer in side.layers:
                for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                    projection.register_forward_hook(lambda _, __, out, size=24 // heads: rotated(out, size))
    ours, theirs = load_translation_model(tmp_path).logits(*inputs), their_logits(oracle, *inputs)
    assert (ours - theirs).abs().max() <= tol.T4_MAX * theirs.abs().max()


def their_translations(oracle, source, mask, beams, penalty, tokens):
    options = dict(num_beams=beams, length_penalty=penalty, max_new_tokens=tokens, do_sample=False)
    options |= dict(early_stopping=False, bad_words_ids=[[PAD]])
    generated = oracle.generate(input_ids=source, attention_mask=mask, **options)[:, 1:].tolist()
    return [[token for token in row[: [*row, END].index(END)] if token != PAD] for row in generated]


@pytest.mark.parametrize(("beams", "penalty"), ((1, 1.0), (4, 0.6), (3, 2.0)))
def test_beam_search(beams, penalty, trained_oracle, tmp_path):
    """In a batch of sources of all lengths, one by one, and without the cache."""
    trained_oracle.save_pretrained(tmp_path)
    model = load_translation_model(tmp_path)
    sources = random_sources(24, 1000)
    source = padded(sources)
    theirs = their_translations(trained_oracle, source, (source != PAD).long(), beams, penalty, 17)
    assert len({tuple(row) for row in theirs}) > 12 and len(set(map(len, theirs))) > 4

    def ids(given, **options):
        found = model.translate(given, beams=beams, length_penalty=penalty, max_ratio=0, max_extra=17, **options)
        return [result.ids for result in found]

    assert ids(sources) == theirs
    assert ids(sources, cache=False) == theirs
    assert [ids([source])[0] for source in sources] == theirs


@pytest.mark.parametrize("beams", (1, 3))
def test_length_limit_of_each_source(beams, tmp_path):
    """A model that ends no translation by itself stops at the last token within max_ratio times the source and
    max_extra more."""
    oracle = make_oracle()
    oracle.final_logits_bias[0, END] = -1e6
    oracle.save_pretrained(tmp_path)
    model = load_translation_model(tmp_path)
    sources = [[5, 6, 7, END], [8, END], [9, 10, END], [*range(4, 11), END]]
    for ratio, extra in ((2, 1), (1.5, 0), (0.9, 3), (1.26, 2), (0.3, 1)):
        ours = model.translate(sources, beams=beams, max_ratio=ratio, max_extra=extra)
        limits = [max(n for n in range(40) if n <= ratio * len(source) + extra) for source in sources]
        assert [len(result.ids) for result in ours] == limits and not any(result.ended for result in ours)


@pytest.fixture(scope="module")
def any_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_oracle(folder)
    return load_translation_model(folder)


def test_refused_ids(any_model):
    for token in (61, -1, 2**31, 2**32 + 5, 5 - 2**32, 2**63 - 1, 2**63, -(2**63) - 1, torch.tensor(2**32 + 5)):
        of_64_bits = f"below {2**63}" if token > 0 else f"at least {-(2**63)}"
        rule = f"a token id must be {of_64_bits}" if abs(int(token)) >= 2**63 else r"token ids must be in 0\.\.60"
        with pytest.raises(ValueError, match=rf"\[translate\] {rule}, got {int(token)}"):
            any_model.translate([[5, END], [6, token, END]])
    for token in (5.0, torch.tensor(5.0), "5", None):
        rule = rf"^\[translate\] a token id must be an integer, got {type(token).__name__}$"
        with pytest.raises(TypeError, match=rule):
            any_model.translate([[5, END], [6, token, END]])


@pytest.mark.parametrize("cache", (True, False))
def test_sources_without_a_token(cache, any_model):
    """They have the empty translation and do not change that of others."""
    sources, nothing = [[5, 6, 7, END], [8, END]], Translation([], 0.0, True)
    first, second = any_model.translate(sources, cache=cache)
    found = any_model.translate([[], sources[0], [PAD] * 9, sources[1], [PAD]], cache=cache)
    assert first.ids and found == [nothing, first, nothing, second, nothing]
    assert any_model.translate([[], [PAD]], cache=cache) == [nothing] * 2
    assert any_model.translate([], cache=cache) == []


@pytest.mark.parametrize("beams", (1, 4))
def test_logits_beyond_float32(beams, tmp_path):
    oracle = make_oracle()
    with torch.no_grad():
        oracle.model.decoder.layers[-1].final_layer_norm.weight.fill_(3e38)
    oracle.save_pretrained(tmp_path)
    for dtype in ("float32", "float64"):
        with pytest.raises(ValueError, match=r"\[translate\] logits must be finite in float32, got .* for token"):
            load_translation_model(tmp_path, dtype=dtype).translate([[5, 6, END]], beams=beams, max_extra=4)


def test_refused_configurations(tmp_path):
    make_oracle(tmp_path)
    for changes, message in (
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings must be true, got false"),
        ({"activation_dropout": 0.1}, "activation_dropout must be 0.0, got 0.1"),
        ({"d_model": 25}, "d_model must be a multiple of encoder_attention_heads, got 25 and 2"),
        ({"num_experts": 8}, "num_experts must be absent, null, 0 or 1"),
        ({"position_encoding": "rope"}, "model_type marian must have no position_encoding"),
        ({"pad_token_id": 61}, "pad_token_id must be below the vocabulary's 61, got 61"),
    ):
        assert_refused(tmp_path, re.escape(message), load_translation_model, **changes)


def test_refused_weights(tmp_path):
    make_oracle(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = "model.decoder.layers.2.encoder_attn.v_proj.weight"
    for changed, message in (
        ({name: None}, f"got no {name}"),
        ({name: weights[name][:, :23]}, f'"{name}" must have the shape [24, 24] by the config, got [24, 23]'),
        ({"other": weights[name]}, 'got "other"'),
        ({name: weights[name] * torch.nan}, f"weights must be finite in Float, got nan in {name}[0, 0]"),
        ({"lm_head.weight": torch.zeros(61, 24)}, "share one matrix, got other values"),
    ):
        kept = {key: value.clone() for key, value in (weights | changed).items() if value is not None}
        save_file(kept, tmp_path / "model.safetensors")
        assert_refused(tmp_path, re.escape(message), load_translation_model)
    shutil.rmtree(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_translation_model(tmp_path)
