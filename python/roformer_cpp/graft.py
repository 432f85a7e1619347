"""Another position encoding in a model of transformers: `graft`, `ungraft`, `grafted`, `perplexity_by_position`.

    roformer_cpp.graft(model, "rerope", window=4096)

The hooks of `_patched/grafted.py` remove the model's rotation, or table by position, and note positions; attention is
that of `patch`, with the terms of an encoding.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import _checks
from .encoding import Encoding, combine_encodings, encoding
from .patch import Model, _imported, patch, unpatch

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_FAMILIES = ("bert", "gemma", "gemma3_text", "gpt_neox", "llama", "mistral", "modernbert", "qwen2", "qwen3")
# Names of methods that are keys of another encoding in the table.
_ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    "nope": ("none", {}),
    "self-extend": ("rerope", {"rule": "self-extend"}),
    "dca": ("rerope", {"rule": "dual-chunk"}),
    "log-n": ("rope", {"log_n": "position"}),
}
_SCALINGS = ("linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "hope", "clipped", "proportional")
_WITH_TRAINED_LENGTH = ("yarn", "longrope", "llama3", "hope")
_OF_HEADS = ("fope", "rope-mixed")  # with a rotation for each head
_ROTATING = ("rope", "rerope", "xpos")
_ROPE_KEYS = ("layout", "precision", "rotary_value", "trainable", "log_n", "rope_parameters")


def graft(
    model: Model,
    encoding: str | Encoding = "rope",
    *,
    layers: Iterable[int] | None = None,
    keep: bool = False,
    **keys: Any,
) -> Model:
    """Exchanges the position encoding of a model of transformers: another rotation of a trained model, or another
    encoding to train on.

    The model's rotation, or BERT's table by position, is removed, and attention is computed by
    ``roformer_cpp.attention`` with the terms of the encoding. Caches hold keys without rotation, so ``generate`` works,
    except with encodings that read the input of layers (``fox``, ``path``): they need ``use_cache=False``. The encoding
    becomes the module ``position_encoding`` of the model, and its parameters part of ``state_dict`` and of what
    ``save_pretrained`` writes. To load such a directory, graft the loaded model in the same way, and load the
    parameters named ``position_encoding.*`` from its file. Softcapped attention, ``output_attentions`` and caches of
    fixed size are refused; :func:`inspect` shows attention.

    Args:
        model: Llama, Mistral, Qwen2, Qwen3, Gemma, Gemma 3 (text), GPT-NeoX, ModernBERT or BERT. Changed in place.
            Grafting again changes the given layers, and leaves other layers as the last call did.
        encoding: a name of ``encodings()``; a scaling of rotations with its keys: ``linear``, ``ntk``, ``dynamic``,
            ``yarn``, ``longrope``, ``llama3``, ``proportional`` (p-RoPE), ``hope`` or ``clipped``; ``self-extend`` and
            ``dca`` (``rerope`` with that ``rule``), ``log-n`` (``rope`` with ``log_n="position"``), ``nope``
            (``none``); or an ``Encoding``. ``"rope"`` without keys is the model's own rotation.
        layers: the layers that get it, from 0 on. Default: all. Others keep their encoding.
        keep: whether the model's own encoding remains next to it, with other terms.
        **keys: of the encoding. Rotations have the model's ``rope_parameters`` and, as
            ``original_max_position_embeddings``, its ``max_position_embeddings``, if not given.

    Returns:
        `model`.

    Raises:
        TypeError: `model` is not a module.
        ValueError: a model of another family, a layer that it does not have, or an encoding that does not fit it.
        ImportError: transformers 5 is not installed.
    """
    helper = _imported("grafted")
    if not isinstance(encoding, (str, Encoding)):
        raise TypeError(f"[graft] encoding must be a name or an Encoding, got {type(encoding).__name__}")
    _checks.boolean("graft", "keep", keep)
    config = _config_of(model)
    modules = helper.attention_modules(model)
    is_list = isinstance(layers, Iterable) and not isinstance(layers, str)
    wanted = range(len(modules)) if layers is None else list(layers) if is_list else []
    for layer in wanted or [None]:
        is_integer = hasattr(layer, "__index__") and not isinstance(layer, bool)
        if not is_integer or not 0 <= operator.index(layer) < len(modules):
            got = _checks.shown(layers if layer is None else layer)
            raise ValueError(f"[graft] layers must be a list of integers from 0 to {len(modules) - 1}, got {got}")
    of_layer: dict[int, Encoding] = {}
    made: dict[str, Encoding] = {}
    name = _ALIASES.get(encoding, (encoding,))[0] if isinstance(encoding, str) else ""
    rotates = keep or name in (*_ROTATING, *_SCALINGS)
    for layer in range(len(modules)):
        before = vars(modules[layer]).get(helper.NAME)
        if layer not in wanted and before is not None:
            of_layer[layer] = before.encoding
            continue
        own = _own(config, layer)
        is_new = layer in wanted
        key = f"{is_new} {own if rotates or not is_new else ''}"  # layers of one kind share one encoding
        if key not in made:
            if is_new:
                made[key] = _made(config, modules, own, encoding, keep, keys)
            else:
                made[key] = _named(config, modules, own, "none" if own is None else "rope", {})
        of_layer[layer] = made[key]
    has_no_table = getattr(getattr(model, "position_encoding", None), "replaces_table", False)
    ungraft(model)
    grafted = helper.Grafted(dict.fromkeys(of_layer.values()))
    grafted.train(model.training)
    grafted.was_patched = getattr(config, "_attn_implementation", None) == "roformer"
    grafted.replaces_table = not keep and (len(set(wanted)) == len(modules) or has_no_table)
    like = next(model.parameters())
    model.position_encoding = grafted.to(like.device, like.dtype)
    patch(model)
    for part in model.modules():
        if type(part).__name__.endswith("RotaryEmbedding"):
            part.register_forward_hook(grafted.replace_rotation, with_kwargs=True)
        elif type(part).__name__ == "BertEmbeddings" and grafted.replaces_table:
            part.position_embeddings.register_forward_hook(grafted.replace_table)
    for layer, module in enumerate(modules):
        vars(module)[helper.NAME] = helper.GraftedLayer(grafted, of_layer[layer], layer)
        module.register_forward_pre_hook(vars(module)[helper.NAME].before, with_kwargs=True)
    return model


def ungraft(model: Model) -> Model:
    """Undoes every `graft` of `model`: it has its own position encoding and attention as before, and the module
    ``position_encoding`` is gone. Other models are unchanged.

    Raises:
        TypeError: `model` is not a module.
        ImportError: transformers 5 is not installed.
    """
    helper = _imported("grafted")
    if not isinstance(getattr(model, "position_encoding", None), helper.Grafted):
        return model
    for part in model.modules():
        vars(part).pop(helper.NAME, None)
        for hooks, options in (
            (part._forward_hooks, part._forward_hooks_with_kwargs),
            (part._forward_pre_hooks, part._forward_pre_hooks_with_kwargs),
        ):
            for number, hook in list(hooks.items()):
                if isinstance(getattr(hook, "__self__", None), (helper.Grafted, helper.GraftedLayer)):
                    hooks.pop(number)
                    options.pop(number, None)
    was_patched = model.position_encoding.was_patched
    del model.position_encoding
    return model if was_patched else unpatch(model)


@contextmanager
def grafted(model: Model, encoding: str | Encoding = "rope", **keys: Any) -> Iterator[Model]:
    """`graft` for the body of a ``with`` statement, and `ungraft` at its end.

    Raises:
        ValueError: also for a model that is grafted already, whose graft the end would undo.
    """
    if isinstance(getattr(model, "position_encoding", None), _imported("grafted").Grafted):
        raise ValueError("[graft] model must not be grafted yet, got one that is. Hint: ungraft(model)")
    graft(model, encoding, **keys)
    try:
        yield model
    finally:
        ungraft(model)


@torch.no_grad()
def perplexity_by_position(
    model: nn.Module,
    tokens: Tensor,
    *,
    grafts: Mapping[str, Mapping[str, Any] | str] | None = None,
    edges: Iterable[int] | None = None,
    chunk: int | None = 512,
) -> dict[str, list[float]]:
    """The perplexity of a causal model at ranges of positions, before and after grafts, in one reading per graft.

    Args:
        model: of transformers, with a language head; measured unchanged as ``"model"``, then grafted and ungrafted for
            each entry of `grafts`.
        tokens: int64 ``[T]`` or ``[B, T]``, without padding. Token 0 is read and not predicted.
        grafts: by the names of the result: an encoding's name, or the arguments of `graft` as a mapping.
        edges: ends of the ranges, rising. Default: ``max_position_embeddings`` and its doubles below T, then T.
        chunk: how many tokens a forward pass reads, with a cache. None: all, without one.

    Returns:
        ``"to"``: the edges; and for ``"model"`` and each graft the perplexity of the tokens from the edge before to
        below each edge.
    """
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64 or tokens.dim() not in (1, 2):
        got = f"{tokens.dtype} {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"[perplexity_by_position] tokens must be an int64 tensor [T] or [B, T], got {got}")
    if not isinstance(grafts, (Mapping, type(None))):
        raise TypeError(f"[perplexity_by_position] grafts must be a mapping by name, got {type(grafts).__name__}")
    if not getattr(model, "can_generate", bool)():
        raise TypeError(f"[perplexity_by_position] model must be a causal language model, got {type(model).__name__}")
    tokens = tokens[None] if tokens.dim() == 1 else tokens
    length = tokens.shape[1]
    if edges is None:
        edges = [model.config.max_position_embeddings]
        while edges[-1] * 2 < length:
            edges.append(edges[-1] * 2)
        edges = [edge for edge in edges if edge < length] + [length]
    edges = list(edges)
    if not edges or sorted(set(edges)) != edges or edges[0] < 2 or edges[-1] > length:
        raise ValueError(f"[perplexity_by_position] edges must rise from 2 to at most {length}, got {edges}")
    result: dict[str, list[float]] = {"to": edges, "model": _perplexities(model, tokens, edges, chunk)}
    for name, arguments in (grafts or {}).items():
        with grafted(model, **({"encoding": arguments} if isinstance(arguments, str) else arguments)):
            result[name] = _perplexities(model, tokens, edges, chunk)
    return result


def _perplexities(model: nn.Module, tokens: Tensor, edges: list[int], chunk: int | None) -> list[float]:
    losses, cache = [], None
    steps, cached = edges[-1] if chunk is None else chunk, chunk is not None
    for begin in range(0, edges[-1], steps):
        rows = tokens[:, begin : min(begin + steps, edges[-1])]
        out = model(rows, use_cache=cached, **({"past_key_values": cache} if cached else {}))
        cache = out.past_key_values if cached else None
        following = tokens[:, begin + 1 : begin + 1 + rows.shape[1]]
        logits = out.logits[:, : following.shape[1]].float()
        losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="none"))
        losses[-1] = losses[-1].view(len(tokens), -1)
    loss = torch.cat(losses, 1)[:, : edges[-1] - 1].double()  # of tokens 1, 2, ..
    begins = [0, *(edge - 1 for edge in edges[:-1])]
    return [loss[:, begin : edge - 1].mean().exp().item() for begin, edge in zip(begins, edges, strict=True)]


def _config_of(model: nn.Module) -> "PreTrainedConfig":
    if not isinstance(model, nn.Module):
        raise TypeError(f"[graft] model must be a torch.nn.Module, got {type(model).__name__}")
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in _FAMILIES:
        raise ValueError(
            f"[graft] model must be of transformers and one of {', '.join(_FAMILIES)}, got "
            f"{type(model).__name__ if kind is None else kind}"
        )
    if getattr(config, "add_cross_attention", False):
        raise ValueError("[graft] model must have self-attention alone, got add_cross_attention true")
    return config


def _own(config: "PreTrainedConfig", layer: int) -> dict[str, Any] | None:
    """The rotation of a layer as keys of ``rope``; None: a table by position."""
    parameters = getattr(config, "rope_parameters", None)
    if parameters is None:
        return None
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[layer] in parameters:
        parameters = parameters[kinds[layer]]
    return {"layout": "halves", "precision": "float32", "rope_parameters": dict(parameters)}


def _made(
    config: "PreTrainedConfig",
    modules: list[nn.Module],
    own: dict[str, Any] | None,
    given: str | Encoding,
    keep: bool,
    keys: dict[str, Any],
) -> Encoding:
    if isinstance(given, Encoding) and keys:
        raise ValueError(f"[graft] keys must come with the name of an encoding, got {next(iter(keys))}")
    new = given if isinstance(given, Encoding) else _named(config, modules, own, given, keys)
    outside = new.acts_on_input(in_layers=True)
    adds_alone = own is None and not keep and not new.changes_words and new.name in ("learned", "sinusoidal")
    if outside and not adds_alone:
        raise ValueError(
            f"[graft] encoding must act on attention alone, got {outside}, which changes the input of "
            f"{config.model_type}"
        )
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    if new.name in _OF_HEADS and key_heads != heads:
        raise ValueError(
            f"[graft] encoding must not rotate each head differently where heads share keys, got {new.name} with "
            f"{heads} heads and {key_heads} of keys"
        )
    made_for, is_causal = new.made_for, bool(getattr(modules[0], "is_causal", False))
    if made_for and (made_for == "causal") != is_causal:
        raise ValueError(f"[graft] encoding must fit the model's attention, got {new.name}, made for {made_for} models")
    if keep and own is not None:
        return combine_encodings([_named(config, modules, own, "rope", {}), new])
    return new


def _named(
    config: "PreTrainedConfig", modules: list[nn.Module], own: dict[str, Any] | None, name: str, keys: dict[str, Any]
) -> Encoding:
    heads = config.num_attention_heads
    shape = {
        "num_hidden_layers": len(modules),
        "num_attention_heads": heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "hidden_size": config.hidden_size,
        "max_position_embeddings": config.max_position_embeddings,
        "is_decoder": bool(getattr(modules[0], "is_causal", False)),
        "initializer_range": config.initializer_range,
    }
    name, more = _ALIASES.get(name, (name, {}))
    keys = more | keys
    if of_model := next((key for key in keys if key in shape), None):
        raise ValueError(f"[graft] {of_model} must be that of the model, {shape[of_model]}, got {keys[of_model]}")
    if name in _SCALINGS:
        parameters = {key: value for key, value in keys.items() if key not in _ROPE_KEYS}
        parameters["rope_type"] = name
        if name in _WITH_TRAINED_LENGTH:
            parameters.setdefault("original_max_position_embeddings", config.max_position_embeddings)
        for key in ("rope_theta", "partial_rotary_factor"):
            if own is not None and key in own["rope_parameters"]:
                parameters.setdefault(key, own["rope_parameters"][key])
        keys = {key: value for key, value in keys.items() if key in _ROPE_KEYS} | {"rope_parameters": parameters}
        name = "rope"
    if name in _ROTATING:
        keys = _merged(own or {}, keys)
    return encoding(name, **shape, **keys)


def _merged(own: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """The model's rotation keys, overridden by `keys`; keys of rope_parameters may also be given next to it, as
    in version 4."""
    given = dict(own) | keys
    twice = [key for key in ("rope_theta", "partial_rotary_factor") if key in keys and "rope_parameters" not in keys]
    if twice and "rope_parameters" in own:
        given["rope_parameters"] = own["rope_parameters"] | {key: given.pop(key) for key in twice}
    return given
