"""Attention over terms; core/terms/rf/attention_terms.h has the equation, nn/include/rf/nn/attention.h its C++."""

import math
from types import NoneType
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from . import _checks, _torch  # noqa: F401 - it loads the operators
from ._deferred_terms import DeferredTerms, called_terms, lowered, terms_call
from ._operator_call import check_optional_tensors, check_tensors, check_values, operator_call
from ._whole_call import Call, whole_call
from .terms import Terms, check_terms, tokens_first

_GIVEN = ("positions", "key_positions", "mask", "cu_seqlens", "cu_seqlens_k", "prefix")  # tensors of a call
_MASK_HINT = "for a mask that is added to scores, 0 and -inf, give mask == 0; for one of 0 and 1, mask != 0"


class _Options(NamedTuple):
    """Of a call, apart from its tensors."""

    left: int
    right: int
    kernel: str
    dropout: float
    scale: float | None


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
) -> Tensor:
    """Softmax attention with any position encoding.

    Query i and key j are tokens. Which keys a query may attend to depends on tokens, never on positions: query ``i`` is
    aligned with key ``i + S - T`` (bottom-right). A query with no key has output 0 and gradient 0.

    Args:
        q: ``[B, T, H, D]``, or ``[B, H, T, D]`` with ``heads_first``; float32, float64, bfloat16 or float16, any
            strides.
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
        prefix: integers ``[B]``, or ``[sequences]`` with ``cu_seqlens``: every query of an entry may attend to its
            first so many keys, also to those after it. With ``is_causal`` it is the mask of prefix language models
            (UniLM, arXiv 1905.03197): tokens of the prefix see each other, later ones all that is before them. No array
            ``[T, S]`` is made. Not with a window that is limited to the left or not at all.
        kernel: ``"fused"``: a tiled kernel for float32, bfloat16 and float16 on the CPU, memory linear in T; no gate,
            first derivatives only. ``"explicit"``: torch operations, any dtype, derivatives of any order. ``"ref"``:
            float64 loops. ``"auto"``: fused where it can compute the call, else explicit.
        heads_first: whether ``q``, ``k``, ``v`` and the result have heads before tokens, as in
            ``torch.nn.functional.scaled_dot_product_attention``. Read and written through strides, without a copy.
        scale: of the scores, s in the equation, instead of ``1/sqrt(D)``. Not with terms that have one.
        dropout: probability with which each attention weight is dropped, from 0 to below 1; every call draws a seed
            from torch's default generator. Not with ``kernel="ref"``.

    Returns:
        ``[B, T, H, Dv]`` in the dtype of ``q``; with ``heads_first`` ``[B, H, T, Dv]``, a view. Gradients flow to
        ``q``, ``k``, ``v`` and every term.

    Raises:
        TypeError: an argument of another type; the message names it.
        ValueError: an argument outside the rules above, shapes, dtypes and devices that do not match, terms that were
            made for other positions, or a call that the kernel cannot compute; the message names the rule and the
            value. Compiled and exported code does not compare the values of positions.
        NotImplementedError: second derivatives of ``"fused"`` or ``"ref"``, or forward-mode differentiation.
    """
    given = (positions, key_positions, mask, cu_seqlens, cu_seqlens_k, prefix)
    tensors = dict(zip(_GIVEN, given, strict=True))
    check_tensors("attention", q=q, k=k, v=v)
    check_optional_tensors("attention", **tensors)
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
    ends = None if cu_seqlens is None else (cu_seqlens, cu_seqlens if cu_seqlens_k is None else cu_seqlens_k)
    for each in ends or ():
        if each.dim() != 1 or each.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"[attention] cu_seqlens must be int32 or int64 [sequences + 1], got {each.dtype} {list(each.shape)}"
            )
    tensors["mask"] = _mask(mask)
    seed, options = _seed(dropout), _Options(left, right, kernel, dropout, scale)
    if torch.compiler.is_compiling() and (isinstance(terms, DeferredTerms) or seed is not None):
        out = _whole(*lowered(q, k, v), terms, tensors | {"seed": seed}, options)
    else:
        out = _attend(q, k, v, terms, tensors, options, 0 if seed is None else int(seed))
    return out.transpose(1, 2) if heads_first else out


def _attend(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms | None, given: dict[str, Tensor | None], options: _Options, seed: int
) -> Tensor:
    terms = _scaled(Terms() if terms is None else terms, options.scale)
    positions, key_positions = given["positions"], given["key_positions"]
    mask, ends, key_ends, prefix = (given[name] for name in ("mask", "cu_seqlens", "cu_seqlens_k", "prefix"))
    if positions is None and key_positions is None:
        positions, key_positions = terms.positions, terms.key_positions
    sequences = 1 if ends is None else len(ends) - 1
    is_causal = options.right == 0 and prefix is None
    check_terms("attention", terms, q, sequences, has_mask=mask is not None, is_causal=is_causal)
    both = None if ends is None else (ends, ends if key_ends is None else key_ends)
    left, right, kernel, dropout, _ = options
    places = *_positions(q, k, positions, key_positions, both), mask, left, right, ends, key_ends
    operator = torch.ops.roformer.attention.default
    return operator_call("attention", operator, q, k, v, *terms.arguments(), *places, kernel, dropout, seed, prefix)


