"""The engine's C interface (engine/include/rf/engine.h) called by ctypes: no torch is loaded."""

import ctypes
import itertools
import os
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "lib/libroformer_engine.so"
PRECISIONS = {"float32": 0, "bfloat16": 1, "int8": 2}
HEADS = {"configured": 0, "none": 1, "masked-lm": 2}
POOLINGS = {"mean": 0, "cls": 1, "pooler": 2, "last": 3, "max": 4, "mean-sqrt-len": 5}
CACHES = {"auto": 0, "bfloat16": 1, "int8": 2}


class Struct(ctypes.Structure):
    """A structure of the interface, which begins with its size."""

    def __init__(self, *values, **named):
        super().__init__(ctypes.sizeof(self), *values, **named)


def fields(declarations):
    """Of a structure, declared nearly as in C, by the types of ctypes."""
    found = [("struct_size", ctypes.c_size_t)]
    for kind, *names in map(str.split, declarations.split(";")):
        type_ = getattr(ctypes, "c_" + kind.removesuffix("*"))
        found += [(name, ctypes.POINTER(type_) if kind.endswith("*") else type_) for name in names]
    return found


class Options(Struct):
    _fields_ = fields("int precision; int64 token_budget; int head; char_p task adapter; int cache_precision")


class Tokens(Struct):
    _fields_ = fields("int64 sequences; void_p offsets ids types attend positions")


class Info(Struct):
    _fields_ = fields("int64 vocab_size hidden_size layers heads logits_per_row; int32 logits_of_tokens")


class EmbedderOptions(Struct):
    _fields_ = fields(
        "int precision; int64 token_budget; int* pooling; int32 normalize; int64 dimensions max_length; "
        "char_p prompt prompt_name; int32 refuse_long_texts; int vectors role; int64 max_active; char_p task adapter"
    )


class Vectors(Struct):
    _fields_ = fields(
        "int64 count dense_dimensions sparse_dimensions token_dimensions; float* dense; int64* sparse_offsets; "
        "int32* sparse_indices; float* sparse_values; int64* token_offsets; float* token_vectors; void_p owner"
    )


def make_tokens(sequences, **more):
    """The structure, and the arrays that it points to. more: types, attend and positions, each like the sequences."""
    dtypes = {"ids": np.int32, "types": np.int32, "attend": np.uint8, "positions": np.int64}
    arrays = {
        name: np.concatenate([np.asarray(row, dtypes[name]) for row in rows] or [np.zeros(0, dtypes[name])])
        for name, rows in {"ids": sequences, **more}.items()
    }
    arrays["offsets"] = np.cumsum([0] + [len(row) for row in sequences], dtype=np.int64)
    return Tokens(len(sequences), **{name: array.ctypes.data for name, array in arrays.items()}), arrays


def library():
    lib = ctypes.CDLL(str(LIBRARY))
    lib.rf_engine_last_error.restype = ctypes.c_char_p
    for name in ("", "decoder_", "embedder_"):
        getattr(lib, f"rf_engine_{name}close").argtypes = [ctypes.c_void_p]
    return lib


class EngineError(Exception):
    pass


class Handle:
    """What a call opened. kind: of its functions."""

    kind = ""

    def __del__(self):
        if getattr(self, "handle", None):
            getattr(self.lib, f"rf_engine_{self.kind}close")(self.handle)

    def call(self, name, *arguments):
        if getattr(self.lib, f"rf_engine_{name}")(*arguments) != 0:
            raise EngineError(self.lib.rf_engine_last_error().decode())


