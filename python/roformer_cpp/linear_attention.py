"""Linear attention (arXiv 2104.09864 Eq. 18-19); the C++ side is nn/src/linear_attention.cpp."""

from dataclasses import dataclass, field
from types import NoneType
from typing import Literal

import torch
from torch import Tensor, nn

from . import _checks, _torch  # noqa: F401 - it loads the operators
from ._deferred_terms import DeferredTerms, attention_shapes, called_terms, terms_call
from ._operator_call import check_tensors, check_values, is_transformed, operator_call
from ._options import options_json
from ._packed_sequences import check_cu_seqlens, fits, sequence_ids
from ._whole_call import Call, whole_call
from .terms import Terms, check_terms, shape_text, tokens_first

_DRAWN = ("favor", "relu")
Kernel = Literal["auto", "fused", "explicit", "ref"]


@dataclass(repr=False)
class LinearAttentionState:
    """The sums over the keys so far, for causal use token by token; its size does not depend on their number.

    ``tensors`` is empty before the first key, and then ``sum`` ``[B, H, F, Dv]``, ``norm`` ``[B, H, F, 1]`` and, for
    ``shen`` and ``favor``, ``maximum`` ``[B, H]``; float64 where the fused kernel added them.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        texts = ", ".join(f"{name}={shape_text(x)}" for name, x in self.tensors.items())
        return f"LinearAttentionState({texts or 'no key yet'})"


def orthogonal_features(
    num_features: int,
    head_dim: int,
    seed: int,
    *,
    layer: int = 0,
    redraw: int = 0,
    orthogonal: bool = True,
    scaling: int = 0,
) -> Tensor:
    """Random vectors for the feature maps ``favor`` and ``relu``, float64 ``[num_features, head_dim]``.

    Args:
        num_features: m.
        head_dim: D.
        seed, layer, redraw: the draw depends only on them and the sizes.
        orthogonal: orthogonal in blocks of D rows; false: all independent.
        scaling: lengths of orthogonal rows, 0 as of Gaussian vectors, 1 all ``sqrt(D)``.
    """
    for name, size in (("num_features", num_features), ("head_dim", head_dim), ("seed", seed)):
        _checks.integer("linear_attention", name, size)
    return torch.ops.roformer.draw_features(num_features, head_dim, orthogonal, scaling, seed, layer, redraw)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms | DeferredTerms | None,
    options: str,
    feature_map: str,
    projection: Tensor | None,
    *,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state: LinearAttentionState | None = None,
    kernel: Kernel = "auto",
    heads_first: bool = False,
    scale: float | None = None,
    sequences: Tensor | None = None,
) -> Tensor:
    """``linear_attention`` with its options as JSON; sequences: packed rows in place of ``cu_seqlens``."""
    check_tensors("linear_attention", {"key_mask": key_mask, "cu_seqlens": cu_seqlens}, q=q, k=k, v=v)
    check_values("linear_attention", cu_seqlens=cu_seqlens)
    terms = _scaled(terms, scale, feature_map)
    q, k, v = tokens_first("linear_attention", q, k, v) if heads_first else (q, k, v)
    tensors = {"q": q, "k": k, "v": v, "projection": projection, "key_mask": key_mask}
    tensors["sequence_ids"] = sequences if cu_seqlens is None else _sequence_ids(cu_seqlens, k)
    call = Call([options, "explicit" if kernel == "auto" and is_transformed() else kernel], tensors)
    if torch.compiler.is_compiling() and state is None and isinstance(terms, DeferredTerms):
        out = _operator(*call._replace(numbers=[int(is_causal)]).with_part(terms_call(terms)).flat())[0]
    else:
        terms = terms.made() if isinstance(terms, DeferredTerms) else terms
        out = _computed(Terms() if terms is None else terms, is_causal, call, state)
    return out.transpose(1, 2) if heads_first else out


def _computed(terms: Terms, is_causal: bool, call: Call, state: LinearAttentionState | None = None) -> Tensor:
    options, kernel, *_ = call.words
    q, k, v, projection, key_mask, ids = map(call.one, ("q", "k", "v", "projection", "key_mask", "sequence_ids"))
    count = 1 if ids is None or ids.numel() == 0 else int(ids.max()) + 1
    check_terms("linear_attention", terms, q, count, has_mask=key_mask is not None)
    where = is_causal, key_mask, ids, None if state is None else list(state.tensors.values())
    arguments = *terms.arguments(), options, projection, *where, kernel
    operator = torch.ops.roformer.linear_attention.default
    out, after = operator_call("linear_attention", operator, q, k, v, *arguments)
    if state is not None:
        state.tensors = dict(zip(("sum", "norm", "maximum"), after, strict=False))
    return out


def _compute(call: Call) -> list[Tensor]:
    return [_computed(called_terms(call.part(2, 1, 0)), bool(call.numbers[0]), call)]


_operator = whole_call("linear_attention", _compute, attention_shapes)


def _sequence_ids(cu_seqlens: Tensor, k: Tensor) -> Tensor:
    check_cu_seqlens("linear_attention", cu_seqlens)
    if not fits(cu_seqlens, k.size(1)):
        raise ValueError(
            f"[linear_attention] cu_seqlens must rise from 0 to the {k.size(1)} keys, got "
            f"{_checks.shown(cu_seqlens.tolist())}"
        )
    if k.size(0) != 1:
        raise ValueError(f"[linear_attention] packed sequences must have batch size 1, got {k.size(0)}")
    return sequence_ids(cu_seqlens, k.size(1))


def _scaled(terms: Terms | None, scale: float | None, feature_map: str) -> Terms | None:
    if not isinstance(terms, (Terms, DeferredTerms, NoneType)):
        raise TypeError(
            "[linear_attention] terms must be Terms, as encoding(..).terms(positions) gives, got "
            f"{type(terms).__name__}"
        )
    if scale is None:
        return terms
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"[linear_attention] scale must be a number, got {type(scale).__name__}")
    if isinstance(terms, DeferredTerms):
        raise ValueError(
            f"[linear_attention] scale must not be given with an encoding's terms in compiled code, got {scale}"
        )
    if feature_map not in _DRAWN or not 0 < scale < float("inf"):
        raise ValueError(
            "[linear_attention] scale must be a number > 0 and go with feature_map favor or relu, got "
            f"{scale} with {feature_map}"
        )
    if terms is not None and terms.scale is not None:
        raise ValueError(f"[linear_attention] scale must be given once, got {scale} and the terms' {terms.scale}")
    return (terms or Terms()).with_scale(scale)


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature_map: str = "elu",
    terms: Terms | None = None,
    *,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    rope_site: str | None = None,
    rotate_denominator: bool = False,
    eps: float = 0.0,
    feature_eps: float | None = None,
    projection: Tensor | None = None,
    state: LinearAttentionState | None = None,
    kernel: Kernel = "auto",
    heads_first: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention in time and memory linear in the number of tokens.

    ``out_m = sum_n (R_m f(q_m)).(R_n g(k_n)) v_n / (eps + sum_n f(q_m).g(k_n))`` with the rotation R at the place that
    ``rope_site`` names. A query whose denominator is 0, such as one without a key, has output 0 and gradient 0.

    Args:
        q: ``[B, T, H, D]``, or ``[B, H, T, D]`` with ``heads_first``; float32, float64, or bfloat16 and float16
            (computed in float32).
        k, v: ``[B, S, Hk, D]`` and ``[B, S, Hk, Dv]``, H a multiple of Hk; with ``heads_first`` ``[B, Hk, S, ..]``.
        feature_map: ``"elu"`` (elu(x) + 1), ``"shen_original"`` (bidirectional only), ``"shen"``, ``"favor"``,
            ``"relu"``, or ``"cosine"`` (1 + cos); nn/src/linear_attention_paths.h has the equations.
        terms: rotations of queries and keys, from ``roformer_cpp.encoding``. With ``rope_site="after_map"`` they rotate
            features: make the encoding with ``head_dim=linear_feature_dim(..)``.
        is_causal: query i attends to the keys up to ``i + S - T``.
        key_mask: bool ``[B, S]``; keys with False are left out of both sums.
        cu_seqlens: integers ``[sequences + 1]``, rising from 0 to S: packed sequences, with ``B = 1``.
        rope_site: ``"after_map"``, ``"before_map"`` or ``"none"``. Default: ``"before_map"`` for cosine, else
            ``"after_map"``.
        rotate_denominator: whether a rotation after the map is in both sums. The denominator may then be near 0.
        eps: added to the denominator; ``shen`` and ``favor`` have divided their exponentials by the largest one before.
        feature_eps: added to every feature of ``favor`` (default 1e-4) and ``relu`` (1e-3).
        projection: ``[m, D]`` for ``favor`` and ``relu``. Default: ``orthogonal_features`` with seed 0.
        state: earlier keys; it is changed to include the keys of this call. Causal, with ``T = S``.
        kernel: ``"fused"``: in chunks, for float32, bfloat16 and float16 on the CPU, first derivatives to q, k, v and
            ``projection``; neither causal ``shen`` and ``favor``, nor a state with tensors that require grad.
            ``"explicit"``: torch operations, any dtype, derivatives of any order. ``"ref"``: float64 loops over all
            pairs. ``"auto"``: fused where it can compute the call, else explicit.
        heads_first: whether ``q``, ``k``, ``v`` and the result have heads before tokens.
        scale: instead of ``1/sqrt(D)``, for feature maps that have it (favor and relu). Not with terms that have one.

    Returns:
        ``[B, T, H, Dv]`` in the dtype of ``q``; with ``heads_first`` ``[B, H, T, Dv]``, a view.

    Raises:
        ValueError: an argument outside these rules; the message names the rule and the value.
        NotImplementedError: second derivatives of ``"fused"`` or ``"ref"``, or forward-mode differentiation.
    """
    check_tensors("linear_attention", {"projection": projection}, q=q)
    if not isinstance(state, (LinearAttentionState, NoneType)):
        raise TypeError(f"[linear_attention] state must be a LinearAttentionState, got {type(state).__name__}")
    options = {"feature_map": feature_map, "rotate_denominator": rotate_denominator, "eps": eps}
    options |= {} if rope_site is None else {"rope_site": rope_site}
    options |= {} if feature_eps is None else {"feature_eps": feature_eps}
    if feature_map in _DRAWN and projection is None:
        num_features = linear_feature_dim(q.size(-1), feature_map=feature_map)
        projection = orthogonal_features(num_features, q.size(-1), seed=0).to(q.device)
    call = dict(is_causal=is_causal, key_mask=key_mask, cu_seqlens=cu_seqlens, state=state, kernel=kernel)
    given = options_json("linear_attention", options), feature_map, projection
    return _attend(q, k, v, terms, *given, **call, heads_first=heads_first, scale=scale)


