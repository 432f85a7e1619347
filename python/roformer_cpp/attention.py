"""Attention over terms; core/terms/rf/attention_terms.h has the equation, nn/include/rf/nn/attention.h its C++."""

import math
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Literal

import torch
from torch import Tensor

from . import _checks, _jagged, _torch  # noqa: F401 - it loads the operators
from ._deferred_terms import DeferredTerms, attention_shapes, called_terms, lowered, terms_call
from ._operator_call import check_tensors, check_values, operator_call
from ._packed_sequences import check_cu_seqlens, default_positions
from ._whole_call import Call, whole_call
from .terms import Terms, check_terms, tokens_first

_MASK_HINT = "for a mask that is added to scores, 0 and -inf, give mask == 0; for one of 0 and 1, mask != 0"


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms | None = None,
    *,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    is_causal: bool = False,
    window: int | tuple[int, int] | None = None,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    prefix: Tensor | None = None,
    kernel: Literal["auto", "fused", "explicit", "ref"] = "auto",
    heads_first: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention with any position encoding.

    Query i and key j are tokens. Which keys a query may attend to depends on tokens, never on positions: query ``i`` is
    aligned with key ``i + S - T`` (bottom-right). A query with no key has output 0 and gradient 0.

    Args:
        q: ``[B, T, H, D]``, or ``[B, H, T, D]`` with ``heads_first``; float32, float64, bfloat16 or float16, any
            strides. All three may be nested tensors with ``layout=torch.jagged``: a query then attends within its row,
            and the result is jagged too. Terms are made for the positions of all tokens, one row after another.
        k: ``[B, S, Hk, D]``, H a multiple of Hk: each key head serves H / Hk query heads. With ``heads_first``
            ``[B, Hk, S, D]``.
        v: ``[B, S, Hk, Dv]``; with ``heads_first`` ``[B, Hk, S, Dv]``.
        terms: the position encoding, for example ``encoding(..).terms(positions)``, with the same shapes with and
            without ``heads_first``. Default: none.
        positions: of the queries, integers ``[T]`` or ``[B, T]``; they must equal the positions of the terms, if
            the terms have any. Default: the positions of the terms, or 0, 1, .. for the keys and the positions of the
            last T keys for the queries; each packed sequence starts again.
        key_positions: of the keys, ``[S]`` or ``[B, S]``. Default: ``positions``.
        is_causal: a query may attend to keys up to its own token only.
        window: how many tokens to either side (with ``is_causal``, back) a query may attend to; ``(left, right)`` for
            different sides, -1 for no limit.
        mask: bool, True where a query may attend to a key: four dimensions that broadcast to ``[B, H, T, S]``, or
            ``[B, S]`` for keys. In addition to ``is_causal`` and ``window``. Not a mask of numbers: give ``mask == 0``
            for one that is added to scores (0 and -inf), ``mask != 0`` for one of 0 and 1. Terms that depend on the
            length must be made with ``sequences``.
        cu_seqlens: packed sequences: int32 or int64 ``[sequences + 1]``, rising from 0 to T; with B = 1, sequence i is
            tokens ``cu_seqlens[i]`` to ``cu_seqlens[i + 1] - 1``. Not with ``mask``.
        cu_seqlens_k: the same for the keys. Default: ``cu_seqlens``.
        prefix: integers ``[B]``, or ``[sequences]`` with ``cu_seqlens``: every query of an entry may attend to this
            number of its first keys, also to keys after it. With ``is_causal`` it is the mask of prefix language models
            (UniLM, arXiv 1905.03197): tokens of the prefix see each other, and later tokens see all tokens before them.
            No array ``[T, S]`` is made. Only with a window that is limited on the right side alone, as with
            ``is_causal``.
        kernel: ``"fused"``: a tiled kernel for float32, bfloat16 and float16, on CPUs and, with Triton, on GPUs; memory
            linear in T, first derivatives only. ``"explicit"``: torch operations, any dtype, derivatives of any order.
            ``"ref"``: float64 loops. ``"auto"``: fused where it can compute the call, else explicit.
        heads_first: whether ``q``, ``k``, ``v`` and the result have heads before tokens, as in
            ``torch.nn.functional.scaled_dot_product_attention``. Read and written through strides, without a copy.
        scale: of the scores, s in the equation, instead of ``1/sqrt(D)``. Not with terms that have one.
        dropout: probability with which each attention weight is dropped, from 0 to below 1; every call draws a seed
            from torch's default generator. Not with ``kernel="ref"``.
        return_weights: whether to return the attention weights too, by the explicit kernel, in memory ``T x S`` for
            each head. Not with dropout, nor in compiled code.

    Returns:
        ``[B, T, H, Dv]`` in the dtype of ``q``; with ``heads_first`` ``[B, H, T, Dv]``, a view. Gradients flow to
        ``q``, ``k``, ``v`` and every term. With ``return_weights``: a tuple of it and the weights, ``[B, H, T, S]``.

    Raises:
        TypeError: an argument of another type; the message names it.
        ValueError: an argument outside the rules above, shapes, dtypes and devices that do not match, terms that were
            made for other positions, or a call that the kernel cannot compute; the message names the rule and the
            value. Compiled and exported code does not compare the values of positions.
        NotImplementedError: second derivatives of ``"fused"`` or ``"ref"``, or forward-mode differentiation.
    """
    tensors = dict(positions=positions, key_positions=key_positions, mask=mask, prefix=prefix)
    tensors |= dict(cu_seqlens=cu_seqlens, cu_seqlens_k=cu_seqlens_k)
    if any(map(_jagged.is_jagged, (q, k, v))):
        options = dict(terms=terms, is_causal=is_causal, window=window, kernel=kernel, scale=scale, dropout=dropout)
        given = tensors | options | {"return_weights": return_weights}
        return _jagged.attention_of_rows(attention, {"q": q, "k": k, "v": v}, heads_first, given)
    if return_weights:
        options = tensors | dict(is_causal=is_causal, window=window, scale=scale, dropout=dropout)
        own = "explicit" if kernel == "auto" else kernel
        out = attention(q, k, v, terms, kernel=own, heads_first=heads_first, **options)
        if heads_first:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        return out, weights(q, k, terms, **options)
    check_tensors("attention", tensors, q=q, k=k, v=v)
    check_values("attention", cu_seqlens=cu_seqlens, cu_seqlens_k=cu_seqlens_k)
    if not isinstance(terms, (Terms, DeferredTerms, NoneType)):
        raise TypeError(
            f"[attention] terms must be Terms, as encoding(..).terms(positions) gives, got {type(terms).__name__}"
        )
    if heads_first:
        q, k, v = tokens_first("attention", q, k, v)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise ValueError(f"[attention] {name} must be [batch, tokens, heads, head_dim], got {list(x.shape)}")
    if isinstance(terms, DeferredTerms) and not torch.compiler.is_compiling():
        terms = terms.made()
    left, right = _window(window, is_causal)
    if prefix is not None and (left != -1 or right == -1):
        raise ValueError(
            f"[attention] prefix needs is_causal, or a window that is limited on the right alone, got {(left, right)}"
        )
    if cu_seqlens is None and cu_seqlens_k is not None:
        raise ValueError("[attention] cu_seqlens_k must come with cu_seqlens, got cu_seqlens_k alone")
    check_cu_seqlens("attention", cu_seqlens, cu_seqlens_k)
    tensors["mask"] = _mask(mask)
    tensors["cu_seqlens_k"] = cu_seqlens if cu_seqlens_k is None else cu_seqlens_k
    tensors["seed"] = _seed(dropout)
    out = attend((q, k, v), terms, tensors, (left, right), kernel, dropout, scale)
    return out.transpose(1, 2) if heads_first else out


def weights(q: Tensor, k: Tensor, terms: Terms | None, *, dropout: float = 0.0, **options: object) -> Tensor:
    """The weights, ``[B, H, T, S]``: attention to the keys' unit vectors, without terms of values."""
    if dropout or torch.compiler.is_compiling():
        got = f"a dropout of {dropout}" if dropout else "torch.compile"
        raise ValueError(f"[attention] return_weights must be without dropout and outside of compiled code, got {got}")
    if isinstance(terms, DeferredTerms):
        terms = terms.made()
    terms = None if terms is None else terms.of_scores()
    return attention(q, k, unit_values(k), terms, kernel="explicit", **options).transpose(1, 2)


