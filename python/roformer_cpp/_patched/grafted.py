"""Attention of a grafted layer: its queries and keys come without rotation, and an encoding gives the terms."""

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .._model_layers import weights_and_biases
from .attend import attend, missing
from .masks import MaskForm, modeling_of

if TYPE_CHECKING:
    from ..encoding import Encoding
    from ..terms import Terms

NAME = "_grafted"  # the attribute of a module of attention with its GraftedLayer
_LINEARS = ("q_proj", "k_proj", "v_proj", "query", "key", "value", "Wqkv", "query_key_value")
CALL = "roformer_call"  # the argument with the LayerCall


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The modules of a model that call transformers' attention interface, in the order of the layers."""
    return [
        module
        for module in model.modules()
        if modeling_of(type(module)) is not None
        and "ALL_ATTENTION_FUNCTIONS" in inspect.unwrap(type(module).forward).__code__.co_names
    ]


class Step:
    """The positions of the tokens in a forward pass, and terms that its layers share. Layers get it with their
    arguments, so that threads, and layers that a backward pass computes again, have their own."""

    def __init__(self, positions: Tensor):
        self.positions = positions
        self.made: tuple | None = None


@dataclass
class LayerCall:
    step: Step
    hidden: Tensor | None = None  # input of the layer, where the encoding reads it
    cached: Tensor | None = None  # positions of the keys in the cache


class Grafted(nn.ModuleList):
    """The encodings of a grafted model, and the hooks that remove its own."""

    was_patched = replaces_table = False

    def replace_rotation(self, module: nn.Module, args: tuple, kwargs: dict, output: tuple) -> tuple:
        """A hook of a module of rotary embeddings: no rotation, and behind it the step."""
        cos, sin = output
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        return torch.ones_like(cos), torch.zeros_like(sin), Step(positions)

    def replace_table(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor:
        """A hook of a table by position: replaces its rows by the encoding's addition to the input."""
        own = [encoding.input(args[0], dtype=output.dtype) for encoding in self]
        return sum((x.to(output.dtype) for x in own if x is not None), torch.zeros_like(output))


class GraftedLayer:
    """The part of an encoding that one module of attention needs."""

    def __init__(self, encodings: Grafted, encoding: "Encoding", index: int):
        self.encodings, self.number, self.index = encodings, [*encodings].index(encoding), index
        self.reads_tokens, self.reads_sequences = encoding.reads_tokens, encoding._script.reads_sequences()
        self.is_shared = not encoding._script.reads() and not list(encoding.parameters())

    @property
    def encoding(self) -> "Encoding":
        """By its place, where peft may have put a copy that it trains."""
        return self.encodings[self.number]

    def before(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """A hook: gives the call what `attend` reads, and refuses caches of fixed size."""
        hidden, cache = args[0] if args else kwargs["hidden_states"], kwargs.get("past_key_values")
        cache = kwargs.get("layer_past") if cache is None else cache
        count = cache.get_seq_length(self.index) if hasattr(cache, "get_seq_length") else 0
        if "position_embeddings" in kwargs:
            *rotation, step = kwargs["position_embeddings"]
            kwargs = kwargs | {"position_embeddings": tuple(rotation)}
            if not isinstance(step, Step):
                raise ValueError("[graft] a layer must be called with what rotary_emb gives, got another rotation")
        else:  # BERT
            positions = kwargs.get("position_ids")
            if positions is None:
                positions = torch.arange(count, count + hidden.shape[1], device=hidden.device)[None]
            step = Step(positions)
        call = LayerCall(step, hidden if self.reads_tokens else None)
        if getattr(cache, "is_compileable", False):
            raise ValueError(
                f"[graft] a cache must grow with the text, as DynamicCache does, got {type(cache).__name__}"
            )
        if hasattr(cache, "get_seq_length"):
            positions = step.positions
            known = getattr(cache, "roformer_positions", None)
            if known is None or known.shape[1] < count or positions.shape[0] % known.shape[0]:
                known = self.positions_before(positions, count)
            call.cached = known[:, :count].repeat_interleave(positions.shape[0] // known.shape[0], 0)
            cache.roformer_positions = torch.cat([call.cached, positions], 1)
        return args, kwargs | {CALL: call}

    def attend(
        self,
        module: nn.Module,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        form: MaskForm | None,
        scaling: float | None,
        dropout: float,
        eager: str | None,
        call: LayerCall,
    ) -> Tensor:
        """Attention of ``[B, T, H, D]``, without transformers. eager: a feature that only transformers can compute."""
        lack = eager or missing(q, k, v, dropout) or (form is None and "a mask of another size")
        if lack:
            raise ValueError(f"[graft] attention must be one that roformer_cpp.attention computes, got {lack}")
        if scaling is not None and scaling != q.shape[-1] ** -0.5:  # terms may have numbers with 1/sqrt(D)
            q = q * (scaling * q.shape[-1] ** 0.5)
        return attend(q, k, v, form, terms=self.terms(module, q, k, form, call), dropout=dropout)

    def terms(self, module: nn.Module, q: Tensor, k: Tensor, form: MaskForm, call: LayerCall) -> "Terms":
        keys, positions = k.shape[1], call.step.positions
        key = self.encoding, keys, q.dtype, form.attend is None
        if self.is_shared and call.step.made is not None and call.step.made[0] == key:
            return call.step.made[1]
        if call.hidden is not None and call.hidden.shape[1] != keys:
            raise ValueError(
                f"[graft] {self.encoding.name} reads the input of layers, which caches do not hold, got {keys} keys "
                f"and {call.hidden.shape[1]} tokens. Hint: use_cache=False"
            )
        sequences = None
        if self.reads_sequences and form.attend is not None:
            is_open = form.attend if form.attend.dim() == 2 else form.attend.flatten(1, 2).any(1)
            sequences = torch.where(is_open, 0, -1)
        terms = self.encoding.terms(
            positions,
            self.key_positions(call, keys),
            layer=self.index,
            sequences=sequences,
            projections=projections(module, self.encoding),
            hidden_states=call.hidden,
            queries=q,
            keys=k,
            dtype=q.dtype,
        )
        if self.is_shared:
            call.step.made = key, terms
        return terms

    def key_positions(self, call: LayerCall, keys: int) -> Tensor:
        positions = call.step.positions
        earlier = keys - positions.shape[1]
        if earlier == 0:
            return positions
        before = self.positions_before(positions, earlier) if call.cached is None else call.cached[:, -earlier:]
        return torch.cat([before, positions], 1)

    @staticmethod
    def positions_before(positions: Tensor, count: int) -> Tensor:
        """Where nothing is known: one by one before the first of the queries; padding on the left has 0."""
        return (positions[:, :1] - torch.arange(count, 0, -1, device=positions.device)).clamp_min(0)


def projections(module: nn.Module, encoding: "Encoding") -> tuple[Tensor, ...]:
    """The weights ``(W_q, W_k, W_v)`` of a module of attention and, if it has them, its biases; or nothing."""
    linears = [getattr(module, name) for name in _LINEARS if hasattr(module, name)]
    weights, biases = weights_and_biases(linears, encoding)
    if None in biases:
        biases = ()
    if len(weights) != 1:
        return (*weights, *biases)
    # GPT-NeoX: queries, keys and values of a head are next to each other; not so in ModernBERT.
    heads = None if hasattr(module, "Wqkv") else module.config.num_attention_heads

    def parts(x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(3) if heads is None else x.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(1, 2).unbind()

    return tuple(part for x in (*weights, *biases) for part in parts(x))
