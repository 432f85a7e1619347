"""Translation in the engine: number formats, threads, options out of range, and missing terms of a position encoding.
Its translations in float32 are compared in tests/oracles/test_marian_parity.py."""

import json

import pytest
import torch
import transformers

import tolerances as tol
from cli_support import refused, results
from engine_case import change_config, random_sources
from roformer_cpp.translation import load_translation_model

PAD, END = 0, 1
SIZES = dict(vocab_size=61, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48, decoder_ffn_dim=48)
SIZES |= dict(encoder_attention_heads=2, decoder_attention_heads=4, max_position_embeddings=64, scale_embedding=True)
SIZES |= dict(pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=2, forced_eos_token_id=None, dropout=0.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that has learned to copy most tokens."""
    folder = tmp_path_factory.mktemp("copies")
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the operations are small, and other tests run at the same time
    model = transformers.MarianMTModel(transformers.MarianConfig(**SIZES))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(500):
        rows = random_sources(32, step)
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
        labels = ids.masked_fill(ids == PAD, -100)
        model(input_ids=ids, attention_mask=(ids != PAD).long(), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.set_num_threads(before)
    model.save_pretrained(folder)
    return folder


def test_number_formats(trained):
    given = random_sources(64, 1000)
    expected = load_translation_model(trained).translate(given)
    assert len({tuple(found.ids) for found in expected}) > 32
    for precision in ("bfloat16", "int8"):
        found = load_translation_model(trained, precision=precision).translate(given)
        same = [a.ids == b.ids for a, b in zip(found, expected, strict=True)]
        assert sum(same) >= tol.SAME_TRANSLATIONS * len(same), precision
        differences = [abs(a.score - b.score) for a, b, ids in zip(found, expected, same, strict=True) if ids]
        assert 0 < max(differences) < tol.LOW_PRECISION_SCORE, precision


def test_threads_and_other_sources_change_no_bit(trained):
    model, given = load_translation_model(trained), random_sources(40, 2000)
    together = model.translate(given)
    assert model.translate(given[::-1])[::-1] == together
    assert [model.translate([source])[0] for source in given] == together
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert model.translate(given) == together
    torch.set_num_threads(before)


def test_padding_within_a_source_keeps_positions(trained):
    """As PyTorch's mask does."""
    model = load_translation_model(trained)
    source = [5, 6, PAD, PAD, 7, 8, END, PAD]
    (found,) = model.translate([source], beams=1)
    logits = model.logits(torch.tensor([source]), torch.tensor([source]) != PAD, torch.tensor([[2, *found.ids]]))[0]
    assert logits.argmax(-1).tolist() == [*found.ids, END]


def test_options_out_of_range(trained):
    model = load_translation_model(trained)
    for options, rule in (
        (dict(beams=0), "beams must be in 1..61, got 0"),
        (dict(beams=62), "beams must be in 1..61, got 62"),
        (dict(length_penalty=float("nan")), "length_penalty must be finite, got nan"),
        (
            dict(length_penalty=-40.0),
            "length_penalty must keep tokens^length_penalty within float32, got -40 for 52 tokens",
        ),
        (dict(max_ratio=-0.5), "max_ratio and max_extra must be at least 0, got -0.5 and 50"),
        (dict(max_extra=-1), "max_ratio and max_extra must be at least 0, got 1 and -1"),
    ):
        with pytest.raises(ValueError) as refusal:
            model.translate([[5, END]], **options)
        assert str(refusal.value) == f"[translate] {rule}"
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16, int8, got 'float16'"):
        load_translation_model(trained, precision="float16")
    assert refused("translate", "--model", trained, "--batch-tokens", 0, stdin="a") != ""


def test_terms_of_each_side_are_baked(trained, tmp_path):
    """An encoding with tables needs a file for each side, which `bake` writes."""
    transformers.MarianMTModel.from_pretrained(trained).save_pretrained(tmp_path)
    change_config(tmp_path, model_type="rf_translation", position_encoding="alibi")
    model = load_translation_model(tmp_path)
    with pytest.raises(RuntimeError, match=r"must have encoder_position_terms\.safetensors .* roformer bake --model"):
        model.translate([[5, END]])
    (report,) = results("bake", "--model", tmp_path)
    assert report["tokens"] == 2048
    files = [path.name for path in sorted(tmp_path.glob("*_position_terms.safetensors"))]
    assert files == ["decoder_position_terms.safetensors", "encoder_position_terms.safetensors"]
    (found,) = model.translate([[5, 6, 7, END]], beams=1, max_extra=4)
    logits = model.logits(torch.tensor([[5, 6, 7, END]]), None, torch.tensor([[2, *found.ids]]))[0]
    best = [*found.ids, *[END] * found.ended]
    assert best and logits.argmax(-1)[: len(best)].tolist() == best
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"decoder_attention_heads": 2}))
    with pytest.raises(RuntimeError, match=r"decoder_position_terms\.safetensors.*got those of others"):
        load_translation_model(tmp_path).translate([[5, END]])
