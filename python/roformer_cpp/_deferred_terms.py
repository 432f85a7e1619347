"""Terms of an encoding inside compiled code, where they are made together with the attention that reads them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ._operator_call import operator_call
from ._script_module import kept_script
from .terms import Origin, Terms

Groups = dict[str, Sequence[Tensor] | Tensor | None]
TermsCall = tuple[list[str], Groups, list[int], list[float]]


class DeferredTerms:
    """What ``Encoding.terms`` returns under torch.compile and torch.export: a call that attention makes.

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
    made = operator_call(
        "encoding",
        script.terms,
        list(tensors["encoding"]),
        layer,
        tensors["encoding_positions"],
        tensors["encoding_key_positions"],
        tensors["sequences"],
        list(tensors["projections"]),
        tensors["hidden_states"],
        tensors["queries"],
        tensors["keys"],
        dtype,
    )
    terms = Terms.from_arguments(*made)
    terms._origin = Origin(script.made_for(), tensors["sequences"] is None and script.reads_sequences())
    return terms


def terms_call(terms: Terms | DeferredTerms | None) -> TermsCall:
    """Words, tensors, numbers and reals of an operator (_whole_call.py); ``called_terms`` makes the terms again."""
    if isinstance(terms, DeferredTerms):
        return [terms._text], terms._tensors, [terms._layer, terms._dtype], []
    tensors, names, ranges, layout, scale = (Terms() if terms is None else terms).arguments()
    return ["", layout, *names], {"terms": tensors}, ranges, [math.nan if scale is None else scale]


def called_terms(
    words: Sequence[str], groups: dict[str, list[Tensor]], numbers: Sequence[int], reals: Sequence[float]
) -> Terms:
    """The terms of a ``terms_call``."""
    if words[0]:
        one = ("encoding_positions", "encoding_key_positions", "sequences", "hidden_states", "queries", "keys")
        tensors = {name: groups[name][0] if name in groups else None for name in one}
        lists = {name: groups.get(name, []) for name in ("encoding", "projections")}
        return terms_of_script(kept_script("encoding", words[0]), tensors | lists, numbers[0], numbers[1])
    scale = None if math.isnan(reals[0]) else reals[0]
    return Terms.from_arguments(groups.get("terms", []), list(words[2:]), list(numbers), words[1], scale)


def lowered(*tensors: Tensor) -> list[Tensor]:
    """What autocast does to the inputs of attention."""
    if not torch.is_autocast_enabled("cpu"):
        return list(tensors)
    dtype = torch.get_autocast_dtype("cpu")
    return [x.to(dtype) if x.dtype != torch.float64 else x for x in tensors]
