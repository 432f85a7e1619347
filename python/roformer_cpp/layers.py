"""Attention with projections, an encoder layer and a gated attention unit, as torch.nn.Modules over ``attention``."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from . import _checks
from ._operator_call import check_tensors
from ._packed_sequences import default_positions, sequence_ids_of
from .attention import attention
from .encoding import Encoding
from .terms import DIRECTION_HINTS


def _check_encoding(where: str, encoding: Encoding | None, *, is_causal: bool, in_layers: bool = False) -> None:
    """Refuses an encoding that a layer would compute in part only, or that was made for other attention."""
    if encoding is None:
        return
    if not isinstance(encoding, Encoding):
        raise TypeError(f"[{where}] encoding must be an Encoding, got {type(encoding).__name__}")
    if outside := encoding.acts_on_input(in_layers=in_layers):
        raise ValueError(
            f"[{where}] encoding must act in attention alone, got {outside}, which acts on the input. Hint: apply "
            "encoding.words and encoding.input to the embeddings, and give the layers the other encodings"
        )
    made_for = encoding.made_for
    if made_for and is_causal != (made_for == "causal"):
        raise ValueError(
            f"[{where}] attention must be {made_for} with {encoding.name}, which was made for it, got "
            f"is_causal={is_causal}. Hint: {DIRECTION_HINTS[made_for]}"
        )


def _positions(x: Tensor, given: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    if given is not None:
        return given
    return default_positions(x.size(1), x.size(1), cu_seqlens, cu_seqlens, x.device)[0]


def _attended(
    layer: "Attention | GatedAttentionUnit",
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor | None,
    encoding: Encoding | None,
    projections: Sequence[Tensor] = (),
    **call,
) -> Tensor:
    """Attention of a layer with the terms of an encoding for its input ``x``; ``call``: arguments of ``attention``."""
    terms = None
    if encoding is not None:
        terms = encoding.terms(
            positions,
            layer=layer.layer,
            sequences=sequence_ids_of(call["cu_seqlens"], x, call["mask"]),
            projections=tuple(projections),
            hidden_states=x,
            queries=q,
            keys=k,
            dtype=q.dtype,
        )
    dropout = layer.dropout if layer.training else 0.0
    return attention(q, k, v, terms, positions=positions, is_causal=layer.is_causal, dropout=dropout, **call)


class Attention(nn.Module):
    """Multi-head attention with any position encoding, bidirectional or causal, to itself or to other states.

    Args:
        hidden_size: C, of the input and the output.
        num_attention_heads: H.
        encoding: of the positions, for example ``encoding("rope", num_attention_heads=H, head_dim=D)``; several layers
            may share one. It is not applied in cross-attention, when ``states`` is given. Default: none.
        layer: which of the encoding's layers this is.
        num_key_value_heads: Hk, H a multiple of it. Default: H.
        head_dim: D. Default: ``hidden_size / num_attention_heads``.
        bias: of the projections.
        dropout: of the attention's probabilities, in training; each call draws anew from torch's default generator.
        is_causal: whether a token attends to the tokens up to its own only.

    The submodules ``query``, ``key``, ``value`` and ``output`` are ``nn.Linear`` and start as such. With an encoding
    that does not scale scores, such as ``t5``, ``query`` and ``key`` start as T5's authors' do, so that scores begin
    with a deviation of 1: weights with the deviations ``1/sqrt(C D)`` and ``1/sqrt(C)``, biases of 0.

    Raises:
        ValueError: sizes that do not fit each other; the message names them.
    """

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        encoding: Encoding | None = None,
        *,
        layer: int = 0,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        is_causal: bool = False,
    ):
        super().__init__()
        for name, size in (("hidden_size", hidden_size), ("num_attention_heads", num_attention_heads)):
            _checks.integer("attention", name, size)
        heads, key_heads = num_attention_heads, num_key_value_heads or num_attention_heads
        if heads < 1 or key_heads < 1 or heads % key_heads:
            raise ValueError(
                f"[attention] num_attention_heads must be a multiple of num_key_value_heads, got {heads}, {key_heads}"
            )
        if head_dim is None and hidden_size % heads:
            raise ValueError(
                "[attention] hidden_size must be a multiple of num_attention_heads where head_dim is not given, got "
                f"{hidden_size} and {heads}"
            )
        self.heads, self.key_heads = heads, key_heads
        self.head_dim = head_dim or hidden_size // heads
        self.layer, self.dropout, self.is_causal = layer, dropout, is_causal
        self.encoding = encoding
        _check_encoding("attention", encoding, is_causal=is_causal)
        self.query = nn.Linear(hidden_size, heads * self.head_dim, bias)
        self.key = nn.Linear(hidden_size, key_heads * self.head_dim, bias)
        self.value = nn.Linear(hidden_size, key_heads * self.head_dim, bias)
        self.output = nn.Linear(heads * self.head_dim, hidden_size, bias)
        if encoding is not None and not encoding.scales_scores:
            self._fit_scores()

    def _fit_scores(self) -> None:
        """As ``build_model`` (nn/src/body.cpp, fit_scores): T5's deviations, and biases of 0."""
        hidden_size = self.query.in_features
        for linear, size in ((self.query, hidden_size * self.head_dim), (self.key, hidden_size)):
            nn.init.normal_(linear.weight, std=size**-0.5)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        x: Tensor,
        states: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        window: int | tuple[int, int] | None = None,
        cu_seqlens: Tensor | None = None,
        kernel: Literal["auto", "fused", "explicit", "ref"] = "auto",
    ) -> Tensor:
        """
        Args:
            x: ``[B, T, C]``.
            states: ``[B, S, C]``, the input of keys and values. Default: ``x``.
            positions: integers ``[T]`` or ``[B, T]``. Default: 0, 1, ..; packed sequences each start again.
            mask, window, cu_seqlens, kernel: as of ``attention``.

        Returns:
            ``[B, T, C]``.
        """
        check_tensors("attention", {"states": states}, x=x)
        projected, own = x, self.encoding is not None and states is None
        if own:
            positions = _positions(x, positions, cu_seqlens)
            dtype = torch.promote_types(x.dtype, torch.float32)
            added = self.encoding.layer_input(positions, layer=self.layer, dtype=dtype)
            projected = x if added is None else x + added.to(x.dtype)
        context = projected if states is None else states
        q = self.query(projected).unflatten(-1, (self.heads, self.head_dim))
        k = self.key(context).unflatten(-1, (self.key_heads, self.head_dim))
        v = self.value(context).unflatten(-1, (self.key_heads, self.head_dim))
        linears = (self.query, self.key, self.value)
        projections = [linear.weight for linear in linears] + [x.bias for x in linears if x.bias is not None]
        call = dict(window=window, mask=mask, cu_seqlens=cu_seqlens, kernel=kernel)
        given = (positions, self.encoding if own else None) if states is None else (None, None)
        return self.output(_attended(self, x, q, k, v, *given, projections, **call).flatten(-2))

    def extra_repr(self) -> str:
        return f"heads={self.heads}, key_heads={self.key_heads}, head_dim={self.head_dim}, layer={self.layer}"