class Engine(Handle):
    """A model directory. Sequences are lists of token ids of any lengths."""

    def __init__(
        self, directory, precision="float32", token_budget=0, head="configured", task=None, adapter=None, cache="auto"
    ):
        self.lib = library()
        self.handle = ctypes.c_void_p()
        task, adapter = (None if text is None else str(text).encode() for text in (task, adapter))
        options = Options(PRECISIONS[precision], token_budget, HEADS[head], task, adapter, CACHES[cache])
        self.call("open", str(directory).encode(), ctypes.byref(options), ctypes.byref(self.handle))
        self.info = Info()
        self.call("describe", self.handle, ctypes.byref(self.info))

    def run(self, name, columns, sequences, of_tokens, extra=(), rows=None, **more):
        tokens, arrays = make_tokens(sequences, **more)
        if rows is None:
            rows = len(arrays["ids"]) if of_tokens else len(sequences)
        out = np.full((rows, columns), np.nan, np.float32)
        self.call(name, self.handle, ctypes.byref(tokens), *extra, ctypes.c_void_p(out.ctypes.data))
        return out

    def hidden(self, sequences, **more):
        """[tokens, hidden_size]"""
        return self.run("hidden", self.info.hidden_size, sequences, True, **more)

    def pooled(self, sequences, pooling="mean", **more):
        """[sequences, hidden_size]"""
        extra = (ctypes.c_int(POOLINGS[pooling]),)
        return self.run("pooled", self.info.hidden_size, sequences, False, extra, **more)

    def logits(self, sequences, **more):
        """[tokens or sequences, logits_per_row]"""
        return self.run("logits", self.info.logits_per_row, sequences, bool(self.info.logits_of_tokens), **more)

    def vocabulary_logits(self, sequences, chosen, **more):
        """[chosen, vocab_size]"""
        rows = np.asarray(chosen, np.int64)
        extra = (ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(len(rows)))
        return self.run("vocabulary_logits", self.info.vocab_size, sequences, True, extra, rows=len(rows), **more)


class Embedder(Handle):
    """A sentence encoder: texts (str or bytes) to vectors."""

    kind = "embedder_"

    def __init__(self, directory, precision="float32", token_budget=0, pooling=None, normalize=None, **more):
        self.lib = library()
        self.handle = ctypes.c_void_p()
        options = EmbedderOptions(PRECISIONS[precision], token_budget)
        if pooling is not None:
            options.pooling = ctypes.pointer(ctypes.c_int(POOLINGS[pooling]))
        options.normalize = {None: 0, True: 1, False: -1}[normalize]
        for key, value in more.items():
            setattr(options, key, value.encode() if isinstance(value, str) else value)
        self.call("embedder_open", str(directory).encode(), ctypes.byref(options), ctypes.byref(self.handle))
        dimensions = ctypes.c_int64()
        self.call("embedder_dimensions", self.handle, ctypes.byref(dimensions))
        self.dimensions = dimensions.value

    def vectors(self, texts):
        """Kinds of vectors: an array, dictionaries of indices and values, and arrays; None for a kind without any."""
        found = Vectors()
        self.call("embed_vectors", self.handle, *self.arguments(texts), ctypes.byref(found))
        n, out = found.count, {"dense": None, "sparse": None, "tokens": None}
        if found.dense:
            out["dense"] = np.array(found.dense[: n * found.dense_dimensions]).reshape(n, -1)
        if found.sparse_offsets:
            parts = itertools.pairwise(found.sparse_offsets[: n + 1])
            values = ((found.sparse_indices[a:b], found.sparse_values[a:b]) for a, b in parts)
            out["sparse"] = [dict(zip(*each, strict=True)) for each in values]
        if found.token_offsets:
            width, parts = found.token_dimensions, itertools.pairwise(found.token_offsets[: n + 1])
            values = (np.array(found.token_vectors[a * width : b * width], np.float32) for a, b in parts)
            out["tokens"] = [each.reshape(-1, width) for each in values]
        self.lib.rf_engine_vectors_free(ctypes.byref(found))
        assert not found.owner and not found.sparse_offsets and found.struct_size == ctypes.sizeof(found)
        return out

    @staticmethod
    def arguments(texts):
        texts = [t.encode() if isinstance(t, str) else t for t in texts]
        pointers = (ctypes.c_char_p * len(texts))(*texts)
        return ctypes.c_int64(len(texts)), pointers, (ctypes.c_size_t * len(texts))(*map(len, texts))

    def embed(self, texts):
        """[texts, dimensions]"""
        out = np.full((len(texts), self.dimensions), np.nan, np.float32)
        self.call("embed", self.handle, *self.arguments(texts), ctypes.c_void_p(out.ctypes.data))
        return out