def unit_values(k: Tensor) -> Tensor:
    """A unit vector for each key: their weighted sum is the weights."""
    return torch.eye(k.shape[1], dtype=k.dtype, device=k.device)[None, :, None].expand(len(k), -1, k.shape[2], -1)


def attend(
    qkv: Sequence[Tensor],
    terms: Terms | DeferredTerms | None,
    tensors: dict[str, Tensor | None],
    sides: tuple[int, int],
    kernel: str = "auto",
    dropout: float = 0.0,
    scale: float | None = None,
    stream: int = 0,
) -> Tensor:
    """``attention`` of checked arguments, tokens first.

    Args:
        tensors: by name; also ``seed``, of dropout, and ``packed``, int64 ``[B, S]``: sequences of packed rows, -1 for
            padding.
        sides: the window.
        stream: of the seed.
    """
    is_whole = torch.compiler.is_compiling() and (isinstance(terms, DeferredTerms) or tensors.get("seed") is not None)
    q, k, v = lowered(*qkv) if is_whole else qkv
    reals = [dropout, math.nan if is_whole and scale is None else scale]
    call = Call([kernel], {"q": q, "k": k, "v": v} | tensors, [*sides, stream], reals)
    if is_whole:
        return _operator(*call.with_part(terms_call(terms)).flat())[0]
    return _attend(Terms() if terms is None else terms, call)


