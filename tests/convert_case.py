"""Checkpoints for the tests of roformer_cpp.convert, under the names of BERT's original code."""

import json

import numpy as np
import torch

import tolerances as tol
from engine_case import assert_close, make_sequences, run_oracle
from rf_engine import Engine

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + i) for i in range(56))]  # 61 tokens
BERT_KEYS = ("attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size", "initializer_range",
             "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
             "type_vocab_size", "vocab_size")  # fmt: skip


# The names of BERT's code, written here beside those of transformers
FIXED = {"cls.predictions.bias": "cls/predictions/output_bias"}
FIXED |= {"cls.seq_relationship.weight": "cls/seq_relationship/output_weights"}
FIXED |= {"cls.seq_relationship.bias": "cls/seq_relationship/output_bias"}


def original_name(name):
    """The name in a TensorFlow checkpoint of a tensor of transformers, and whether it is transposed."""
    if name in FIXED:
        return FIXED[name], False
    name = name.replace("roformer.", "bert.").replace("encoder.layer.", "encoder.layer_")
    path, _, last = name.rpartition(".")
    path = path.replace(".", "/")
    if path.endswith("_embeddings"):
        return path, False
    if path.endswith("LayerNorm"):
        return f"{path}/{'gamma' if last == 'weight' else 'beta'}", False
    return f"{path}/{'kernel' if last == 'weight' else 'bias'}", last == "weight"


def original_tensors(oracle):
    tensors = {}
    for name, tensor in oracle.state_dict().items():
        if name.endswith(("embed_positions.weight", "position_ids")) or "cls.predictions.decoder" in name:
            continue
        new, transposed = original_name(name)
        tensors[new] = np.ascontiguousarray(tensor.numpy().T if transposed else tensor.numpy())
    return tensors


QUERY = "bert/encoder/layer_0/attention/self/query/kernel"
OF_TRAINING = {f"{QUERY}/{name}": np.zeros((24, 24), np.float32) for name in ("adam_m", "adam_v")}
OF_TRAINING |= {"bert/pooler/dense/bias/AdamWeightDecayOptimizer_1": np.zeros(24, np.float32)}
OF_TRAINING |= {"cls/predictions/output_bias/Adam_1": np.zeros(61, np.float32), "global_step": np.array(5)}
OF_TRAINING |= {"beta1_power": np.array(0.9, np.float32)}


class Stand:
    """A reader of a dictionary, in place of TensorFlow's."""

    def __init__(self, tensors):
        self.tensors = tensors

    def get_variable_to_shape_map(self):
        return {name: list(tensor.shape) for name, tensor in self.tensors.items()}

    def get_tensor(self, name):
        return self.tensors[name]


def write_original(folder, oracle, words=WORDS, **changes):
    """The files beside the checkpoint, and what marks it."""
    folder.mkdir(exist_ok=True)
    config = {key: getattr(oracle.config, key) for key in BERT_KEYS} | changes
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "bert_model.ckpt.index").write_bytes(b"")


def check_outputs(target, oracle):
    """transformers opens the directory and finds every bit of the tensors, and the engine computes the same."""
    again, info = type(oracle).from_pretrained(target, output_loading_info=True)
    assert not any(info.values()), info
    expected, found = oracle.state_dict(), again.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if name.endswith("embed_positions.weight"):  # which may have been computed here
            ulps = tensor.numpy().view(np.int32).astype(np.int64) - found[name].numpy().view(np.int32)
            assert np.abs(ulps).max() <= tol.POSITION_TABLE_ULPS
        else:
            assert torch.equal(found[name], tensor), name
    ids, types = make_sequences()
    theirs = np.concatenate([out.logits[0].numpy() for out in run_oracle(oracle, ids, types)])
    assert_close(Engine(target).logits(ids, types=types), theirs)
