"""Position encodings as ``torch.nn.Module``; the C++ side is nn/posenc."""

import json
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from . import _checks, _torch  # noqa: F401 - it loads the operators
from ._deferred_terms import DeferredTerms, terms_of_script
from ._operator_call import check_devices, check_tensors, check_values, operator_call
from ._options import options_json
from ._script_module import ScriptModule, keep_table, kept_script, made_script, script_maker
from ._whole_call import Call, whole_call
from .terms import Terms

_SHAPE = ("num_hidden_layers", "num_attention_heads", "head_dim", "hidden_size", "embedding_size")

_EVALUATION = "eval "  # what a definition begins with in evaluation mode
_AXES = (0, 2, 3)  # of positions; 0: a number for each token
SCALAR_TYPES = {torch.float32: 6, torch.float64: 7, torch.float16: 5, torch.bfloat16: 15}  # c10::ScalarType
DTYPES = {code: dtype for dtype, code in SCALAR_TYPES.items()}


class Encoding(ScriptModule):
    """A position encoding. Made by ``encoding`` or ``combine_encodings``."""

    _position_table: Tensor | None = None  # of a model

    def __init__(
        self, script: torch.ScriptObject, name: str, definition: tuple | dict | None, parts: Sequence["Encoding"] = ()
    ):
        """definition: for ``torch.classes.roformer.Encoding``, or a model's (``_made``)."""
        super().__init__(script, {str(i): part for i, part in enumerate(parts)})
        self.name = name
        given = [part._text for part in parts] if definition is None else definition
        self._text = json.dumps(given)  # _made makes the C++ object from it
        self.changes_words, reads = script.changes_words(), script.reads()
        self.reads_tokens, self.reads_vectors = "tokens" in reads, "vectors" in reads
        self.reads_projections = "projections" in reads

    def __repr__(self) -> str:
        numbers = sum(parameter.numel() for parameter in self.parameters())
        return f"Encoding({self.name}, {numbers:,} parameters)"

    def _rebuilt(self) -> torch.ScriptObject:
        if self._position_table is not None:
            keep_table(self._position_table)
        return _made(self._kept_text)

    @property
    def _kept_text(self) -> str:
        """The definition and the mode, from which ``_made`` makes the C++ object."""
        return self._text if self.training else _EVALUATION + self._text

    def train(self, mode: bool = True) -> "Encoding":
        """Sets the mode, which encodings written in Python see as their ``training``."""
        super().train(mode)
        self._script.train(self.training)
        return self

    @property
    def changes_with_length(self) -> bool:
        """Whether a token's rotation may change as its sequence grows; a key cache must then hold unrotated keys."""
        return self._script.changes_with_length()

    @property
    def made_for(self) -> str:
        """``causal`` or ``bidirectional`` if the terms are only right for such attention, else empty."""
        return self._script.made_for()

    @property
    def scales_scores(self) -> bool:
        """False where scores are q.k without ``1/sqrt(head_dim)``, as with ``t5``; layers then begin with projections
        of queries and keys that fit (:class:`Attention`)."""
        return self._script.scales_scores()

    def input(self, positions: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor | None:
        """The vectors added to the input embeddings, ``[1 or B, T, E]``; ``None`` for encodings that add nothing."""
        return self._added("input", positions, dtype)

    def words(self, words: Tensor, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Word embeddings ``[B, T, E]`` of ``input_ids`` int64 ``[B, T]`` as the encoding changes them.

        Most encodings return them unchanged. Token types and ``input`` are added to the result.
        """
        check_tensors("encoding", words=words, input_ids=input_ids, positions=positions)
        check_values("encoding", positions=positions)
        check_devices("encoding", positions=positions, words=words, input_ids=input_ids)
        if torch.compiler.is_compiling():
            given = {"encoding": self._tensors(), "words": words, "ids": input_ids, "positions": positions}
            return _words_operator(*Call([self._kept_text], given).flat())[0] if self.changes_words else words
        return operator_call("encoding", self._script.words, self._tensors(), words, input_ids, positions)

    def layer_input(self, positions: Tensor, *, layer: int = 0, dtype: torch.dtype = torch.float32) -> Tensor | None:
        """The vectors added to what a layer's queries, keys and values are projected from, ``[1 or B, T, C]``.

        ``None`` for encodings that add nothing there.
        """
        return self._added("layer_input", positions, dtype, layer)

    def _added(self, method: str, positions: Tensor, dtype: torch.dtype, *layer: int) -> Tensor | None:
        check_tensors("encoding", positions=positions)
        check_values("encoding", positions=positions)
        code = _scalar_type(dtype)
        if not torch.compiler.is_compiling():
            return _added_by(self._script, method, self._tensors(), positions, code, *layer)
        size = _added_size(self._text, method)
        if size == 0:
            return None
        tensors = {"positions": positions, "encoding": self._tensors()}
        return _input_operator(*Call([self._kept_text, method], tensors, [code, size, *layer]).flat())[0]

    def acts_on_input(self, *, in_layers: bool = False) -> str | None:
        """The name of the encoding, or of the part of a combination, that adds to the input embeddings or changes the
        words, which attention alone does not see; with ``in_layers`` also one that adds to the input of every layer.
        ``None`` without one.
        """
        parts = [part for part in self.children() if isinstance(part, Encoding)]
        if parts:
            return next(filter(None, (part.acts_on_input(in_layers=in_layers) for part in parts)), None)
        adds = _added_size(self._text, "input") or (in_layers and _added_size(self._text, "layer_input"))
        return self.name if self.changes_words or adds else None

    def terms(
        self,
        positions: Tensor,
        key_positions: Tensor | None = None,
        *,
        layer: int = 0,
        sequences: Tensor | None = None,
        projections: tuple[Tensor, ...] = (),
        hidden_states: Tensor | None = None,
        queries: Tensor | None = None,
        keys: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Terms:
        """The terms of one layer.

        Args:
            positions: integers ``[T]`` or ``[B, T]``, of the queries; ``[1 or B, T, 3]`` for encodings with three axes.
            key_positions: the same of the keys, with S. Default: ``positions``.
            layer: which layer's.
            sequences: integers ``[B, S]``, equal within a sequence of a row, -1 for padding. Default: one per row.
            projections: the layer's weights ``(W_q, W_k, W_v)``, ``[H*D, C]``, for encodings that project their tables;
                its biases ``(b_q, b_k, b_v)`` may follow.
            hidden_states: the layer's input at the keys, ``[B, S, C]``, for encodings that read tokens (``reads`` of
                ``encodings``), such as ``fox``.
            queries, keys: ``[B, T, H, D]`` and ``[B, S, Hk, D]`` as attention gets them, for encodings that read them,
                such as ``cope``.
            dtype: of queries and keys.

        Raises:
            ValueError: positions, or another argument, outside these rules; the message names the rule and the value.
        """
        read = {"key_positions": key_positions, "sequences": sequences, "queries": queries, "keys": keys}
        if not isinstance(projections, (tuple, list)):
            raise TypeError(f"[encoding] projections must be tensors, got {type(projections).__name__}")
        of_layer = {f"projections[{i}]": projection for i, projection in enumerate(projections)}
        check_tensors("encoding", read | {"hidden_states": hidden_states}, positions=positions, **of_layer)
        check_values("encoding", positions=positions, **read)
        check_devices("encoding", positions=positions, **read, hidden_states=hidden_states, **of_layer)
        if not isinstance(layer, int) or isinstance(layer, bool):
            raise TypeError(f"[encoding] layer must be an integer, got {type(layer).__name__}")
        tensors = {"encoding": self._tensors(), "encoding_positions": positions}
        tensors |= {"encoding_key_positions": read.pop("key_positions"), "projections": list(projections)}
        tensors |= {"hidden_states": hidden_states} | read
        if torch.compiler.is_compiling():
            return DeferredTerms(self._kept_text, tensors, layer, _scalar_type(dtype))
        return terms_of_script(self._script, tensors, layer, _scalar_type(dtype))


@script_maker("encoding")
def _made(text: str) -> torch.ScriptObject:
    """The C++ object of an encoding's definition, or of its parts' definitions, without values."""
    given = json.loads(text.removeprefix(_EVALUATION))
    if isinstance(given, dict):
        script = made_script("model", given["model"]).encoding()
    elif _is_combination(given):
        script = torch.ops.roformer.combine_encodings([_made(part) for part in given])
    else:
        script = torch.classes.roformer.Encoding(*given, True)
    script.train(not text.startswith(_EVALUATION))
    return script


def _is_combination(given: list) -> bool:
    """Whether a definition is a list of the definitions of parts, which are texts in brackets."""
    return all(isinstance(part, str) and part.startswith("[") for part in given)


@torch.compiler.assume_constant_result
def _added_size(text: str, method: str) -> int:
    """The size of the vectors that ``input`` or ``layer_input`` returns; 0 if it returns nothing."""
    given = json.loads(text)
    if _is_combination(given):
        return max((_added_size(part, method) for part in given), default=0)
    shape = (
        given if isinstance(given, dict) else dict(zip((*_SHAPE, "max_position_embeddings"), given[2], strict=False))
    )
    script, layer = kept_script("encoding", text), [0] * (method == "layer_input")
    with _disable_current_modes():
        values = (*script.named_parameters().values(), *script.named_buffers().values())
        tensors = [torch.zeros(x.shape, dtype=x.dtype, device="cpu") for x in values]
        refusal = None
        for axes in _AXES:
            try:
                for tokens in (1, shape["max_position_embeddings"]):
                    size = (1, tokens, axes) if axes else (1, tokens)
                    positions = torch.zeros(size, dtype=torch.int64, device="cpu")
                    code = SCALAR_TYPES[torch.float32]
                    if _added_by(script, method, tensors, positions, code, *layer) is not None:
                        return shape["embedding_size" if method == "input" else "hidden_size"]
                return 0
            except ValueError as error:
                refusal = refusal or error
    raise refusal


def _added_by(
    script: torch.ScriptObject, method: str, tensors: list[Tensor], positions: Tensor, code: int, *layer: int
) -> Tensor | None:
    if method == "input":
        return operator_call("encoding", script.input, tensors, positions, code, None)
    shared = operator_call("encoding", script.shared, tensors, positions, None, None, code, None, None)
    added = operator_call("encoding", script.layer_input, tensors, *layer, shared)
    return None if added is None else added.to(DTYPES[code])


def _compute_input(call: Call) -> list[Tensor]:
    (text, method), _, (code, _, *layer), _ = call
    script = kept_script("encoding", text)
    return [_added_by(script, method, call.several("encoding"), call.one("positions"), code, *layer)]


def _shape_of_input(call: Call) -> list[Tensor]:
    positions, (code, size, *_) = call.one("positions"), call.numbers
    rows, tokens = (1, positions.shape[0]) if positions.dim() == 1 else positions.shape[:2]
    return [positions.new_empty(rows, tokens, size, dtype=DTYPES[code])]


def _compute_words(call: Call) -> list[Tensor]:
    script, given = kept_script("encoding", call.words[0]), map(call.one, ("words", "ids", "positions"))
    return [script.words(call.several("encoding"), *given)]


_input_operator = whole_call("encoding_input", _compute_input, _shape_of_input)
_words_operator = whole_call("encoding_words", _compute_words, lambda call: [torch.empty_like(call.one("words"))])


def _size(key: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"[encoding] {key} must be an integer >= 1, got {_checks.shown(value)}")
    return value


def _scalar_type(dtype: torch.dtype) -> int:
    if dtype not in SCALAR_TYPES:
        raise ValueError(f"[encoding] dtype must be float32, float64, float16 or bfloat16, got {dtype}")
    return SCALAR_TYPES[dtype]


def encoding(name: str, **config) -> Encoding:
    """A position encoding by its name in ``roformer info --encodings``.

    Parameters start as in a model, drawn from torch's default generator.

    Args:
        name: the identifier, or one of ``register_encoding``.
        **config: ``num_attention_heads`` (default 1), ``head_dim`` (default 64), ``hidden_size`` (default: their
            product), ``embedding_size`` (default: ``hidden_size``), ``num_hidden_layers`` (default 1),
            ``max_position_embeddings`` (default 512), ``is_decoder`` (default false), ``initializer_range`` (default
            0.02), ``vocab_size`` (for ``complex``), and the encoding's own keys.

    Raises:
        ValueError: an unknown name or key, or a value out of range; the message names it.
    """
    if not isinstance(name, str):
        raise TypeError(f"[encoding] name must be a string, got {type(name).__name__}")
    shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 64, "max_position_embeddings": 512}
    vocab_size = _size("vocab_size", config.pop("vocab_size")) if "vocab_size" in config else 0
    shape |= {key: _size(key, config.pop(key)) for key in list(config) if key in shape or key in _SHAPE}
    shape.setdefault("hidden_size", shape["num_attention_heads"] * shape["head_dim"])
    shape.setdefault("embedding_size", shape["hidden_size"])
    causal, initializer_range = config.pop("is_decoder", False), config.pop("initializer_range", 0.02)
    if not isinstance(causal, bool):
        raise ValueError(f"[encoding] is_decoder must be true or false, got {_checks.shown(causal)}")
    if not isinstance(initializer_range, (int, float)) or not 0 <= initializer_range < float("inf"):
        raise ValueError(f"[encoding] initializer_range must be a number >= 0, got {_checks.shown(initializer_range)}")
    sizes = [shape[key] for key in (*_SHAPE, "max_position_embeddings")]
    definition = (name, options_json(name, config), [*sizes, int(causal), vocab_size], float(initializer_range))
    return Encoding(torch.classes.roformer.Encoding(*definition, False), name, definition)


def combine_encodings(encodings: Sequence[Encoding]) -> Encoding:
    """Several encodings as one: inputs are added, terms put together.

    Parameters are shared with the parts and named ``<index>.<name>``. ``terms`` raises ValueError, naming the term,
    if two parts set the same term.
    """
    if not isinstance(encodings, (list, tuple)) or not all(isinstance(part, Encoding) for part in encodings):
        raise TypeError(f"[encoding] encodings must be a list of encodings, got {_checks.shown(encodings)}")
    script = torch.ops.roformer.combine_encodings([part._script for part in encodings])
    return Encoding(script, "+".join(part.name for part in encodings), None, encodings)


def encodings() -> list[dict]:
    """The table of encodings: the properties of each one with its default keys.

    Strings: ``name``, ``summary``, ``equation``, ``source``, ``terms``, ``parameters``, ``cost``, ``extrapolates``,
    ``file`` and ``test`` (paths in the repository); ``keys``: a list of strings; truth values: ``needs_causal``,
    ``shift_invariant`` (attention does not change if all positions move by the same amount), ``pairwise`` (linear
    attention refuses it).

    And the properties of a small model with the default keys: ``reads``, the inputs of its terms other than positions:
    ``"tokens"``, ``"queries"`` or ``"keys"``; ``engine``, whether ``Engine`` opens a saved model, and
    ``engine_lacks``, the part it does not compute, or ``None``; ``onnx``, whether ``export_onnx`` writes it;
    ``position_terms``, whether a saved model has that file; ``lengths``: ``"all"``, ``"stored"`` (up to the length of
    the file, which ``bake`` extends) or ``"table"`` (up to ``max_position_embeddings``); ``longest``, the longest
    sequence of an encoding with another limit, or ``None``.
    """
    with _disable_current_modes():
        return json.loads(torch.ops.roformer.encodings())