def _whole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms | DeferredTerms | None,
    given: dict[str, Tensor | None],
    options: _Options,
) -> Tensor:
    words, groups, numbers, reals = terms_call(terms)
    left, right, kernel, dropout, scale = options
    reals = [dropout, math.nan if scale is None else scale, *reals]
    call = Call([kernel, *words], {"q": q, "k": k, "v": v} | given | groups, [left, right, *numbers], reals)
    return _operator(*call.flat())[0]


def _compute(call: Call) -> list[Tensor]:
    words, groups, numbers, reals = call
    terms = called_terms(Call(words[1:], groups, numbers[2:], reals[2:]))
    options = _Options(numbers[0], numbers[1], words[0], reals[0], None if math.isnan(reals[1]) else reals[1])
    seed = int(call.one("seed")) if "seed" in groups else 0
    qkv = (call.one(name) for name in ("q", "k", "v"))
    return [_attend(*qkv, terms, {name: call.one(name) for name in _GIVEN}, options, seed)]


def _shapes(call: Call) -> list[Tensor]:
    q, v = call.one("q"), call.one("v")
    return [q.new_empty(*q.shape[:3], v.shape[3])]


_operator = whole_call("attention", _compute, _shapes)


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


def _positions(
    q: Tensor, k: Tensor, positions: Tensor | None, key_positions: Tensor | None, ends: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    queries, keys = q.shape[1], k.shape[1]
    if positions is None:
        if key_positions is not None:
            raise ValueError("[attention] positions must come with key_positions, got key_positions alone")
        return default_positions(queries, keys, ends, q.device)
    if key_positions is None:
        if queries != keys:
            raise ValueError(
                f"[attention] key_positions must be given when there are not as many keys as queries, got {keys} keys "
                f"and {queries} queries"
            )
        key_positions = positions
    return positions, key_positions


def default_positions(
    queries: int, keys: int, ends: tuple[Tensor, Tensor] | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """For every sequence: its keys from 0 on, its queries aligned with the last keys.

    Args:
        queries, keys: how many.
        ends: ``cu_seqlens`` of both. ``None``: one sequence.
        device: of the result.
    """
    query_tokens, key_tokens = torch.arange(queries, device=device), torch.arange(keys, device=device)
    if ends is None:
        return (key_tokens if queries == keys else query_tokens + (keys - queries)), key_tokens
    query_ends, key_ends = ends
    if not torch.compiler.is_compiling() and not _ends_fit(query_ends, key_ends, queries, keys):
        return query_tokens, key_tokens  # the operator refuses the ends
    query_ends, key_ends = query_ends.long(), key_ends.long()
    query_lengths, key_lengths = query_ends.diff(), key_ends.diff()

    def of_tokens(numbers: Tensor, lengths: Tensor, tokens: int) -> Tensor:
        return torch.repeat_interleave(numbers, lengths, output_size=tokens)

    first_query = key_lengths - query_lengths
    query_positions = query_tokens - of_tokens(query_ends[:-1] - first_query, query_lengths, queries)
    return query_positions, key_tokens - of_tokens(key_ends[:-1], key_lengths, keys)


def sequences_of(ends: Tensor | None, x: Tensor, mask: Tensor | None) -> Tensor | None:
    """The number of the sequence of each token of ``x`` [B, T, C], ``[1 or B, T]``.

    From ``cu_seqlens``, or a mask of keys, which hides keys of sequence -1. ``None``: neither, or a mask that does not
    fit or differs between queries, which attention refuses if terms depend on it.
    """
    tokens = x.size(1)
    if isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[1:3] == (1, 1):
        mask = mask[:, 0, 0].expand(x.size(0) if mask.size(0) == 1 else -1, -1)
    if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == x.shape[:2]:
        return mask.long() - 1
    if not isinstance(ends, Tensor) or ends.dim() != 1 or ends.is_floating_point():
        return None
    if not torch.compiler.is_compiling() and not _ends_fit(ends, ends, tokens, tokens):
        return None
    numbers = torch.arange(len(ends) - 1, device=ends.device)
    return torch.repeat_interleave(numbers, ends.long().diff(), output_size=tokens).unsqueeze(0)


def _ends_fit(query_ends: Tensor, key_ends: Tensor, queries: int, keys: int) -> bool:
    if len(query_ends) != len(key_ends) or len(query_ends) == 0:
        return False
    return all(
        ends[0] == 0 and ends[-1] == tokens and bool((ends.diff() >= 0).all())
        for ends, tokens in ((query_ends, queries), (key_ends, keys))
    )
