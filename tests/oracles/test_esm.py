"""The tokenizer of ESM-2 and ESM-1b, and texts with masks, beside transformers."""

import itertools
import json
import random

import numpy as np
import pytest
import tokenizer_probe as probe
import torch
import transformers
from safetensors.numpy import load_file, save_file

import roformer_cpp
from engine_case import assert_close, change_config
from foreign_encoders import make_encoder, rows_of
from onnx_case import run
from rf_engine import Engine, EngineError

TOKENS = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
PIECES = [*TOKENS, "MKTAYIAKQR", "mkt", "J", "a,b", "é", "蛋白", "<", "mask>", "<null_", "##A", "\x1c", *probe.GAPS]


@pytest.fixture
def folder(tmp_path):
    probe.write_vocabulary(tmp_path / "vocab.txt", TOKENS)
    transformers.EsmTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    return tmp_path


def check(ours, theirs, count=400):
    draw = random.Random(4)
    assert type(theirs) is transformers.EsmTokenizer
    texts = ["".join(draw.choices(PIECES, k=draw.randrange(1, 12))) for _ in range(count)]
    for text, other in zip(texts, texts[::-1], strict=True):
        ids = theirs(text)["input_ids"]
        assert ours.encode(text) == ids, ascii(text)
        assert ours.encode(text, other) == theirs(text, other)["input_ids"], ascii((text, other))
        assert ours.decode(ids) == theirs.decode(ids), ascii(text)


def test_tokenizer(folder):
    check(roformer_cpp.Tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder), 4000)
    config = folder / "tokenizer_config.json"
    keys = {"clean_up_tokenization_spaces": True}  # of the published directories
    config.write_text(json.dumps(json.loads(config.read_text()) | keys))
    check(roformer_cpp.Tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder))
    roformer_cpp.Tokenizer(folder).save_pretrained(folder / "saved")
    check(roformer_cpp.Tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder / "saved"))


BASES = [
    "<unk>",
    "<pad>",
    "<mask>",
    "<cls>",
    *("".join(each) for each in itertools.product("ACGT", repeat=3)),
    *"ACGTN",
]


@pytest.mark.parametrize("end", [None, "N"])
def test_nucleotides(end, tmp_path):
    """Words of several letters, and an end token that is null or another: as in nucleotide-transformer."""
    probe.write_vocabulary(tmp_path / "vocab.txt", BASES)
    config = {"tokenizer_class": "EsmTokenizer", "eos_token": end, "model_max_length": 1000}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), roformer_cpp.Tokenizer(tmp_path)
    ours.save_pretrained(tmp_path / "saved")
    saved, draw = roformer_cpp.Tokenizer(tmp_path / "saved"), random.Random(2)
    for _ in range(300):
        text = "".join(draw.choices("ACGTACGTACGTN x", k=draw.randrange(1, 30)))
        assert ours.encode(text) == saved.encode(text) == theirs(text)["input_ids"], text
    if end is None:
        with pytest.raises(ValueError, match="pair"):
            ours.encode("A", "C")


def test_offsets(folder):
    text = "M k蛋 <mask>é,K"
    found = roformer_cpp.Tokenizer(folder)(text, add_special_tokens=False, return_offsets_mapping=True)
    assert [text[begin:end] for begin, end in found["offset_mapping"]] == ["M", "k蛋", "<mask>", "é,", "K"]


