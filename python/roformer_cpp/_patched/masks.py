"""Masks for transformers' models: its own, with a note where one is a window and padding.

transformers makes one mask for all layers and hands it to each. The kernel skips what a window or padding leaves out,
but has to read a matrix. So the mask stays a valid matrix for every reader, and carries its window and padding as an
attribute, which is lost if a model makes another tensor of it.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers import masking_utils as theirs

_NOTE = "_roformer_form"


@dataclass(frozen=True)
class MaskForm:
    """Which keys the queries may attend to.

    ``window``: (left, right), query i and key j with ``-left <= j - (i + S - T) <= right``, -1 for no limit;
    ``attend``: bool, ``[B, S]`` or four dimensions that broadcast to ``[B, H, T, S]``, or None for all;
    ``added``: numbers to add to the scores, four dimensions that broadcast to it.
    """

    window: tuple[int, int] = (-1, -1)
    attend: Tensor | None = None
    added: Tensor | None = None


def note_form(mask: Tensor, form: MaskForm) -> None:
    setattr(mask, _NOTE, (form, mask._version))


def noted_form(mask: Tensor | None) -> MaskForm | None:
    """The form that `note_form` stored; None without one, or if the mask has changed since."""
    if mask is None or torch.compiler.is_compiling():
        return None
    form, version = getattr(mask, _NOTE, (None, None))
    return form if form is not None and version == mask._version else None


def _constant(function: Callable) -> Callable:
    """Cached, and not traced by torch.compile, which would trace into the object that `cache` makes."""
    cached = cache(function)

    @torch.compiler.assume_constant_result
    def call(*arguments: object) -> object:
        return cached(*arguments)

    return call


@torch.compiler.assume_constant_result
def modeling_of(cls: type) -> ModuleType | None:
    """The Python module of a class, or of one that it inherits from, whose models take the attention interface."""
    modules = (
        sys.modules.get(base.__module__) for base in cls.__mro__ if base.__module__ != PreTrainedModel.__module__
    )
    return next((module for module in modules if hasattr(module, "ALL_ATTENTION_FUNCTIONS")), None)


@_constant
def supports_sdpa(modeling: ModuleType) -> bool:
    """Whether the models of a Python module support torch's attention: bool masks, and no additional terms."""
    models = [
        value
        for value in vars(modeling).values()
        if isinstance(value, type) and issubclass(value, PreTrainedModel) and value.__module__ == modeling.__name__
    ]
    return bool(models) and all(model._supports_sdpa for model in models)


# Families whose functions for eager attention compute what torch's function does, in all forms that others copy.
_PLAIN = ("bert", "llama", "bart", "t5", "splinter")


def _code_of(modeling: ModuleType) -> str | None:
    function = getattr(modeling, "eager_attention_forward", None)
    if function is None:
        return None
    tree = ast.parse(inspect.getsource(function))
    arguments = tree.body[0].args
    for argument in (*arguments.args, arguments.kwarg):
        argument.annotation = None
    tree.body[0].returns = None
    return ast.unparse(tree)


@_constant
def has_plain_eager(modeling: ModuleType) -> bool:
    """Whether the function for eager attention is a copy of one without additional terms."""
    names = (f"transformers.models.{name}.modeling_{name}" for name in _PLAIN)
    return _code_of(modeling) in {_code_of(importlib.import_module(name)) for name in names} - {None}


def form_of_numbers(mask: Tensor) -> MaskForm:
    """The form of a mask whose numbers are added to the scores: the lowest of its dtype and -inf leave a key out."""
    closed = mask <= torch.finfo(mask.dtype).min / 2
    if torch.compiler.is_compiling() or mask.requires_grad or mask.is_inference():
        return MaskForm(attend=~closed, added=mask.masked_fill(closed, 0))
    form = MaskForm(attend=~closed, added=None if (closed | (mask == 0)).all() else mask.masked_fill(closed, 0))
    note_form(mask, form)
    return form


@_constant
def _takes_bool(config: type) -> bool:
    """Whether the models of a configuration are known to take bool masks; others add a mask to the scores."""
    modeling = sys.modules.get(config.__module__.replace(".configuration_", ".modeling_"))
    return hasattr(modeling, "ALL_ATTENTION_FUNCTIONS") and supports_sdpa(modeling)


def make_mask(
    batch_size: int, q_length: int, kv_length: int, *, config: PretrainedConfig | None = None, **options
) -> Tensor | None:
    """The mask of transformers: bool, or numbers for models that do not take bool masks.

    Arguments as in ``transformers.masking_utils.sdpa_mask``; ``attention_mask`` is True for tokens, False for padding,
    ``[B, S or longer]``.
    """
    arguments = dict(options, batch_size=batch_size, q_length=q_length, kv_length=kv_length)
    takes_bool = config is not None and _takes_bool(type(config))
    if takes_bool and torch.compiler.is_compiling():
        return theirs.sdpa_mask(**arguments)
    return _noted_mask(theirs.sdpa_mask if takes_bool else theirs.eager_mask, arguments)


@torch.compiler.disable
def _noted_mask(make: Callable, arguments: dict) -> Tensor | None:
    queries, keys = arguments["q_length"], arguments["kv_length"]
    query_offset, key_offset = arguments.get("q_offset", 0), arguments.get("kv_offset", 0)
    function, padding = arguments.get("mask_function", theirs.causal_mask_function), arguments.get("attention_mask")
    # A tensor of inference mode does not count its changes.
    with torch.inference_mode(False):
        mask = make(**arguments)
        aligned = isinstance(query_offset, int) and query_offset - key_offset == keys - queries
        window = _window_of(function) if aligned and not arguments.get("use_vmap") else None
        if mask is not None and window is not None:
            note_form(mask, MaskForm(window, _padding(padding, keys, key_offset)))
    return mask


def _padding(attention_mask: Tensor | None, kv_length: int, kv_offset: int) -> Tensor | None:
    padding = theirs.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is None:
        return None
    padding = padding[:, kv_offset : kv_offset + kv_length].bool()
    return None if padding.all() else padding


def _window_of(function: Callable) -> tuple[int, int] | None:
    """(left, right) where the function of a mask says a window and nothing else; None where it may say more."""
    if function is theirs.causal_mask_function:
        return -1, 0
    if function is theirs.bidirectional_mask_function:
        return -1, -1
    if getattr(function, "__module__", None) != theirs.__name__:
        return None
    kind, _, inner = function.__qualname__.partition(".")
    given = inspect.getclosurevars(function).nonlocals if inner else {}
    if kind == "sliding_window_overlay":  # key > query - size
        return given["sliding_window"] - 1, -1
    if kind == "sliding_window_bidirectional_overlay":  # |query - key| <= size
        return given["sliding_window"], given["sliding_window"]
    if kind == "and_masks":
        windows = [_window_of(part) for part in given["mask_functions"]]
        if None not in windows:
            left, right = (min((x for x in side if x >= 0), default=-1) for side in zip(*windows, strict=True))
            return left, right
    return None
