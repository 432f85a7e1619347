"""RoFormer and rotary position embedding in C++.

Without PyTorch: trained models and tokenizers, and training by the program.

    engine = roformer_cpp.Engine("path/to/model")
    vectors = engine.embed(["one text", "another"])
    roformer_cpp.pretrain("run.json", "data", "model", callback=print)

With PyTorch: operators, attention over position encodings, and models.

    q = roformer_cpp.rope(q, positions, layout="pairs")

The operators are also ``torch.ops.roformer.rope``, ``rope_``, ``rotate``, ``rope_table`` and ``dropout``; they have
gradients of any order and work under ``torch.compile``. So do, with first gradients, ``norm``, ``gelu`` and
``linear`` (ops/include/rf/ops/rows.h). Tensors are on the CPU or a CUDA device. PyTorch is loaded when the first name
that needs it is used.

On a machine with other work, import it before torch: OpenMP's idle threads then spin for a short time only, unless
OMP_WAIT_POLICY or GOMP_SPINCOUNT is set. If torch is imported first, set GOMP_SPINCOUNT=10000 yourself.
"""

import os
import sys
from importlib import import_module
from types import ModuleType

from . import _library, _openmp

TYPE_CHECKING = False  # type checkers take it for true; the module typing takes longer to import
if TYPE_CHECKING:
    from ._ops import memory_held, release_memory, rope, rope_table, rotate, set_target, target
    from .attention import attention
    from .bge_m3 import BGEM3FlagModel
    from .convert import convert
    from .corpus import merge, prepare, vocab
    from .cross_encoder import CrossEncoder
    from .custom_encoding import CustomEncoding, EncodingShape, register_encoding
    from .encoding import combine_encodings, encoding, encodings
    from .engine import Engine
    from .graft import graft, grafted, perplexity_by_position, ungraft
    from .inspection import Inspection, LayerAttention, inspect
    from .layers import Attention, EncoderLayer, GatedAttentionUnit
    from .linear_attention import (
        LinearAttention,
        LinearAttentionState,
        linear_attention,
        linear_feature_dim,
        orthogonal_features,
    )
    from .model import bake, build_model, load_model, register
    from .multi_vector_encoder import MultiVectorEncoder
    from .onnx_export import export_onnx
    from .patch import patch, register_attention, unpatch
    from .quantization import quantize_embeddings
    from .sentence_transformer import SentenceTransformer
    from .shards import ShardDataset
    from .sparse_encoder import SparseEncoder, SparseVectors
    from .tensorboard import TensorBoard, scalars
    from .terms import DistanceTable, Rotation, Terms
    from .tokenizer import Tokenizer
    from .training import Finetuning, Pretraining, finetune, pretrain
    from .translation import Translation, TranslationModel, load_translation_model

__version__ = "0.1.0"
__all__ = ["CrossEncoder", "Engine", "SentenceTransformer", "TensorBoard", "Tokenizer", "convert", "export_onnx"]
__all__ += ["BGEM3FlagModel", "MultiVectorEncoder", "SparseEncoder", "SparseVectors", "quantize_embeddings"]
__all__ += ["Finetuning", "Pretraining", "finetune", "merge", "prepare", "pretrain", "scalars", "vocab"]
if TYPE_CHECKING or _library.has_operators():
    __all__ += ["memory_held", "release_memory", "rope", "rope_table", "rotate", "set_target", "target"]
    __all__ += ["DistanceTable", "Rotation", "Terms", "attention", "bake", "build_model", "load_model"]
    __all__ += ["CustomEncoding", "EncodingShape", "combine_encodings", "encoding", "encodings", "register_encoding"]
    __all__ += ["Attention", "EncoderLayer", "GatedAttentionUnit"]
    __all__ += ["Translation", "TranslationModel", "load_translation_model"]
    __all__ += ["LinearAttention", "LinearAttentionState", "linear_attention", "linear_feature_dim"]
    __all__ += ["ShardDataset", "orthogonal_features", "patch", "register", "register_attention", "unpatch"]
    __all__ += ["Inspection", "LayerAttention", "graft", "grafted", "inspect", "perplexity_by_position", "ungraft"]

# The names of each module. The first use of a name imports its module.
_WITHOUT_TORCH = {
    "bge_m3": "BGEM3FlagModel",
    "convert": "convert",
    "corpus": "merge prepare vocab",
    "cross_encoder": "CrossEncoder",
    "engine": "Engine",
    "multi_vector_encoder": "MultiVectorEncoder",
    "onnx_export": "export_onnx",
    "quantization": "quantize_embeddings",
    "sentence_transformer": "SentenceTransformer",
    "sparse_encoder": "SparseEncoder SparseVectors",
    "tensorboard": "TensorBoard scalars",
    "tokenizer": "Tokenizer",
    "training": "Finetuning Pretraining finetune pretrain",
}
_WITH_TORCH_ALONE = {"shards": "ShardDataset"}  # without the operators
_OPERATORS = {"_ops": "memory_held release_memory rope rope_table rotate set_target target"}
_MODELS = {
    "attention": "attention",
    "custom_encoding": "CustomEncoding EncodingShape register_encoding",
    "encoding": "combine_encodings encoding encodings",
    "graft": "graft grafted perplexity_by_position ungraft",
    "inspection": "Inspection LayerAttention inspect",
    "layers": "Attention EncoderLayer GatedAttentionUnit",
    "linear_attention": (
        "LinearAttention LinearAttentionState linear_attention linear_feature_dim orthogonal_features"
    ),
    "model": "bake build_model load_model register",
    "patch": "patch register_attention unpatch",
    "terms": "DistanceTable Rotation Terms",
    "translation": "Translation TranslationModel load_translation_model",
}
_MODULE_OF = {
    name: module
    for group in (_WITHOUT_TORCH, _WITH_TORCH_ALONE, _OPERATORS, _MODELS)
    for module, names in group.items()
    for name in names.split()
}
# Modules that are names of the package themselves.
_NAMESPACES = ("ray",)


def __getattr__(name: str) -> object:
    if name in _NAMESPACES:
        return import_module(f".{name}", __name__)
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module not in _WITHOUT_TORCH and module not in _WITH_TORCH_ALONE:
        from . import _torch

        if module in _MODELS and not _torch.has_models:
            raise ImportError(f"[roformer_cpp] {name} needs {_library.NN} next to {_library.OPS}, got none")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Where a function and its module have one name, the name is the function: the import system sets the module."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _MODULE_OF.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

# The script `roformer` is replaced by the program, which does the same and says the same.
_is_script = bool(sys.argv) and os.path.basename(sys.argv[0]) == "roformer"  # noqa: PTH119 - pathlib takes long to import
if not _is_script:
    _openmp.load()

# Report problems of the operators on import: a wrong folder in ROFORMER_LIB_DIR, or an OpenMP that may give torch fewer
# threads than it expects.
_NAMED = ("ROFORMER_LIB_DIR", "OMP_DYNAMIC", "OMP_THREAD_LIMIT")
if not _is_script and any(os.environ.get(name) for name in _NAMED):
    if _library.has_operators():
        from . import _torch  # noqa: F401
    elif _library.given_folder():
        _library.check_given_folder()
