"""TensorFlow checkpoints of BERT's code and its descendants (RoFormer, WoBERT, WoNEZHA), read by TensorFlow.

A kernel is [in, out] there and [out, in] here. Optimizer states are left out; every other tensor has a place in the
table below, or is an error. The names of RoFormer's small models for the projection of their embeddings differ between
the programs that wrote them, so there are two.
"""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks
from .._model_files import Stored
from .checkpoint import WHERE, Checkpoint, named, read_json

MODEL_TYPES = ("bert", "nezha", "roformer", "roformer_v2")
TOKENIZERS = ("bert", "roformer", "wobert")

_DENSE = {"kernel": "weight", "bias": "bias"}
_NORM = {"gamma": "weight", "beta": "bias"}
# Patterns of names without their last part, names here, and what the last part becomes. BODY: "bert." or "roformer.".
_PLACES = [
    (r"embeddings/LayerNorm", r"BODYembeddings.LayerNorm", _NORM),
    (r"(?:embeddings_project|encoder/embedding_hidden_mapping_in)", r"BODYembeddings_project", _DENSE),
    (r"encoder/layer_(\d+)/attention/self/(query|key|value)", r"BODYencoder.layer.\1.attention.self.\2", _DENSE),
    (r"encoder/layer_(\d+)/attention/output/dense", r"BODYencoder.layer.\1.attention.output.dense", _DENSE),
    (r"encoder/layer_(\d+)/attention/output/LayerNorm", r"BODYencoder.layer.\1.attention.output.LayerNorm", _NORM),
    (r"encoder/layer_(\d+)/(intermediate|output)/dense", r"BODYencoder.layer.\1.\2.dense", _DENSE),
    (r"encoder/layer_(\d+)/output/LayerNorm", r"BODYencoder.layer.\1.output.LayerNorm", _NORM),
    (r"pooler/dense", r"BODYpooler.dense", _DENSE),
]
_WHOLE = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/predictions/transform/dense/kernel": "cls.predictions.transform.dense.weight",
    "cls/predictions/transform/dense/bias": "cls.predictions.transform.dense.bias",
    "cls/predictions/transform/LayerNorm/gamma": "cls.predictions.transform.LayerNorm.weight",
    "cls/predictions/transform/LayerNorm/beta": "cls.predictions.transform.LayerNorm.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
}
_TABLES = re.compile(r"embeddings/(word|token_type|position)_embeddings")
_OF_TRAINING = re.compile(
    r"(?:.*/)?(?:adam_[mv]|Adam(?:_\d+)?|Adam\w*Optimizer(?:_\d+)?|lamb_[mv]|LAMB\w*(?:_\d+)?|"
    r"(?:current_)?(?:beta[12]_power|loss_scale)|good_steps|global_step|save_counter|_CHECKPOINTABLE_OBJECT_GRAPH)"
    r"(?:/.*)?"
)


def find(source: Path) -> Path | None:
    """The prefix of the checkpoint's files, if the source is one or a directory with one; several are a ValueError."""
    if source.with_name(source.name + ".index").is_file():
        return source
    if source.suffix == ".index" and source.is_file():
        return source.with_suffix("")
    if not source.is_dir():
        return None
    found = sorted(source.glob("*.index"))
    if len(found) > 1:
        names = named([path.stem for path in found])
        raise ValueError(f"[{WHERE}] a directory must have one checkpoint, or name one as the source, got {names}")
    return found[0].with_suffix("") if found else None


