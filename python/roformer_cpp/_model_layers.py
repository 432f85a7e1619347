"""The modules of a model (nn/src/body.h has the equations), with the checkpoint's names and parameters.

Each computes by the operators that the C++ trainer uses. A module that was replaced or has hooks is called like any
module; one operator computes several modules only if they are plain.
"""

from collections.abc import Callable, Sequence

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import _has_any_global_hook

from ._model_pass import Pass, last_rows, rotated
from ._operator_call import is_transformed, operator_call
from ._script_module import value_of
from .encoding import Encoding
from .terms import Terms

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Linear(nn.Linear):
    """``nn.Linear``, by the kernels where they are faster."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return functional.linear(x, self.weight, self.bias)
        return torch.ops.roformer.linear_layer(x, self.weight, self.bias)


def _is_changed(module: nn.Module) -> bool:
    """Whether it has hooks, or a ``forward`` that was set on the instance, as accelerate does."""
    return "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS)


def is_plain(kind: type, *modules: nn.Module) -> bool:
    """Whether a call of each does nothing but what its class does."""
    return not (torch.compiler.is_compiling() or _has_any_global_hook()) and not any(
        type(module) is not kind or _is_changed(module) for module in modules
    )


def activated(linear: nn.Module, x: Tensor, activation: str) -> Tensor:
    if is_plain(Linear, linear):
        return torch.ops.roformer.linear_layer(x, linear.weight, linear.bias, activation)
    return torch.ops.roformer.activate(linear(x), activation)


def has_weights(linear: nn.Module) -> bool:
    """Whether its own weight and bias say what it computes."""
    forward = getattr(type(linear), "forward", None)
    return forward in (nn.Linear.forward, Linear.forward) and not _is_changed(linear)


def effective(linear: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of what a module computes, which is not its own weight where peft changes it."""
    if has_weights(linear):
        return linear.weight, linear.bias
    like = linear.weight
    rows = torch.eye(linear.in_features, dtype=like.dtype, device=like.device)
    bias = linear(torch.zeros_like(rows[:1]))
    return (linear(rows) - bias).T, None if linear.bias is None else bias[0]


def table_of(words: nn.Module) -> Tensor:
    """The vectors of all words, which are not the module's own weight where peft changes it."""
    weight = value_of(words, "weight")
    return weight if isinstance(words, nn.Embedding) else words(torch.arange(len(weight), device=weight.device))


def weights_and_biases(linears: Sequence[nn.Module], encoding: Encoding) -> tuple[tuple, tuple]:
    """Those of projections, which some encodings multiply with their tables. Where peft or accelerate change them, they
    are computed, and only for encodings that read them."""
    if not all(map(has_weights, linears)) and not encoding.reads_projections:
        return (), ()
    weights, biases = zip(*map(effective, linears), strict=True)
    return weights, biases


class Norm(nn.LayerNorm):
    """A layer norm, or an RMS norm (``kind`` ``"rms"``), of ``residual + drop(x, p)``."""

    kind = "layer"

    def forward(self, x: Tensor, residual: Tensor | None = None, step: Pass | None = None, p: float = 0.0) -> Tensor:
        seed, stream, drop = 0, 0, None if step is None else step.drop
        p = 0.0 if drop is None or drop.seed is None else p
        if p and (torch.compiler.is_compiling() or is_transformed()):
            x, p = drop(x, p), 0.0
        elif p:
            seed, stream = drop.number, drop.stream()
        given = x, residual, self.weight, self.bias, self.kind, self.eps, p, seed, stream
        return operator_call("model", torch.ops.roformer.norm_layer, *given)


