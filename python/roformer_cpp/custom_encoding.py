"""Position encodings written in Python; nn/src/python_encoding.h is the other side."""

import atexit
import inspect
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType

import torch
from torch import Tensor, nn

from . import _checks
from ._script_module import kept_script
from .encoding import DTYPES, encodings
from .terms import TermLists, Terms


@dataclass(frozen=True)
class EncodingShape:
    """The sizes and settings of a model that its encoding may depend on.

    Attributes:
        vocab_size: rows of the word embeddings; 0: not known.
    """

    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    hidden_size: int
    embedding_size: int
    max_position_embeddings: int
    is_decoder: bool
    initializer_range: float
    vocab_size: int = 0


class CustomEncoding(nn.Module):
    """Base class of position encodings written in Python.

    The constructor gets an :class:`EncodingShape` and the encoding's own keys. It registers parameters and buffers as
    in any ``nn.Module``. A saved model has the parameters and the persistent buffers, which must be floating-point or
    int64. ``register_encoding`` gives the class a name, by which ``encoding``, ``combine_encodings``, ``attention``,
    ``build_model`` and ``load_model`` accept it like a built-in encoding.

    A forward pass calls :meth:`words`, :meth:`input` and :meth:`shared` once, and :meth:`layer_input`,
    :meth:`token_numbers` and :meth:`layer_terms` for each layer. The pass does not call methods that a subclass lacks.
    The engine refuses a saved model whose encoding defines :meth:`words`, :meth:`input` or :meth:`layer_input`, or
    reads tokens or vectors; the error names this part.

    Attributes:
        numbers_per_token: how many numbers :meth:`token_numbers` returns for each token, such as the forget gates of
            fox; :meth:`layer_terms` then gets the numbers of all keys. 0: none.
        reads_vectors: where a subclass sets it to true, :meth:`layer_terms` also gets the layer's queries and keys.
        scales_scores: false where terms have ``scale`` 1, as T5's: a model then draws the projections of queries and
            keys with the deviations 1/sqrt(C D) and 1/sqrt(C), as T5's authors do.
        max_length: the longest sequence that the encoding reads, for example the rows of a table by position; longer
            ones are refused. ``None``: any.
    """

    numbers_per_token = 0
    reads_vectors = False
    scales_scores = True
    max_length: int | None = None

    def words(self, words: Tensor, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Word embeddings ``[B, T, embedding_size]`` of ``input_ids`` int64 ``[B, T]`` at ``positions`` int64
        ``[1 or B, T]``, changed. Token types and :meth:`input` are added to the result.
        """
        return words

    def input(self, positions: Tensor, dtype: torch.dtype) -> Tensor | None:
        """The vectors that are added to the input embeddings, ``[1 or B, T, embedding_size]``.

        Return ``None`` to add nothing; an encoding must do so for all positions or for none.

        Args:
            positions: int64 ``[1 or B, T]``.
            dtype: of the embeddings.
        """
        return None

    def layer_input(self, layer: int, shared: object) -> Tensor | None:
        """The vectors that are added to the input of a layer's queries, keys and values, ``[1 or B, T, hidden_size]``.

        Return ``None`` to add nothing; an encoding must do so for all positions or for none. Neither
        :meth:`token_numbers` nor the residual connection contains it.
        """
        return None

    def token_numbers(self, layer: int, hidden_states: Tensor) -> Tensor:
        """The numbers ``[B, T, numbers_per_token]`` of tokens, from a layer's input ``[B, T, C]``; caches keep them."""
        raise NotImplementedError("[encoding] token_numbers must be defined where numbers_per_token is not 0, got none")

    def shared(self, positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> object:
        """An object of any kind that all layers share; :meth:`layer_terms` gets it.

        Args:
            positions, key_positions: int64 ``[1 or B, T]`` and ``[1 or B, S]``; the same tensor in self-attention.
            dtype: of queries and keys.
        """
        return None

    def layer_terms(self, layer: int, shared: object, projections: tuple[Tensor, ...], *vectors: Tensor) -> Terms:
        """The terms of one layer, without ``positions`` and ``key_positions``. By default ``shared``.

        Args:
            layer: from 0 on.
            shared: from :meth:`shared`.
            projections: the layer's weights ``(W_q, W_k, W_v)``, ``[H*D, C]``, and its biases, or nothing.
            *vectors: where ``numbers_per_token``, the numbers ``[B, S, N]`` of all keys; then, where
                ``reads_vectors``, the queries ``[B, T, H, D]`` and the keys ``[B, S, Hk, D]`` before any rotation. The
                term ``pair_bias`` holds numbers per pair of query and key.
        """
        if not isinstance(shared, Terms):
            raise TypeError(
                f"[encoding] shared must return Terms where layer_terms is not defined, got {_checks.shown(shared)}"
            )
        return shared

    def forward(self, method: str, *arguments: object) -> object:
        """``self.<method>(*arguments)``, the form in which torch puts other tensors in the place of parameters."""
        return getattr(self, method)(*arguments)


@dataclass
class _Made:
    """A module, and the facts that C++ knows about it."""

    module: CustomEncoding
    parameters: list[str]
    buffers: list[str]  # the persistent ones
    adds: dict[str, bool]  # whether input and layer_input returned a tensor, once called


_classes: dict[str, Callable[..., CustomEncoding]] = {}
_kept: dict[int, object] = {}  # modules, and what they share in a forward pass, until C++ releases them
_numbers = itertools.count(1)


def register_encoding(
    name: str, make: Callable[..., CustomEncoding] | None = None
) -> Callable[..., CustomEncoding] | Callable:
    """Makes an encoding known by a name; also a decorator of its class: ``@register_encoding("kerple")``.

    Args:
        name: for ``encoding(name)`` and ``{"type": name}`` in a configuration; none of the program's own. A name may be
            registered again, as a notebook does.
        make: called as ``make(shape, **keys)`` with an :class:`EncodingShape` and the encoding's own keys.

    A directory of a model with this encoding opens if the name is registered. For other programs, including the engine,
    its terms are stored with the weights (docs/formats.md).

    Raises:
        ValueError: the name is that of a built-in encoding.
        TypeError: `make` cannot be called.
    """
    if make is None:
        return lambda make: register_encoding(name, make)
    if not isinstance(name, str) or not name or name in {each["name"] for each in encodings()}:
        raise ValueError(
            f"[register_encoding] name must be a text that no built-in encoding has, got {_checks.shown(name)}"
        )
    if not callable(make):
        raise TypeError(f"[register_encoding] make must be called as make(shape, **keys), got {_checks.shown(make)}")
    _classes[name] = make
    kept_script.cache_clear()
    return make


def _keep(value: object) -> int:
    number = next(_numbers)
    _kept[number] = value
    return number


def _make(name: str, options: str, sizes: list[int], initializer_range: float) -> int:
    *numbers, causal, words = sizes
    with torch.device("cpu"):  # also where transformers makes models on the device meta
        module = _classes[name](EncodingShape(*numbers, bool(causal), initializer_range, words), **json.loads(options))
    if not isinstance(module, CustomEncoding):
        raise TypeError(f"[encoding] {name} must be made as a CustomEncoding, got {type(module).__name__}")
    for name in ("reads_vectors", "scales_scores"):
        if not isinstance(getattr(module, name), bool):
            raise TypeError(f"[encoding] {name} must be True or False, got {_checks.shown(getattr(module, name))}")
    _checked_length(module.max_length)
    numbers = module.numbers_per_token
    if not isinstance(numbers, int) or isinstance(numbers, bool) or numbers < 0:
        raise ValueError(f"[encoding] numbers_per_token must be an integer >= 0, got {_checks.shown(numbers)}")
    read = ["token_numbers"] * (numbers > 0) + ["queries", "keys"] * module.reads_vectors
    signature = inspect.signature(module.layer_terms)
    try:
        signature.bind("layer", "shared", "projections", *read)
    except TypeError:
        names = " and ".join([", ".join(["layer", "shared", "projections", *read[:-1]]), *read[-1:]])
        where = "where reads_vectors is True" if module.reads_vectors else f"for numbers_per_token {numbers}"
        raise TypeError(f"[encoding] layer_terms must take {names} {where}, got {signature}") from None
    return _keep(_Made(module, *_names(module), {}))


def _names(module: nn.Module) -> tuple[list[str], list[str]]:
    """Of the parameters and the persistent buffers."""
    passing = {
        f"{prefix}.{name}".removeprefix(".")
        for prefix, part in module.named_modules()
        for name in part._non_persistent_buffers_set
    }
    buffers = [name for name, _ in module.named_buffers() if name not in passing]
    return [name for name, _ in module.named_parameters()], buffers


def _tensors(number: int) -> tuple[list[Tensor], list[str], int]:
    """The tensors of a module with their names, parameters first, and the number of parameters."""
    made = _kept[number]
    named = dict(made.module.named_parameters()) | dict(made.module.named_buffers())
    names = made.parameters + made.buffers
    return [named[name] for name in names], names, len(made.parameters)


@dataclass
class _ModuleCall:
    """A call from C++ of one of the public methods: the module, the tensors that replace its own, and its mode."""

    number: int
    tensors: list[Tensor]
    training: bool

    @property
    def made(self) -> _Made:
        return _kept[self.number]

    def _result(self, method: str, *arguments: object) -> object:
        made = self.made
        if made.module.training != self.training:
            made.module.train(self.training)
        values = dict(zip(made.parameters + made.buffers, self.tensors, strict=True))
        result = torch.func.functional_call(made.module, values, (method, *arguments))
        later = {name for names in _names(made.module) for name in names}.difference(values)
        if later:
            raise ValueError(
                "[encoding] parameters and persistent buffers must be registered by the constructor, got "
                f"{_checks.shown(min(later))} after it. Hint: register_buffer(.., persistent=False)"
            )
        return result

    def _added(self, method: str, positions: Tensor, *arguments: object) -> Tensor | None:
        """The checked result of ``input`` or ``layer_input``."""
        added = self._result(method, *arguments)
        if not isinstance(added, (Tensor, NoneType)):
            raise TypeError(f"[encoding] {method} must return a tensor or None, got {type(added).__name__}")
        adds = added is not None
        if self.made.adds.setdefault(method, adds) != adds:
            raise ValueError(
                f"[encoding] {method} must return a tensor for all positions, or None for all, got "
                f"{'a tensor' if adds else 'None'} for positions {list(positions.shape)} and the other before"
            )
        rows, tokens = positions.shape[:2]
        if added is not None and (added.dim() != 3 or added.size(0) not in (1, rows) or added.size(1) != tokens):
            shape = f"[1 or {rows}, {tokens}, {'embedding_size' if method == 'input' else 'hidden_size'}]"
            raise ValueError(f"[encoding] {method} must return {shape}, got {list(added.shape)}")
        return added

    def _of_shape(self, shape: list[int], method: str, *arguments: object) -> Tensor:
        result = self._result(method, *arguments)
        if not isinstance(result, Tensor) or list(result.shape) != shape:
            got = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(f"[encoding] {method} must return a tensor {shape}, got {got}")
        return result

    def input(self, positions: Tensor, dtype: int) -> Tensor | None:
        return self._added("input", positions, positions, DTYPES[dtype])

    def layer_input(self, shared: int, layer: int) -> Tensor | None:
        positions, value = _kept[shared]
        return self._added("layer_input", positions, layer, value)

    def words(self, words: Tensor, input_ids: Tensor, positions: Tensor) -> Tensor:
        return self._of_shape(list(words.shape), "words", words, input_ids, positions)

    def token_numbers(self, layer: int, hidden: Tensor) -> Tensor:
        numbers = self.made.module.numbers_per_token
        return self._of_shape([*hidden.shape[:2], numbers], "token_numbers", layer, hidden)

    def shared(self, positions: Tensor, key_positions: Tensor, dtype: int) -> int:
        return _keep((positions, self._result("shared", positions, key_positions, DTYPES[dtype])))

    def terms(self, shared: int, layer: int, projections: list[Tensor], vectors: list[Tensor]) -> TermLists:
        terms = self._result("layer_terms", layer, _kept[shared][1], tuple(projections), *vectors)
        if not isinstance(terms, Terms):
            raise TypeError(f"[encoding] layer_terms must return Terms, got {type(terms).__name__}")
        return terms.arguments()


def _facts(number: int) -> tuple[bool, bool, int, int | None, bool, bool, bool, bool]:
    """The attributes of a module, and which of ``input``, ``words``, ``layer_input`` and ``layer_terms``, which gets
    the projections, its class defines."""
    module = _kept[number].module
    defined = (
        getattr(getattr(module, name), "__func__", None) is not getattr(CustomEncoding, name)
        for name in ("input", "words", "layer_input", "layer_terms")
    )
    length = _checked_length(module.max_length)
    return (module.reads_vectors, module.scales_scores, module.numbers_per_token, length, *defined)


def _checked_length(length: object) -> int | None:
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
        raise ValueError(f"[encoding] max_length must be an integer >= 1 or None, got {_checks.shown(length)}")
    return length


def _release(number: int) -> None:
    _kept.pop(number, None)


def _called(method: Callable) -> Callable:
    return lambda *arguments: method(_ModuleCall(*arguments[:3]), *arguments[3:])


_FIELDS = "int module, Tensor[] tensors, bool training"  # of _ModuleCall
_TERM_LISTS = "(Tensor[], str[], int[], str, float?)"
_TERMS = f"terms({_FIELDS}, int shared, int layer, Tensor[] projections, Tensor[] vectors) -> {_TERM_LISTS}"
_library = torch.library.Library("roformer_python", "DEF")
for _schema, _function in (
    ("knows(str name) -> bool", lambda name: name in _classes),
    ("make(str name, str options, int[] shape, float initializer_range) -> int", _make),
    ("tensors(int module) -> (Tensor[], str[], int)", _tensors),
    ("facts(int module) -> (bool, bool, int, int?, bool, bool, bool, bool)", _facts),
    (f"words({_FIELDS}, Tensor words, Tensor input_ids, Tensor positions) -> Tensor", _called(_ModuleCall.words)),
    (f"layer_input({_FIELDS}, int shared, int layer) -> Tensor?", _called(_ModuleCall.layer_input)),
    (f"token_numbers({_FIELDS}, int layer, Tensor hidden_states) -> Tensor", _called(_ModuleCall.token_numbers)),
    (f"input({_FIELDS}, Tensor positions, int dtype) -> Tensor?", _called(_ModuleCall.input)),
    (f"shared({_FIELDS}, Tensor positions, Tensor key_positions, int dtype) -> int", _called(_ModuleCall.shared)),
    (_TERMS, _called(_ModuleCall.terms)),
    ("release(int number) -> ()", _release),
):
    _library.define(_schema)
    _library.impl(_schema.partition("(")[0], _function, "CompositeImplicitAutograd")

# C++ objects may live longer than Python.
atexit.register(_library._destroy)