def open_reader(prefix: Path) -> Any:
    """TensorFlow's CheckpointReader."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    rule = f"[{WHERE}] a TensorFlow checkpoint needs TensorFlow to read it (pip install tensorflow-cpu)"
    tf = _checks.needed("tensorflow", rule)
    try:
        return tf.train.load_checkpoint(str(prefix))
    except Exception as error:  # TensorFlow's own, of many kinds
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"[{WHERE}] {prefix} must be a TensorFlow checkpoint, got: {first}") from None


def place(name: str, body: str) -> tuple[str, bool] | None:
    """The name here of a tensor that is called ``name`` there, and whether it is transposed; None without a place."""
    if name in _WHOLE:
        return _WHOLE[name], name.endswith("/kernel")
    rest = re.sub(r"^(?:bert|nezha|roformer)/", "", name)
    if rest == name:
        return None
    if match := _TABLES.fullmatch(rest):
        return f"{body}embeddings.{match[1]}_embeddings.weight", False
    path, _, last = rest.rpartition("/")
    for pattern, new, parts in _PLACES:
        if last in parts and (match := re.fullmatch(pattern, path)):
            return f"{match.expand(new).replace('BODY', body)}.{parts[last]}", last == "kernel"
    return None


def read(prefix: Path, model_type: str | None, tokenizer: str | None) -> Checkpoint:
    """
    Args:
        prefix: the checkpoint's path without ``.index``; bert_config.json (or config.json) and vocab.txt are next
            to it.
        model_type: one of MODEL_TYPES. Default: bert with a table of positions, without one roformer, and roformer_v2
            if no tensor is a bias.
        tokenizer: one of TOKENIZERS; the original RoFormer also uses wobert. Default: wobert if the vocabulary has
            Chinese words, else bert.
    """
    folder = prefix.parent
    settings = folder / "bert_config.json"
    config = read_json(settings if settings.is_file() else folder / "config.json")
    vocabulary = folder / "vocab.txt"
    if not vocabulary.is_file():
        raise FileNotFoundError(f"[{WHERE}] the source must have vocab.txt, got none in {folder}")
    words = vocabulary.read_text(encoding="utf-8").splitlines()
    size = config.get("vocab_size")
    if isinstance(size, int) and len(words) > size:
        raise ValueError(f"[{WHERE}] {vocabulary} must have at most the {size} tokens of the model, got {len(words)}")
    reader = open_reader(prefix)
    names = sorted(name for name in reader.get_variable_to_shape_map() if not _OF_TRAINING.fullmatch(name))
    if model_type is None:
        has_positions = any(name.endswith("embeddings/position_embeddings") for name in names)
        has_biases = any(name.endswith("/bias") for name in names)
        model_type = "bert" if has_positions else "roformer" if has_biases else "roformer_v2"
    body = "roformer." if model_type.startswith("roformer") else "bert."
    tensors, unknown, left_out = {}, [], []
    for name in names:
        found = place(name, body)
        if found is None:
            unknown.append(name)
        elif body == "roformer." and ("pooler" in name or "seq_relationship" in name):
            left_out.append(name)  # transformers' RoFormer lacks them
        else:
            array = np.asarray(reader.get_tensor(name), np.float32)
            if found[0] in tensors:
                raise ValueError(f"[{WHERE}] each place must have one tensor, got two for {_checks.short(found[0])}")
            tensors[found[0]] = Stored("F32", array.T if found[1] else array)
    if unknown:
        raise ValueError(f"[{WHERE}] tensors must have a place in a {model_type}, got {named(unknown)}")
    if not tensors:
        raise ValueError(f"[{WHERE}] a checkpoint must have tensors of a model, got none in {prefix}")
    has_words = any(len(word) > 1 and all("\u4e00" <= char <= "\u9fff" for char in word) for word in words)
    kind = tokenizer or ("wobert" if has_words else "bert")
    settings = {"do_lower_case": True, "tokenizer_class": "BertTokenizer" if kind == "bert" else "RoFormerTokenizer"}
    settings |= {"roformer_pipeline": "wobert"} if kind == "wobert" else {}
    return Checkpoint(
        config=_config(config, tensors, model_type, body),
        tensors=tensors,
        written={"tokenizer_config.json": settings},
        copied={"vocab.txt": vocabulary},
        left_out=left_out,
    )


def _config(given: dict[str, Any], tensors: dict[str, Stored], model_type: str, body: str) -> dict[str, Any]:
    config = given | {"model_type": model_type}
    head, next_sentence = "cls.predictions.bias" in tensors, "cls.seq_relationship.weight" in tensors
    if model_type == "roformer_v2":  # the head of its language model reuses the embedding
        head = True
    stem = {"bert": "Bert", "nezha": "Nezha"}.get(model_type, "RoFormer")
    end = "ForPreTraining" if head and next_sentence else "ForMaskedLM" if head else "Model"
    config["architectures"] = [stem + end]
    words = tensors.get(f"{body}embeddings.word_embeddings.weight")
    if body == "roformer." and words is not None and words.array.ndim == 2:
        config.setdefault("embedding_size", int(words.array.shape[1]))
    return config