class EncoderLayer(nn.Module):
    """A layer of an encoder: attention, then two linear layers, each with a residual and a layer norm.

    Args:
        hidden_size, num_attention_heads, encoding: as of :class:`Attention`, and so are the other arguments.
        intermediate_size: F. Default: 4 C.
        activation: between the linear layers.
        norm: ``"post"``: after the residual, as in BERT and RoFormer; ``"pre"``: before each branch.
        layer_norm_eps: of both norms.
        dropout: of both residual branches, in training; ``attention_dropout`` is that of the probabilities.

    Raises:
        ValueError: an unknown name, or sizes that do not fit each other.
    """

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        encoding: Encoding | None = None,
        *,
        intermediate_size: int | None = None,
        activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu",
        norm: Literal["post", "pre"] = "post",
        layer_norm_eps: float = 1e-12,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        **attention_arguments,
    ):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"[encoder_layer] norm must be post or pre, got {_checks.shown(norm)}")
        activations = {"gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh"), "relu": nn.ReLU(), "silu": nn.SiLU()}
        if activation not in activations:
            raise ValueError(
                f"[encoder_layer] activation must be one of {', '.join(activations)}, got {_checks.shown(activation)}"
            )
        _checks.integer("encoder_layer", "hidden_size", hidden_size)
        inner = 4 * hidden_size if intermediate_size is None else intermediate_size
        self.attention = Attention(
            hidden_size, num_attention_heads, encoding, dropout=attention_dropout, **attention_arguments
        )
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.intermediate = nn.Linear(hidden_size, inner)
        self.activation = activations[activation]
        self.output = nn.Linear(inner, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm

    def forward(self, x: Tensor, **arguments) -> Tensor:
        """``[B, T, C]`` to the same; arguments as in :meth:`Attention.forward`."""
        if self.norm == "post":
            x = self.attention_norm(x + self.dropout(self.attention(x, **arguments)))
            return self.output_norm(x + self.dropout(self._inner(x)))
        x = x + self.dropout(self.attention(self.attention_norm(x), **arguments))
        return x + self.dropout(self._inner(self.output_norm(x)))

    def _inner(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.intermediate(x)))