_observers: list[Callable[[Tensor, Tensor, Terms, tuple, Tensor | None], None]] = []  # of roformer_cpp.inspect


def _attend(terms: Terms, call: Call) -> Tensor:
    kernel, (left, right, stream, *_), (dropout, scale, *_) = call.words[0], call.numbers, call.reals
    q, k, v, mask, prefix, seed = map(call.one, ("q", "k", "v", "mask", "prefix", "seed"))
    cu_seqlens, cu_seqlens_k = call.one("cu_seqlens"), call.one("cu_seqlens_k")
    positions, key_positions = call.one("positions"), call.one("key_positions")
    terms = _scaled(terms, scale)
    if positions is None and key_positions is None:
        positions, key_positions = terms.positions, terms.key_positions
    if positions is None and key_positions is None:
        positions, key_positions = default_positions(q.shape[1], k.shape[1], cu_seqlens, cu_seqlens_k, q.device)
    count = 1 if cu_seqlens is None else len(cu_seqlens) - 1
    is_causal = prefix is None and (right == 0 or _is_causal_mask(mask, terms, q.shape[1], k.shape[1]))
    check_terms("attention", terms, q, count, has_mask=mask is not None, is_causal=is_causal)
    where = *_positions(q, k, positions, key_positions), mask, left, right, cu_seqlens, cu_seqlens_k
    for observe in () if torch.compiler.is_compiling() else tuple(_observers):
        observe(q, k, terms, where, prefix)
    draws = dropout, 0 if seed is None else int(seed)
    operator = torch.ops.roformer.attention.default
    arguments = *terms.arguments(), *where, kernel, *draws, prefix, call.one("packed"), stream
    return operator_call("attention", operator, q, k, v, *arguments)


def _compute(call: Call) -> list[Tensor]:
    dropout, scale, *_ = call.reals
    own = call._replace(reals=[dropout, None if math.isnan(scale) else scale])
    return [_attend(called_terms(call.part(1, 3, 2)), own)]


_operator = whole_call("attention", _compute, attention_shapes)


def _seed(dropout: float) -> Tensor | None:
    if not isinstance(dropout, (int, float)) or isinstance(dropout, bool):
        raise TypeError(f"[attention] dropout must be a number, got {type(dropout).__name__}")
    if not 0 <= dropout < 1:
        raise ValueError(f"[attention] dropout must be from 0 to below 1, got {dropout}")
    return torch.randint(2**63 - 1, ()) if dropout > 0 else None


def _scaled(terms: Terms, scale: float | None) -> Terms:
    if scale is None:
        return terms
    if terms.scale is not None:
        raise ValueError(f"[attention] scale must be given once, got {scale} and the terms' {terms.scale}")
    return terms.with_scale(scale)


def _window(window: int | tuple[int, int] | None, is_causal: bool) -> tuple[int, int]:
    if not isinstance(is_causal, bool):
        raise TypeError(f"[attention] is_causal must be True or False, got {_checks.shown(is_causal)}")
    sides = (-1, -1) if window is None else tuple(window) if isinstance(window, (tuple, list)) else (window, window)
    lowest = 0 if isinstance(window, int) else -1
    if len(sides) != 2 or not all(isinstance(side, int) and side >= lowest for side in sides):
        raise ValueError(
            f"[attention] window must be a number >= 0 or (left, right) with -1 for no limit, got "
            f"{_checks.shown(window)}"
        )
    return sides[0], 0 if is_causal else sides[1]


def _mask(mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.dim() not in (2, 4):
        raise ValueError(
            "[attention] mask must be bool, [B, S] or four dimensions that broadcast to [B, H, T, S], "
            f"got {mask.dtype} {list(mask.shape)}" + ("" if mask.dtype == torch.bool else f". Hint: {_MASK_HINT}")
        )
    return mask[:, None, None, :] if mask.dim() == 2 else mask


def _is_causal_mask(mask: Tensor | None, terms: Terms, queries: int, keys: int) -> bool:
    """Whether a mask hides all later keys; asked only for terms that need it, because every element is read."""
    if mask is None or terms._origin is None or terms._origin.made_for != "causal" or torch.compiler.is_compiling():
        return False
    return not mask.expand(-1, -1, queries, keys).triu(keys - queries + 1).any()


def _positions(q: Tensor, k: Tensor, positions: Tensor | None, key_positions: Tensor | None) -> tuple[Tensor, Tensor]:
    queries, keys = q.shape[1], k.shape[1]
    if positions is None:
        raise ValueError("[attention] positions must come with key_positions, got key_positions alone")
    if key_positions is None and queries != keys:
        raise ValueError(
            f"[attention] key_positions must be given when there are not as many keys as queries, got {keys} keys "
            f"and {queries} queries"
        )
    return positions, positions if key_positions is None else key_positions