class SelfAttention(nn.Module):
    """Projections and attention; ``index``: of the layer."""

    def __init__(self, index: int, **linears: nn.Module):
        super().__init__()
        self.index = index
        for name, linear in linears.items():
            self.add_module(name, linear)

    def forward(self, hidden: Tensor, step: Pass) -> tuple[Tensor, Tensor | None]:
        added = step.layer_input(self.index)
        numbers = step.token_numbers(self.index, hidden)
        q, k, v = self._projected(hidden if added is None else hidden + added.to(hidden.dtype), step)
        if step.encoding.reads_vectors:
            k, v = step.appended(self.index, k, v)
            terms = step.terms(self.index, self, hidden, numbers, q, k)
        else:
            terms = step.terms(self.index, self, hidden, numbers)
        if step.linear:
            return step.attend_linear(self.index, q, k, v, terms), None
        if step.cache is not None and not step.encoding.reads_vectors:
            q, k, v, terms = self._with_cache(q, k, v, terms, step)
        return step.attend(q, k, v, terms, self.index)

    def _projected(self, x: Tensor, step: Pass) -> Sequence[Tensor]:
        """Joins whichever is smaller: the weights, for one large product, or the results of three."""
        linears, heads = (self.query, self.key, self.value), [step.heads, step.key_heads, step.key_heads]
        if not is_plain(Linear, *linears) or x.shape[0] * x.shape[1] < len(self.query.weight):
            return [linear(x).unflatten(-1, (n, -1)) for linear, n in zip(linears, heads, strict=True)]
        weight = torch.cat([linear.weight for linear in linears])
        biases = [linear.bias for linear in linears]
        if biases[1] is None and biases[0] is not None:  # DeBERTa-v1
            biases[1] = torch.zeros_like(biases[0])
        bias = None if biases[0] is None else torch.cat(biases)
        return torch.ops.roformer.linear_layer(x, weight, bias).unflatten(-1, (sum(heads), -1)).split(heads, 2)

    def projections(self, encoding: Encoding) -> list[Tensor]:
        weights, biases = weights_and_biases((self.query, self.key, self.value), encoding)
        return [*weights, *biases] if all(bias is not None for bias in biases) else list(weights)

    def _with_cache(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Terms, step: Pass
    ) -> tuple[Tensor, Tensor, Tensor, Terms]:
        """With the keys and values so far, and what of the terms remains for attention."""
        if terms.key_table is not None or terms.query_table is not None:
            # Tables by distance use queries and keys before rotation, so attention rotates.
            return q, *step.appended(self.index, k, v), terms
        q, tokens, layout = rotated(q, terms.query, terms.layout), q.shape[1], terms.layout
        if step.encoding.changes_with_length:
            k, v = step.appended(self.index, k, v)
            k, v = rotated(k, terms.key, layout), rotated(v, terms.value, layout)
        else:
            k, v = (rotated(x, last_rows(r, tokens), layout) for x, r in ((k, terms.key), (v, terms.value)))
            k, v = step.appended(self.index, k, v)
        return q, k, v, terms.without_rotations()


class CrossAttention(SelfAttention):
    """Attention to the states of an encoder: no position terms and no rotation."""

    def forward(self, hidden: Tensor, step: Pass) -> tuple[Tensor, Tensor | None]:
        kept = None if step.cache is None else step.cache.layers[self.index]
        if kept is None or kept.cross is None:
            states = [linear(step.encoder_hidden).unflatten(-1, (step.heads, -1)) for linear in (self.key, self.value)]
            if kept is not None:
                kept.cross = tuple(states)
        else:
            states = kept.cross
        return step.attend_across(self.query(hidden).unflatten(-1, (step.heads, -1)), *states), None


class Output(nn.Module):
    """The second product of a branch, and the norm of its sum with the branch's residual. With ``pre_norm``, the norm
    applies to the branch's input instead (None: without a norm)."""

    def __init__(self, dense: nn.Module, norm: nn.Module | None, dropout: float, pre_norm: bool = False):
        super().__init__()
        self.dense, self.LayerNorm, self.dropout, self.pre_norm = dense, norm, dropout, pre_norm

    def read(self, hidden: Tensor) -> Tensor:
        return self.LayerNorm(hidden) if self.pre_norm and self.LayerNorm is not None else hidden

    def forward(self, x: Tensor, residual: Tensor, step: Pass) -> Tensor:
        x = self.dense(x)
        if self.pre_norm:
            return residual + step.drop(x, self.dropout)
        if isinstance(self.LayerNorm, Norm):
            return self.LayerNorm(x, residual, step, self.dropout)
        return self.LayerNorm(residual + step.drop(x, self.dropout))


class AttentionBlock(nn.Module):
    def __init__(self, inner: nn.Module, output: Output):
        super().__init__()
        self.self, self.output = inner, output

    def forward(self, hidden: Tensor, step: Pass) -> tuple[Tensor, Tensor | None]:
        attended, weights = self.self(self.output.read(hidden), step)
        return self.output(attended.flatten(-2), hidden, step), weights