@pytest.mark.parametrize("family", ["esm", "esm positions"])
def test_masks(family, tmp_path):
    """Embeddings of masks are 0, and the others are scaled by their share of each text, padded or packed."""
    oracle = make_encoder(family, "ForMaskedLM", tmp_path, token_dropout=True, mask_token_id=9)
    rows = [np.array(row, np.int32) for row in ([5, 9, 7, 9, 9, 11, 2], [9, 8], [4, 5, 6, 7])]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row).long() for row in rows], True, padding_value=1)
    mask = ids.ne(1).long()
    segments = torch.arange(3, dtype=torch.int32).repeat_interleave(torch.tensor([len(row) for row in rows]))
    positions = torch.cat([torch.arange(len(row)) for row in rows])
    model = roformer_cpp.load_model(tmp_path)
    with torch.no_grad():
        theirs = oracle(ids, mask).logits[mask == 1].numpy()
        module = model(ids, attention_mask=mask)["logits"][mask == 1]
        packed = model(ids[mask == 1][None], segments=segments[None], positions=positions)["logits"][0]
    assert_close(Engine(tmp_path).logits(rows), theirs)
    assert_close(module.numpy(), theirs)
    assert_close(packed.numpy(), theirs)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    graph = run(tmp_path / "model.onnx", ids, mask, None)["logits"]
    assert_close(graph[mask == 1], theirs)


def test_published_files(tmp_path):
    """Of facebook/esm2_t6_8M_UR50D: its keys, tensors that no class reads, and frequencies that were rounded once."""
    make_encoder("esm", "ForMaskedLM", tmp_path)
    path = tmp_path / "model.safetensors"
    keys = {"classifier_dropout": None, "esmfold_config": None, "is_folding_model": False, "vocab_list": None}
    keys |= {"hidden_act": "gelu", "torch_dtype": "float32", "transformers_version": "4.25.0.dev0"}
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(config | keys))
    tensors = {name.replace(".gamma", ".weight").replace(".beta", ".bias"): x for name, x in load_file(path).items()}
    frequencies = tensors.pop("esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq")
    rounded = frequencies.astype(np.float16).astype(np.float32)
    assert (rounded != frequencies).any()
    tensors |= {f"esm.encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq": rounded for i in range(2)}
    tensors["esm.embeddings.position_ids"] = np.arange(64)[None]
    tensors["esm.embeddings.position_embeddings.weight"] = np.ones((64, 48), np.float32)
    save_file(tensors, path, {"format": "pt"})
    oracle = transformers.EsmForMaskedLM.from_pretrained(tmp_path).eval()
    assert torch.equal(oracle.esm.rotary_embeddings.inv_freq, torch.from_numpy(rounded))
    (row,) = rows_of((700,))
    with torch.no_grad():
        theirs = oracle(torch.tensor(row)[None].long()).logits[0].numpy()
    module = roformer_cpp.load_model(tmp_path)
    module.save(tmp_path / "saved")
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", length=700)
    graph = run(tmp_path / "model.onnx", row[None], np.ones_like(row)[None], None)["logits"][0]
    for ours in (Engine(tmp_path).logits([row]), Engine(tmp_path / "saved").logits([row]), graph):
        assert_close(ours, theirs)
    assert_close(module(torch.tensor(row)[None].long())["logits"][0].detach().numpy(), theirs)
    tensors["esm.encoder.layer.1.attention.self.rotary_embeddings.inv_freq"] = frequencies
    save_file(tensors, path)
    with pytest.raises(EngineError, match="all layers must have the same frequencies, got others"):
        Engine(tmp_path)


def test_masks_alone(tmp_path):
    """transformers divides 0 by 0."""
    make_encoder("esm", "Model", tmp_path, mask_token_id=9)
    row = np.array([9, 9], np.int32)
    ours = Engine(tmp_path).hidden([row])
    assert np.isfinite(ours).all()
    assert_close(roformer_cpp.load_model(tmp_path)(torch.tensor(row)[None].long())["hidden"][0].detach().numpy(), ours)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_dropout": True, "mask_token_id": None}, "mask_token_id must be given with token_dropout, got none"),
        ({"is_folding_model": True}, "is_folding_model must be absent, null, false or 0"),
        ({"position_embedding_type": "relative"}, "position_embedding_type"),
    ],
)
def test_what_is_refused(change, message, tmp_path):
    make_encoder("esm", "Model", tmp_path)
    change_config(tmp_path, **change)
    with pytest.raises(EngineError, match=message):
        Engine(tmp_path)
