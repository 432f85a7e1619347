"""Models of transformers with attention by `roformer_cpp.attention`: `patch`, `unpatch`, `register_attention`.

    model = roformer_cpp.patch(AutoModel.from_pretrained(directory))

Families that take transformers' attention interface (BERT, ModernBERT, Llama, GPT-NeoX, Qwen, Gemma, ..) get another
function there (`_patched/interface.py`) and another maker of masks (`masks.py`). RoFormer, DeBERTa and MPNet compute
attention in separate modules, and T5 makes a matrix of its bias. These modules get another class, with another
`forward` or `compute_bias` (`roformer.py`, `deberta.py`, `mpnet.py`, `t5.py`), until `unpatch`. transformers is
imported when a function is called.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from . import _checks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Model = TypeVar("Model", bound=nn.Module)

# The modules of transformers with separate attention code, and the modules of _patched that replace it.
_FAMILIES = {
    "transformers.models.roformer.modeling_roformer": "roformer",
    "transformers.models.t5.modeling_t5": "t5",
    "transformers.models.mt5.modeling_mt5": "t5",
    "transformers.models.switch_transformers.modeling_switch_transformers": "t5",
    "transformers.models.deberta.modeling_deberta": "deberta",
    "transformers.models.deberta_v2.modeling_deberta_v2": "deberta",
    "transformers.models.mpnet.modeling_mpnet": "mpnet",
}
# The attribute of a patched model that keeps its implementation of before.
_BEFORE = "_attn_implementation_before_patch"


def register_attention() -> None:
    """Adds ``attn_implementation="roformer"`` to transformers.

    For the process; further calls change nothing. Afterwards ``from_pretrained(.., attn_implementation="roformer")``
    and ``model.set_attn_implementation("roformer")`` work for models that take transformers' attention interface.
    ``patch`` calls it, and replaces attention in RoFormer, T5, DeBERTa and MPNet too, which the interface does not
    reach: with the name alone these compute as transformers does.

    Raises:
        ImportError: transformers 5 is not installed.
    """
    interface = _imported("interface")
    _imported("signatures").check_signatures(interface.SIGNATURES)
    interface.register()


def patch(model: Model) -> Model:
    """Makes the models of transformers in `model` compute attention by `roformer_cpp.attention`.

    Outputs and gradients stay equal, to rounding. Parameters, their names, the configuration that ``save_pretrained``
    writes, caches and ``generate`` are unchanged. transformers computes what the kernel lacks, with one warning per
    reason: attention weights (``output_attentions=True``), logit softcapping, a device without kernels.
    Calls of fewer than 16 queries, as in a step of ``generate``, go to torch's attention, which is faster there; with
    attention sinks, to that of transformers. Dropout follows torch's generator, and drops other weights than
    transformers does for the same seed. The output of a query that may attend to no key, as padding before a causal
    text, is 0.

    Args:
        model: a model of transformers, or a module that contains some. RoFormer, T5, MT5, Switch Transformers,
            DeBERTa (v1 to v3), MPNet, and models that use transformers' attention interface. It is changed in place;
            patching again does nothing.

    Returns:
        `model`.

    Raises:
        TypeError: `model` is not a module.
        ValueError: none of its models is supported, or a version of transformers whose functions have arguments that
            are not known; the message names the class or the function.
        ImportError: transformers 5 is not installed.
    """
    models = list(_models("patch", model))
    if not models:
        raise ValueError(f"[patch] model must be a model of transformers, or contain one, got {type(model).__name__}")
    replacements = _replacements(model)
    own = {*replacements, *replacements.values()}
    modeling_of = _imported("masks").modeling_of
    supported = [m for m in models if modeling_of(type(m)) or any(type(part) in own for part in m.modules())]
    if not supported:
        raise ValueError(
            "[patch] model must take transformers' attention interface, or be a RoFormer, T5, MT5, Switch "
            f"Transformers, DeBERTa or MPNet, got {type(models[0]).__name__}"
        )
    register_attention()
    before = {id(m.config): vars(m)[_BEFORE] for m in models if _BEFORE in vars(m)}
    for m in supported:
        vars(m).setdefault(_BEFORE, before.get(id(m.config), m.config._attn_implementation))
    for m in supported:
        m.config._attn_implementation_internal = "roformer"  # of this model alone: the property sets sub-models' too
    for part in model.modules():
        if type(part) in replacements:
            part.__class__ = replacements[type(part)]
    return model


def unpatch(model: Model) -> Model:
    """Undoes `patch`: attention is computed as before. Other models are unchanged.

    Args:
        model: as for `patch`. It is changed in place.

    Returns:
        `model`.

    Raises:
        TypeError, ImportError: as for `patch`.
    """
    for m in _models("unpatch", model):
        if _BEFORE in vars(m):
            m.config._attn_implementation_internal = vars(m).pop(_BEFORE)
    originals = {new: old for old, new in _replacements(model).items()}
    for part in model.modules():
        if type(part) in originals:
            part.__class__ = originals[type(part)]
    return model


def _imported(name: str):
    rule, hint = "[patch] transformers 5 must be installed", ". Hint: pip install transformers"
    return _checks.needed(f"{__package__}._patched.{name}", rule, hint)


def _models(where: str, model: nn.Module) -> "Iterator[PreTrainedModel]":
    if not isinstance(model, nn.Module):
        raise TypeError(f"[{where}] model must be a torch.nn.Module, got {type(model).__name__}")
    base = _imported("interface").PreTrainedModel
    return (module for module in model.modules() if isinstance(module, base))


def _replacements(model: nn.Module) -> dict[type, type]:
    """Of the families in the model: the class with our attention for each that has its own."""
    found: dict[type, type] = {}
    for part in model.modules():
        for cls in type(part).__mro__:
            if cls.__module__ in _FAMILIES:
                family = _imported(_FAMILIES[cls.__module__])
                _imported("signatures").check_signatures(family.SIGNATURES)
                found |= family.REPLACEMENTS
    return found