class Intermediate(nn.Module):
    def __init__(self, dense: nn.Module, gate: nn.Module | None, activation: str):
        super().__init__()
        self.dense, self.activation = dense, activation
        if gate is not None:
            self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "gate"):
            return activated(self.gate, x, self.activation) * self.dense(x)
        return activated(self.dense, x, self.activation)


class Layer(nn.Module):
    def __init__(
        self, attention: AttentionBlock, cross: AttentionBlock | None, intermediate: Intermediate, output: Output
    ):
        super().__init__()
        self.attention = attention
        if cross is not None:
            self.crossattention = cross
        self.intermediate, self.output = intermediate, output

    def forward(self, hidden: Tensor, step: Pass) -> tuple[Tensor, Tensor | None]:
        hidden, weights = self.attention(hidden, step)
        if hasattr(self, "crossattention"):
            hidden, _ = self.crossattention(hidden, step)
        return self.output(self.intermediate(self.output.read(hidden)), hidden, step), weights


class Layers(nn.Module):
    """The encoder; with ``checkpoints``, the backward computes each layer once more instead of keeping its results."""

    checkpoints: dict | None = None

    def __init__(self, layers: Sequence[Layer], passes: int, final_norm: nn.Module | None):
        super().__init__()
        self.layer, self.passes = nn.ModuleList(layers), passes
        if final_norm is not None:
            self.final_norm = final_norm

    def forward(self, hidden: Tensor, step: Pass) -> Tensor:
        for layer in list(self.layer) * self.passes:
            step.seen(hidden)
            if self.checkpoints is None or not (self.training and torch.is_grad_enabled()):
                hidden, weights = layer(hidden, step)
            else:
                options = {"use_reentrant": False} | self.checkpoints
                again = step.repeatable(layer)
                hidden, weights, step.drop.calls = torch.utils.checkpoint.checkpoint(again, hidden, **options)
            step.attentions += [weights]
        hidden = self.final_norm(hidden) if hasattr(self, "final_norm") else hidden
        step.seen(hidden)
        return hidden


class Embeddings(nn.Module):
    def __init__(self, parts: dict[str, nn.Module], dropout: float, drops_first: bool):
        super().__init__()
        self.dropout, self.drops_first = dropout, drops_first
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, input_ids: Tensor, step: Pass, types: Tensor | None, words: Tensor | None) -> Tensor:
        x = step.with_dropped(self.word_embeddings(input_ids), input_ids) if words is None else words
        x = step.words(x, input_ids)
        for name, ids in (("token_type_embeddings", types), ("task_type_embeddings", None)):
            if (table := getattr(self, name, None)) is not None:
                first = ids is None and is_plain(nn.Embedding, table)
                x = x + (table.weight[0] if first else table(torch.zeros_like(input_ids) if ids is None else ids))
        added = step.input()
        if added is not None:
            x = x + added.to(x.device)
        x = step.drop(x, self.dropout) if self.drops_first else x
        x = self.LayerNorm(x) if hasattr(self, "LayerNorm") else x
        return x if self.drops_first else step.drop(x, self.dropout)


class Pooler(nn.Module):
    """The vector of a sequence from one token's vector."""

    def __init__(self, dense: nn.Module, has_activation: bool):
        super().__init__()
        self.dense, self.has_activation = dense, has_activation

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x)) if self.has_activation else self.dense(x)


class Group(nn.Module):
    """The parts of a head with one beginning of their names."""

    weight = None  # peft's merge_and_unload reads it of a head that it trained whole

    def forward(self, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        return compute(x)


def encode(
    body: nn.Module, input_ids: Tensor, step: Pass, types: Tensor | None = None, words: Tensor | None = None
) -> Tensor:
    """The last hidden states [B, T, C] of a model's body; words: replaces the embeddings of the ids."""
    hidden = body.embeddings(input_ids, step, types, words)
    if hasattr(body, "embeddings_project"):
        hidden = body.embeddings_project(hidden)
    return body.encoder(hidden, step)


class Body(nn.Module):
    """The part of a model that all heads have below them."""

    forward = encode

    def __init__(self, parts: dict[str, nn.Module]):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
