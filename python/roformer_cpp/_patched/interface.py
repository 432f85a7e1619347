"""transformers' attention interface, computed by `roformer_cpp.attention`: the implementation "roformer"."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, masking_utils  # noqa: F401
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..terms import Terms
from .attend import MIN_QUERIES, attend, missing, say_once
from .grafted import CALL
from .grafted import NAME as GRAFTED
from .masks import MaskForm, form_of_numbers, has_plain_eager, make_mask, modeling_of, noted_form, supports_sdpa

_CALL = ("module", "query", "key", "value", "attention_mask", "dropout", "scaling", "is_causal", "position_bias")
_MASK = ("batch_size", "q_length", "kv_length", "q_offset", "kv_offset", "mask_function", "attention_mask")
_PLACE = ("use_vmap", "device", "**kwargs")
SIGNATURES = {
    sdpa_attention_forward: [(*_CALL, "**kwargs"), (*_CALL, "cache", "**kwargs")],
    masking_utils.sdpa_mask: [(*_MASK, "local_size", "allow_is_causal_skip", "allow_is_bidirectional_skip", *_PLACE)],
    masking_utils.eager_mask: [(*_MASK, "dtype", "allow_is_bidirectional_skip", *_PLACE)],
}


def register() -> None:
    AttentionInterface.register("roformer", attention_forward)
    AttentionMaskInterface.register("roformer", make_mask)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | Terms | None = None,
    **kwargs,
) -> tuple[Tensor, Tensor | None]:
    """An attention function of transformers.

    Args:
        module: the attention module; its attribute is used if ``is_causal`` is None.
        query, key, value: ``[B, H, T, D]``, ``[B, Hk, S, D]`` and ``[B, Hk, S, Dv]``.
        attention_mask: bool ``[B or 1, H or 1, T, S]``, True where a query may attend; or numbers to add to the scores.
            None: causal if the module is, else all.
        dropout: of the weights.
        scaling: of the scores; default ``1/sqrt(D)``.
        position_bias: terms, from a patched T5; or numbers to add to the scores, ``[B or 1, H, T, S]``.
        **kwargs: ``s_aux``: a score per head, ``[H]``, of a key without a value. With ``output_attentions``,
            ``softcap`` and ``cache`` transformers computes the call; the others do not change the result.

    Returns:
        ``[B, T, H, Dv]``, and the weights where transformers computed them.
    """
    causal = bool(getattr(module, "is_causal", _causal_without_mask(module)) if is_causal is None else is_causal)
    causal = causal and query.shape[2] > 1
    q, k, v = (x.transpose(1, 2) if x.dim() == 4 else x for x in (query, key, value))
    form = _form(attention_mask, causal, q, k)
    eager = _eager_reason(module, kwargs)
    if (layer := vars(module).get(GRAFTED)) is not None:
        return layer.attend(module, q, k, v, form, scaling, dropout, eager, kwargs[CALL]).contiguous(), None
    reason = (
        eager
        or missing(q, k, v, dropout)
        or (kwargs.get("cache") is not None and "attention with a paged cache")
        or (form is None and "attention with a mask of another size")
        or (isinstance(position_bias, Tensor) and position_bias.dim() != 4 and "attention with a bias of another size")
    )
    if reason or query.shape[2] < MIN_QUERIES:
        if reason:
            say_once(module, reason)
        by = _by_eager if eager or kwargs.get("s_aux") is not None else sdpa_attention_forward
        if isinstance(position_bias, Terms):
            position_bias = _matrix(position_bias, query, key)
        if position_bias is not None:
            kwargs["position_bias"] = position_bias
        return by(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=causal, **kwargs
        )
    if attention_mask is None and causal and k.shape[1] > q.shape[1]:
        # An empty cache of fixed size: the keys after the queries are not filled yet.
        k, v = k[:, : q.shape[1]], v[:, : q.shape[1]]
        if isinstance(position_bias, Tensor):
            position_bias = position_bias[..., : q.shape[1]]
        elif position_bias is not None and position_bias.key_positions is not None:
            position_bias = replace(position_bias, key_positions=position_bias.key_positions[:, : q.shape[1]])
    terms = Terms(pair_bias=position_bias) if isinstance(position_bias, Tensor) else position_bias
    if form.added is not None:
        terms = _with_numbers(terms, form.added)
    if (sinks := kwargs.get("s_aux")) is not None:
        k, v, terms, form = _with_sinks(k, v, terms or Terms(), form, sinks, q.shape[1])
    # Contiguous, as transformers' own functions return it: some models view it in another shape.
    return attend(q, k, v, form, terms=terms, scale=scaling, dropout=dropout).contiguous(), None


def _with_numbers(terms: Terms | None, added: Tensor) -> Terms:
    """The numbers of a mask, ``[B or 1, H or 1, 1 or T, S]``, as a term."""
    terms = terms or Terms()
    if added.shape[2] == 1 and terms.pair_bias is None:
        return replace(terms, key_score=added[:, :, 0])
    return replace(terms, pair_bias=added if terms.pair_bias is None else terms.pair_bias + added)


def _with_sinks(
    k: Tensor, v: Tensor, terms: Terms, form: MaskForm, sinks: Tensor, queries: int
) -> tuple[Tensor, Tensor, Terms, MaskForm]:
    """Adds a first key of zeros whose score is the sink and which takes a share of the weights."""
    left, right = form.window
    keys, attend_to = k.shape[1], form.attend
    if left >= 0:  # the window would leave out the first key
        step_TS = torch.arange(keys, device=k.device) - torch.arange(keys - queries, keys, device=k.device)[:, None]
        open_TS = (step_TS >= -left) & ((step_TS <= right) if right >= 0 else True)
        padding = True if attend_to is None else attend_to[:, None, None] if attend_to.dim() == 2 else attend_to
        attend_to, left, right = open_TS & padding if padding is not True else open_TS[None, None], -1, -1
    if attend_to is not None:
        attend_to = nn.functional.pad(attend_to, (1, 0), value=True)
    score = sinks.reshape(1, -1, 1)
    others = terms.key_score if terms.key_score is not None else score.new_zeros(1, 1, keys)
    others = others.expand(-1, score.shape[1], -1)
    terms = replace(terms, key_score=torch.cat([score.expand(len(others), -1, -1), others], dim=-1))
    if terms.pair_bias is not None:
        terms = replace(terms, pair_bias=nn.functional.pad(terms.pair_bias, (1, 0)))
    k, v = (nn.functional.pad(x, (0, 0, 0, 0, 1, 0)) for x in (k, v))
    return k, v, terms, MaskForm((left, right), attend_to)


def _causal_without_mask(module: nn.Module) -> bool:
    """Whether a module without ``is_causal`` is causal without a mask; eager attention attends to all keys."""
    modeling = modeling_of(type(module))
    return modeling is None or supports_sdpa(modeling)


def _form(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> MaskForm | None:
    """None: a mask of another size."""
    if mask is None:
        return MaskForm((-1, 0) if causal else (-1, -1))
    if mask.dim() != 4 or mask.shape[2] not in (1, q.shape[1]) or mask.shape[3] != k.shape[1]:
        return None
    return noted_form(mask) or (MaskForm(attend=mask) if mask.dtype == torch.bool else form_of_numbers(mask))


def _eager_reason(module: nn.Module, kwargs: dict) -> str | None:
    """A feature that only the model's own function computes; None: torch's attention computes the same."""
    config = getattr(module, "config", None)
    if kwargs.get("output_attentions") or getattr(config, "output_attentions", False):
        return "attention whose weights are returned"
    if kwargs.get("softcap") is not None:
        return "attention with logit softcapping"
    if kwargs.get("s_aux") is not None:
        return None
    modeling = modeling_of(type(module))
    plain = modeling is None or supports_sdpa(modeling) or "softcap" in kwargs or has_plain_eager(modeling)
    if not plain:
        return "attention that torch's function does not compute"
    return None


def _by_eager(module, query, key, value, attention_mask, *, scaling, is_causal, **kwargs):
    """The function in the file of the model, with the weights; it takes a mask of numbers."""
    eager = getattr(modeling_of(type(module)), "eager_attention_forward", None)
    if eager is None:
        raise ValueError(f"[patch] a model must have a function for eager attention, got {type(module).__name__}")
    if attention_mask is None and is_causal:
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()[
            None, None
        ]
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        lowest = torch.finfo(query.dtype).min
        attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, lowest)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return eager(module, query, key, value, attention_mask, scaling=scaling, **kwargs)


def _matrix(terms: Terms, query: Tensor, key: Tensor) -> Tensor:
    """The numbers that the bias of terms adds to the scores, ``[1, H, T, S]``."""
    if terms.bias is None:
        return query.new_zeros(1, query.shape[1], query.shape[2], key.shape[2])
    rows, lo, hi = terms.bias
    distance_TS = terms.positions[0, :, None] - terms.key_positions[0]
    return rows[:, distance_TS.clamp(lo, hi) - lo][None]
