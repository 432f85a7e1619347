"""Terms of an encoding inside compiled code, where they are made together with the attention that reads them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ._operator_call import operator_call
from ._script_module import kept_script
from ._whole_call import Call
from .terms import Origin, Terms

Groups = dict[str, Sequence[Tensor] | Tensor | None]
_VECTORS = ("hidden_states", "queries", "keys")


class DeferredTerms:
    """The result of ``Encoding.terms`` under torch.compile and torch.export: a call that attention makes later.

    Outside of the compiled code it has the attributes of ``Terms``.
    """

    def __init__(self, text: str, tensors: Groups, layer: int, dtype: int):
        self._text, self._tensors, self._layer, self._dtype = text, tensors, layer, dtype

    def made(self) -> Terms:
        return terms_of_script(kept_script("encoding", self._text), self._tensors, self._layer, self._dtype)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        if torch.compiler.is_compiling():
            raise AttributeError(
                "[encoding] terms must be given to attention or linear_attention inside compiled code, got a use of "
                f"their {name}"
            )
        return getattr(self.made(), name)


def terms_of_script(script: torch.ScriptObject, tensors: Groups, layer: int, dtype: int) -> Terms:
    """The terms of one layer; tensors: by the names that ``Encoding.terms`` gives them."""
    given, names = list(tensors["encoding"]), ("encoding_positions", "encoding_key_positions", "sequences")
    shared = operator_call("encoding", script.shared, given, *(tensors[name] for name in names), dtype, None, None)
    hidden = tensors["hidden_states"]
    numbers = None if hidden is None else operator_call("encoding", script.token_numbers, given, layer, hidden)
    of_layer = list(tensors["projections"]), numbers, tensors["queries"], tensors["keys"]
    terms = Terms.from_arguments(*operator_call("encoding", script.terms, given, layer, shared, *of_layer))
    terms._origin = Origin(script.made_for(), tensors["sequences"] is None and script.reads_sequences())
    return terms


def terms_call(terms: Terms | DeferredTerms | None) -> Call:
    """The part of a call that has the terms; ``called_terms`` makes them again."""
    if isinstance(terms, DeferredTerms):
        return Call([terms._text], terms._tensors, [terms._layer, terms._dtype])
    tensors, names, ranges, layout, scale = (Terms() if terms is None else terms).arguments()
    return Call(["", layout, *names], {"terms": tensors}, ranges, [math.nan if scale is None else scale])


def called_terms(call: Call) -> Terms:
    """The terms of a ``terms_call``."""
    words, _, numbers, reals = call
    if words[0]:
        one = ("encoding_positions", "encoding_key_positions", "sequences", *_VECTORS)
        tensors = {name: call.one(name) for name in one}
        tensors |= {name: call.several(name) for name in ("encoding", "projections")}
        return terms_of_script(kept_script("encoding", words[0]), tensors, numbers[0], numbers[1])
    scale = None if math.isnan(reals[0]) else reals[0]
    return Terms.from_arguments(call.several("terms"), list(words[2:]), list(numbers), words[1], scale)


def attention_shapes(call: Call) -> list[Tensor]:
    """The result of an attention of ``q``, ``k`` and ``v``, without values."""
    q, v = call.one("q"), call.one("v")
    return [q.new_empty(*q.shape[:3], v.shape[3])]


def lowered(*tensors: Tensor) -> list[Tensor]:
    """Casts the inputs of attention as autocast does."""
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return list(tensors)
    dtype = torch.get_autocast_dtype(device)
    return [x.to(dtype) if x.dtype != torch.float64 else x for x in tensors]