def linear_feature_dim(head_dim: int, **options) -> int:
    """The ``head_dim`` of an encoding for these options of ``LinearAttention``: the size that is rotated."""
    if not isinstance(head_dim, int):
        raise TypeError(f"[linear_attention] head_dim must be an integer, got {type(head_dim).__name__}")
    return torch.ops.roformer.linear_attention_feature_dim(options_json("linear_attention", options), head_dim)


@torch.library.custom_op("roformer_python::drawn_vectors", mutates_args=("projection", "redraws", "calls"))
def _drawn_vectors(
    projection: Tensor, redraws: Tensor, calls: Tensor, options: str, head_dim: int, layer: int, redraw_every: int
) -> Tensor:
    """A copy of the vectors, drawn anew before a call whose number is a multiple of ``redraw_every``.

    One operator of a graph. It copies the vectors, because the next redraw overwrites them, possibly before the
    backward of this call; an operator keeps compilers from removing the copy.
    """
    number = int(calls)
    if number > 0 and redraw_every > 0 and number % redraw_every == 0:
        redraws.add_(1)
        projection.copy_(torch.ops.roformer.linear_attention_draws(options, head_dim, layer, int(redraws))[0])
    calls.add_(1)
    return projection.clone()


@_drawn_vectors.register_fake
def _(projection: Tensor, *_: object) -> Tensor:
    return torch.empty_like(projection)


