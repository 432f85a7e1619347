"""Position encodings as ``torch.nn.Module``; the C++ side is nn/posenc."""

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from . import _torch  # noqa: F401 - it loads the operators
from ._options import options_json
from ._script_module import ScriptModule
from .terms import Terms

_SHAPE = ("num_hidden_layers", "num_attention_heads", "head_dim", "hidden_size", "embedding_size")

SCALAR_TYPES = {torch.float32: 6, torch.float64: 7, torch.float16: 5, torch.bfloat16: 15}  # c10::ScalarType


class Encoding(ScriptModule):
    """A position encoding. Made by ``encoding`` or ``combine_encodings``."""

    def __init__(
        self, script: torch.ScriptObject, name: str, definition: tuple | None, parts: Sequence["Encoding"] = ()
    ):
        super().__init__(script, parts)
        self.name = name
        self._definition = definition  # arguments of the C++ class; of a combination none
        self._parts = len(parts)

    def __repr__(self) -> str:
        numbers = sum(parameter.numel() for parameter in self.parameters())
        return f"Encoding({self.name}, {numbers:,} parameters)"

    def _rebuilt(self) -> torch.ScriptObject:
        if self._definition is None:
            parts = [self._modules[str(i)]._script for i in range(self._parts)]
            return torch.ops.roformer.combine_encodings(parts)
        return torch.classes.roformer.Encoding(*self._definition, True)

    @property
    def changes_with_length(self) -> bool:
        """Whether a token's rotation may change as its sequence grows; a key cache must then hold unrotated keys."""
        return self._script.changes_with_length()

    def input(self, positions: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor | None:
        """The vectors added to the input embeddings, ``[1 or B, T, E]``; ``None`` for encodings that add nothing."""
        return self._script.input(self._tensors(), positions, _scalar_type(dtype))

    def terms(
        self,
        positions: Tensor,
        key_positions: Tensor | None = None,
        *,
        layer: int = 0,
        sequences: Tensor | None = None,
        projections: tuple[Tensor, ...] = (),
        hidden_states: Tensor | None = None,
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
            hidden_states: the layer's input at the keys, ``[B, S, C]``, for encodings that read tokens (``fox``).
            dtype: of queries and keys.

        Raises:
            ValueError: positions, or another argument, outside these rules; the message names the rule and the value.
        """
        code = _scalar_type(dtype)
        made = self._script.terms(
            self._tensors(), layer, positions, key_positions, sequences, list(projections), hidden_states, code
        )
        return Terms.from_arguments(*made)


def _size(key: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"[encoding] {key} must be a whole number >= 1, got {value!r}")
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
        **config: ``num_attention_heads``, ``head_dim``, ``hidden_size`` (default: their product), ``embedding_size``
            (default: ``hidden_size``), ``num_hidden_layers`` (default 1), ``max_position_embeddings`` (default 512),
            ``is_decoder`` (default false), ``initializer_range`` (default 0.02), and the encoding's own keys.

    Raises:
        ValueError: an unknown name or key, or a value out of range; the message names it.
    """
    shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 64, "max_position_embeddings": 512}
    shape |= {key: _size(key, config.pop(key)) for key in list(config) if key in shape or key in _SHAPE}
    shape.setdefault("hidden_size", shape["num_attention_heads"] * shape["head_dim"])
    shape.setdefault("embedding_size", shape["hidden_size"])
    causal, initializer_range = config.pop("is_decoder", False), config.pop("initializer_range", 0.02)
    if not isinstance(causal, bool):
        raise ValueError(f"[encoding] is_decoder must be true or false, got {causal!r}")
    if not isinstance(initializer_range, (int, float)) or not 0 <= initializer_range < float("inf"):
        raise ValueError(f"[encoding] initializer_range must be a number >= 0, got {initializer_range!r}")
    sizes = [shape[key] for key in (*_SHAPE, "max_position_embeddings")]
    definition = (name, options_json(name, config), [*sizes, int(causal)], float(initializer_range))
    return Encoding(torch.classes.roformer.Encoding(*definition, False), name, definition)


def combine_encodings(encodings: Sequence[Encoding]) -> Encoding:
    """Several encodings as one: inputs are added, terms put together.

    Parameters are shared with the parts and named ``<index>.<name>``. ``terms`` raises ValueError, naming the term,
    when two of them set one.
    """
    script = torch.ops.roformer.combine_encodings([part._script for part in encodings])
    return Encoding(script, "+".join(part.name for part in encodings), None, encodings)


def encodings() -> list[dict]:
    """What the table says of each encoding.

    Strings: ``name``, ``summary``, ``equation``, ``source``, ``terms``, ``parameters``, ``cost``, ``extrapolates``,
    ``file`` and ``test``; ``keys``: a list of strings; truth values: ``needs_causal``, ``shift_invariant`` (attention
    stays as it is when all positions move by the same amount), ``pairwise`` (no place in linear attention).
    """
    return json.loads(torch.ops.roformer.encodings())