class GatedAttentionUnit(nn.Module):
    """A gated attention unit: attention of one head and a gated linear unit in one layer (Hua et al. 2022, arXiv
    2202.10447, section 3), as in GAU-alpha (Su 2022, kexue.fm/archives/9052).

    ``[U, V, Z] = silu(x W_i)``, ``Q = g_q Z + b_q``, ``K = g_k Z + b_k`` element by element, and the result is
    ``(U * (A V)) W_o``, where ``A = softmax(scores of Q and K)`` is that of ``attention`` and has the encoding. With
    ``encoding("rope", log_n="length", max_position_embeddings=512, ..)`` it is Su's ``softmax_plus``; the paper's
    ``relu(scores)^2 / n`` is not a softmax and not available. It contains neither a residual nor a norm; Su adds ``x``
    and divides by the root mean square. Two units take the place of a layer of attention and a feed-forward layer.

    Args:
        hidden_size: C, of the input and the output.
        encoding: of the positions, made for one head: ``encoding("rope", num_attention_heads=1, head_dim=key_size)``.
            One that reads the weights of a layer's projections cannot be used, because Q and K lack such weights.
        intermediate_size: e, of U and V. Default: 2 C.
        key_size: s, of Q and K.
        bias: of both products.
        offset: whether Q and K have ``b_q`` and ``b_k``; GAU-alpha has neither these nor biases.
        layer, dropout, is_causal: as of :class:`Attention`.

    The submodules ``input`` and ``output`` are ``nn.Linear``; the parameters ``scale`` and ``offset``, ``[2, s]``,
    belong to Q and K.

    Raises:
        ValueError: a size below 1; the message names it.
    """

    def __init__(
        self,
        hidden_size: int,
        encoding: Encoding | None = None,
        *,
        intermediate_size: int | None = None,
        key_size: int = 128,
        layer: int = 0,
        bias: bool = True,
        offset: bool = True,
        dropout: float = 0.0,
        is_causal: bool = False,
    ):
        super().__init__()
        inner = 2 * hidden_size if intermediate_size is None else intermediate_size
        for name, size in (("hidden_size", hidden_size), ("intermediate_size", inner), ("key_size", key_size)):
            if size < 1:
                raise ValueError(f"[gated_attention_unit] {name} must be at least 1, got {size}")
        self.sizes = (inner, inner, key_size)
        self.layer, self.dropout, self.is_causal = layer, dropout, is_causal
        self.encoding = encoding
        _check_encoding("gated_attention_unit", encoding, is_causal=is_causal, in_layers=True)
        self.input = nn.Linear(hidden_size, sum(self.sizes), bias)
        self.scale = nn.Parameter(torch.ones(2, key_size))
        self.register_parameter("offset", nn.Parameter(torch.zeros(2, key_size)) if offset else None)
        self.output = nn.Linear(inner, hidden_size, bias)

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        window: int | tuple[int, int] | None = None,
        cu_seqlens: Tensor | None = None,
        kernel: Literal["auto", "fused", "explicit", "ref"] = "auto",
    ) -> Tensor:
        """``[B, T, C]`` to the same; arguments as in :meth:`Attention.forward`."""
        gate, value, shared = nn.functional.silu(self.input(x)).split(self.sizes, dim=-1)
        both = shared.unsqueeze(-2) * self.scale  # [B, T, 2, s]
        if self.offset is not None:
            both = both + self.offset
        q, k = both[..., :1, :], both[..., 1:, :]
        if self.encoding is not None:
            positions = _positions(x, positions, cu_seqlens)
        call = dict(window=window, mask=mask, cu_seqlens=cu_seqlens, kernel=kernel)
        out = _attended(self, x, q, k, value.unsqueeze(-2), positions, self.encoding, **call)
        return self.output(gate * out.squeeze(-2))

    def extra_repr(self) -> str:
        return f"intermediate_size={self.sizes[0]}, key_size={self.sizes[2]}, layer={self.layer}"