class LinearAttention(nn.Module):
    """A layer's linear attention with its random vectors, drawn anew every ``redraw_every`` calls in training.

    Args:
        head_dim: D.
        layer: each layer has different draws.
        **options: ``feature_map``, ``rope_site``, ``rotate_denominator``, ``eps``; for ``favor`` and ``relu`` also
            ``num_features``, ``orthogonal``, ``orthogonal_scaling``, ``redraw_every`` (0: never), ``feature_eps``,
            ``seed``.

    The buffers ``projection``, ``redraws`` and ``calls`` are the whole state that a resumed run needs; feature
    maps other than ``favor`` and ``relu`` lack them.

    Raises:
        ValueError: an option that is not known, or a value out of range; the message names it.
    """

    def __init__(self, head_dim: int, layer: int = 0, **options):
        super().__init__()
        self._json = options_json("linear_attention", options)
        self._feature_map = options.get("feature_map", "elu")
        self._options = {"head_dim": head_dim, "layer": layer} | options
        projection, self._redraw_every = torch.ops.roformer.linear_attention_draws(*self._drawn_of, 0)
        if len(projection):
            self.register_buffer("projection", projection)
            self.register_buffer("redraws", torch.zeros(1, dtype=torch.int64))
            self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    @property
    def _drawn_of(self) -> tuple[str, int, int]:
        return self._json, self._options["head_dim"], self._options["layer"]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._options.items())

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        terms: Terms | None = None,
        *,
        is_causal: bool = False,
        key_mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state: LinearAttentionState | None = None,
        kernel: Kernel = "auto",
        heads_first: bool = False,
        scale: float | None = None,
        sequences: Tensor | None = None,
    ) -> Tensor:
        """Arguments and result as of ``linear_attention``; ``sequences``: int64 ``[B, S]``, packed rows in place of
        ``cu_seqlens``, with equal numbers within a sequence of a row and -1 for padding."""
        projection = None
        if self._feature_map in _DRAWN:
            projection = self.projection.clone()
            if self.training:
                buffers = self.projection, self.redraws, self.calls
                projection = _drawn_vectors(*buffers, *self._drawn_of, self._redraw_every)
        packed = {"cu_seqlens": cu_seqlens, "sequences": sequences, "state": state}
        more = {"is_causal": is_causal, "key_mask": key_mask, "kernel": kernel, "heads_first": heads_first} | packed
        return _attend(q, k, v, terms, self._json, self._feature_map, projection, scale=scale, **more)
