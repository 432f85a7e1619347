"""config.json ties the output matrix to the embedding, and the file has one of its own: every reader computes with the
file's, as transformers does; and with one tensor that is stored under either name, or under both."""

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import roformer_cpp
from cli_support import run as run_program
from engine_case import assert_close, make_oracle, make_sequences, run_oracle
from onnx_case import padded, run
from rf_engine import Engine
from rotary_decoders import make_decoder, make_rows, oracle_logits

HEADS = {"llama": "lm_head.weight", "qwen2": "lm_head.weight", "gpt_neox": "embed_out.weight"}
EMBEDDINGS = {"gpt_neox": "gpt_neox.embed_in.weight"}
ENCODERS = {"RoFormer": "roformer", "Bert": "bert"}


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def noise(tensor):
    torch.manual_seed(11)
    return tensor + torch.randn_like(tensor)


# What is done with (tensors, name of the copy, name of its source).
STORED = {
    "another": lambda tensors, copy, source: tensors.update({copy: noise(tensors[source])}),
    "the same": lambda tensors, copy, source: tensors.update({copy: tensors[source].clone()}),
    "only the copy": lambda tensors, copy, source: tensors.update({copy: tensors.pop(source)}),
}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("family", HEADS)
def test_decoders(family, stored, tmp_path):
    make_decoder(family, tmp_path, tie_word_embeddings=True)
    source = EMBEDDINGS.get(family, "model.embed_tokens.weight")
    rewrite(tmp_path, lambda tensors: STORED[stored](tensors, HEADS[family], source))
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    (row,) = make_rows((13,))
    assert_close(Engine(tmp_path).logits([row]), oracle_logits(oracle, row))


@pytest.mark.parametrize("family", ["llama", "Bert"])
def test_a_head_of_its_own_is_a_warning(family, tmp_path):
    if family == "Bert":
        make_oracle(family, "ForMaskedLM").save_pretrained(tmp_path)
        names = "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"
    else:
        make_decoder(family, tmp_path, tie_word_embeddings=True)
        names = "lm_head.weight", "model.embed_tokens.weight"
    rewrite(tmp_path, lambda tensors: STORED["another"](tensors, *names))
    np.save(tmp_path / "ids.npy", np.array([[5, 6, 7]]))
    done = run_program("forward", "--model", tmp_path, "--ids", tmp_path / "ids.npy", "--output", tmp_path / "out.npy")
    assert 'tie_word_embeddings is true, but "{}" and "{}" differ'.format(*names) in done.stderr


@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings is true")
@pytest.mark.parametrize("parts", [("weight",), ("bias",), ("weight", "bias")], ids=str)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("family", ENCODERS)
def test_encoders(family, stored, parts, tmp_path):
    """The engine, the module, what it saves, and ONNX."""
    make_oracle(family, "ForMaskedLM").save_pretrained(tmp_path)
    sources = {"weight": f"{ENCODERS[family]}.embeddings.word_embeddings.weight", "bias": "cls.predictions.bias"}

    def change(tensors):
        for part in parts:
            STORED[stored](tensors, f"cls.predictions.decoder.{part}", sources[part])

    rewrite(tmp_path, change)
    oracle = getattr(transformers, f"{family}ForMaskedLM").from_pretrained(tmp_path).eval()
    ids, types = make_sequences((13,))
    (output,) = run_oracle(oracle, ids, types)
    theirs = output.logits[0].numpy()
    assert_close(Engine(tmp_path).logits(ids, types=types), theirs)

    batch = padded(ids, types)
    model = roformer_cpp.load_model(tmp_path)
    given = dict(zip(("attention_mask", "token_type_ids"), map(torch.tensor, batch[1:]), strict=True))
    assert_close(model(torch.tensor(batch[0]), **given)["logits"][0].detach().numpy(), theirs)
    model.save(tmp_path / "saved")
    (again,) = run_oracle(type(oracle).from_pretrained(tmp_path / "saved").eval(), ids, types)
    assert torch.equal(again.logits, output.logits)
    if stored == "another":
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
        assert_close(run(tmp_path / "model.onnx", *batch)["logits"][0], theirs)
