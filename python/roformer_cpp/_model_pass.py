"""One forward pass of a model: positions, packing and padding, dropout's draws, a cache, and the terms of layers."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ._operator_call import apart, bare, is_followed, is_transformed, operator_call
from ._whole_call import Call, whole_call
from .attention import attend, unit_values
from .encoding import SCALAR_TYPES, Encoding
from .linear_attention import LinearAttentionState
from .terms import Rotation, Terms


@dataclass
class CachedLayer:
    key: Tensor | None = None
    value: Tensor | None = None
    numbers: Tensor | None = None  # of an encoding that reads tokens
    cross: tuple[Tensor, Tensor] | None = None  # keys and values of the encoder's states
    sums: LinearAttentionState = field(default_factory=LinearAttentionState)


@dataclass(repr=False)
class KeyValueCache:
    """The state of a causal model after the tokens so far. Keys are rotated, unless a rotation may change as its
    sequence grows; linear attention has sums instead. A call that raises does not change it. Gradients flow through it.
    """

    layers: list[CachedLayer] = field(default_factory=list)
    batch: int = 0
    count: int = 0  # of tokens
    positions: Tensor | None = None  # [1 or B, S] or [1 or B, S, axes]
    sequences: Tensor | None = None  # [B, S], -1: padding. None: each row is one sequence
    is_packed: bool = False  # sequences are of packed rows, not padding alone
    encoder_mask: Tensor | None = None

    def tokens(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"KeyValueCache({self.count} tokens of {self.batch} rows, {len(self.layers)} layers)"

    def check(
        self, layers: int, heads: int, head_dim: int, has_keys: bool, has_cross: bool, dtype: torch.dtype
    ) -> None:
        """Refuses a cache of another model, or of other dtypes."""
        if not self.count:
            return
        first, shape = self.layers[0], (heads, head_dim)
        fits = len(self.layers) == layers and has_cross == (first.cross is not None)
        if not fits or (first.key is None or first.key.shape[2:] != shape if has_keys else first.key is not None):
            raise ValueError(
                f"[input] a cache must be of the same model, got one of another model, with {len(self.layers)} layers"
            )
        if has_keys and first.key.dtype != dtype:
            names = {torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16", torch.float16: "Half"}
            raise ValueError(f"[input] keys of a cache must be {names[dtype]}, got {names[first.key.dtype]}")

    def check_tokens(self, ids: Tensor, positions: Tensor | None) -> None:
        """Refuses tokens of another batch, or with positions on other axes."""
        if self.count and len(ids) != self.batch:
            raise ValueError(f"[input] the batch must be that of the cache, {self.batch}, got {len(ids)}")
        axes, before = (1 if x is None or x.dim() != 3 else x.shape[2] for x in (positions, self.positions))
        if self.count and axes != before:
            raise ValueError(f"[input] positions must have as many axes as those of the cache, {before}, got {axes}")

    def begun(self, layers: int) -> "KeyValueCache":
        """A copy, to be changed by a pass."""
        after = copy.copy(self)
        after.layers = [copy.copy(layer) for layer in self.layers] or [CachedLayer() for _ in range(layers)]
        for layer in after.layers:
            layer.sums = LinearAttentionState(dict(layer.sums.tensors))
        return after


class Dropout:
    """The dropout sites of a pass, which are numbered in their order; seed: ``None`` outside of training."""

    def __init__(self, seed: Tensor | None = None, step: int = 0):
        self.seed, self._step, self.calls = seed, step, 0
        if is_transformed() and is_followed(bare(seed)):
            raise ValueError('[input] vmap must be given randomness="same" for dropout, got "different"')
        self.number = 0 if seed is None or torch.compiler.is_compiling() else int(seed)

    def stream(self) -> int:
        self.calls += 1
        return ((self._step << 16 | self.calls - 1) + 2**63) % 2**64 - 2**63

    def __call__(self, x: Tensor, p: float) -> Tensor:
        if self.seed is None or p == 0:
            return x
        if torch.compiler.is_compiling():
            return _drop(*Call([], {"x": x, "seed": self.seed}, [self.stream()], [p]).flat())[0]
        if is_transformed():
            with apart():
                kept = torch.ops.roformer.dropout(torch.ones(x.shape, dtype=x.dtype), p, self.number, self.stream())
            return x * kept.to(x.device)
        return torch.ops.roformer.dropout(x, p, self.number, self.stream())


def _computed_drop(call: Call) -> list[Tensor]:
    return [torch.ops.roformer.dropout(call.one("x"), call.reals[0], int(call.one("seed")), call.numbers[0])]


_drop = whole_call("dropout", _computed_drop, lambda call: [torch.empty_like(call.one("x"))])


def rotated(x: Tensor, rotation: Rotation | None, layout: str) -> Tensor:
    if rotation is None:
        return x
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    cos, sin = (rows.to(dtype) for rows in rotation)
    if cos.dim() == 4 and cos.shape[2] > 1:  # rows for each head: heads are tokens of one head each
        heads = x.flatten(1, 2).unsqueeze(2)
        return torch.ops.roformer.rotate(heads, cos.flatten(1, 2), sin.flatten(1, 2), layout).view(x.shape)
    cos, sin = (rows.squeeze(2) if rows.dim() == 4 else rows for rows in (cos, sin))
    return torch.ops.roformer.rotate(x, cos, sin, layout)


def last_rows(rotation: Rotation | None, count: int) -> Rotation | None:
    return None if rotation is None else Rotation(*(rows[:, -count:] for rows in rotation))


def _joined(before: Tensor | None, x: Tensor) -> Tensor:
    """Two runs of tokens; either may have one row for all."""
    if before is None:
        return x
    rows = max(len(before), len(x))
    return torch.cat([part.expand(rows, *part.shape[1:]) for part in (before, x)], 1)


class Pass:
    """The state that the layers of a pass share: the encoding, the ``layout`` of the model (nn/src/script_class.cpp),
    and the results of ``begin``. Not a dataclass, because FSDP copies arguments that are dataclasses."""

    cache: KeyValueCache | None = None
    real_positions: Tensor | None = None  # of augmented training
    encoder_hidden: Tensor | None = None
    states: list[Tensor] | None = None

    def __init__(
        self,
        encoding: Encoding,
        layout: dict[str, Any],
        dtypes: tuple[torch.dtype, torch.dtype],  # of queries, keys and values, and of weights
        linear: Sequence[nn.Module],  # for each layer, or none
        drop: Dropout,
        attends: bool,  # whether the caller wants the weights of attention
    ):
        self.encoding, self.layout, self.linear, self.drop = encoding, layout, linear, drop
        self.dtype, self.weight_dtype = dtypes
        self.heads, self.key_heads, self.windows = (layout[key] for key in ("heads", "key_heads", "windows"))
        self.is_causal, self.attention_dropout = layout["is_decoder"], layout["attention_dropout"]
        self.attends, self.attentions = attends, []

    def begin(
        self, ids: Tensor, mask: Tensor | None, segments: Tensor | None, positions: Tensor | None,
        encoder_mask: Tensor | None, prefix: Tensor | None,
    ) -> None:  # fmt: skip
        cache, tokens = self.cache, ids.shape[1]
        before = 0 if cache is None else cache.count
        where, self.counted = self._places(ids, positions, before)
        self.positions = where
        with apart(mask, segments):
            sequences, is_packed = _sequences(ids, mask, segments), segments is not None and ids.shape[0] > 0
        self.key_positions = None
        if before:
            self.key_positions = where = _joined(cache.positions, where)
            is_packed = is_packed or cache.is_packed
            if sequences is not None or cache.sequences is not None:
                ones = (torch.zeros(len(ids), n, dtype=torch.int64) for n in (before, tokens))
                given = zip((cache.sequences, sequences), ones, strict=True)
                sequences = _joined(*(one if x is None else x for x, one in given))
        if cache is not None:
            cache.batch, cache.count, cache.positions = len(ids), before + tokens, where
            cache.sequences, cache.is_packed = sequences, is_packed
        self.sequences, self.packed = sequences, sequences if is_packed else None
        self.key_mask = None if sequences is None or is_packed else sequences.ge(0).to(ids.device)
        self.prefix = prefix
        with apart():
            self.like = torch.empty(0, device=ids.device)
        if encoder_mask is not None and cache is not None:
            cache.encoder_mask = encoder_mask
        seen = encoder_mask if cache is None else cache.encoder_mask
        self.encoder_mask = None if seen is None else seen.ne(0).to(ids.device)[:, None, None]
        self.shared = None if torch.compiler.is_compiling() else self._shared(self.positions, self.key_positions)
        if before and self.linear and self.encoding.changes_with_length:
            self._check_sums(before)

    def _places(self, ids: Tensor, positions: Tensor | None, before: int) -> tuple[Tensor, Tensor]:
        """The positions of the tokens, and the positions by which they read the table of positions."""
        device = ids.device if torch.compiler.is_compiling() else "cpu"  # where the host reads their values
        with apart(positions):
            where = torch.arange(before, before + ids.shape[1], device=device) if positions is None else positions
            where = where.unsqueeze(0) if where.dim() == 1 else where
        padding = self.layout["padding_id"]  # of tokens that the table does not count; -1: it counts all
        if positions is not None or padding < 0:
            return where, where
        with apart(ids):
            counts = ids.to(device).ne(padding)
            counted = counts.cumsum(1) * counts - 1
        return where if self.layout["has_distances"] else counted, counted

    def _shared(self, positions: Tensor, key_positions: Tensor | None, sequences: Tensor | None = None) -> object:
        sequences = self.sequences if sequences is None else sequences
        if is_transformed() and not self.encoding._script.reads_sequences():
            sequences = None
        given = positions, key_positions, sequences, SCALAR_TYPES[self.dtype], self.real_positions, self.like
        return operator_call("encoding", self.encoding._script.shared, self.encoding._tensors(), *given)

    def _check_sums(self, before: int) -> None:
        """Sums hold rotated keys, so they become wrong if the new tokens change the rotation of earlier keys."""
        own = None if self.sequences is None else self.sequences[:, :before]
        then = self._shared(self.key_positions[:, :before], None, own)
        old, new = (self._terms_of(0, shared).key for shared in (then, self.shared))
        if any(not torch.equal(a.expand_as(b[:, :before]), b[:, :before]) for a, b in zip(old, new, strict=True)):
            raise ValueError(
                f"[input] with linear attention the rotation of the {before} tokens in a cache must not change, got "
                f"{self.positions.shape[1]} tokens that change it"
            )

    def _terms_of(self, layer: int, shared: object, *of_layer: object) -> Terms:
        given = of_layer or ([], None, None, None)
        script, tensors = self.encoding._script, self.encoding._tensors()
        return Terms.from_arguments(*operator_call("encoding", script.terms, tensors, layer, shared, *given))

    # ---- what the encoding does, in plain calls and in compiled code

    def with_dropped(self, words: Tensor, ids: Tensor) -> Tensor:
        """In models with ``dropped_id``: embeddings of this token become 0, and the others are scaled and divided by
        their share of a sequence."""
        dropped = self.layout["dropped_id"]
        if dropped < 0:
            return words
        kept = ids.ne(dropped)
        share = kept.float().mean(1, keepdim=True)
        if self.packed is not None:
            sequences = self.packed.to(ids.device)
            same = sequences.unsqueeze(2).eq(sequences.unsqueeze(1))
            share = (same & kept.unsqueeze(1)).sum(-1) / same.sum(-1)
        elif self.sequences is not None:
            shown = self.sequences.to(ids.device).ge(0)
            share = (shown & kept).sum(1, keepdim=True) / shown.sum(1, keepdim=True)
        scale = self.layout["embedding_scale"] * kept / share.clamp_min(1e-9)
        return (words * scale.unsqueeze(-1)).to(words.dtype)

    def words(self, words: Tensor, ids: Tensor) -> Tensor:
        return self.encoding.words(words, ids, self.positions.to(ids.device)) if self.encoding.changes_words else words

    def input(self) -> Tensor | None:
        dtype = self.weight_dtype
        if torch.compiler.is_compiling():
            return self.encoding.input(self.counted, dtype=dtype)
        given = self.counted, SCALAR_TYPES[dtype], self.real_positions
        return operator_call("encoding", self.encoding._script.input, self.encoding._tensors(), *given)

    def layer_input(self, layer: int) -> Tensor | None:
        if torch.compiler.is_compiling():
            return self.encoding.layer_input(self.positions, layer=layer, dtype=self.dtype)
        tensors = self.encoding._tensors()
        return operator_call("encoding", self.encoding._script.layer_input, tensors, layer, self.shared)

    def token_numbers(self, layer: int, hidden: Tensor) -> Tensor | None:
        if torch.compiler.is_compiling() or not self.encoding.reads_tokens:
            return None  # in compiled code, terms compute them
        tensors = self.encoding._tensors()
        numbers = operator_call("encoding", self.encoding._script.token_numbers, tensors, layer, hidden)
        if self.cache is None:
            return numbers
        kept = self.cache.layers[layer]
        kept.numbers = _joined(kept.numbers, numbers)
        return kept.numbers

    def terms(
        self, layer: int, attention: nn.Module, hidden: Tensor, numbers: Tensor | None, *vectors: Tensor
    ) -> Terms:
        projections = attention.projections(self.encoding)
        if torch.compiler.is_compiling():
            q, k = vectors or (None, None)
            return self.encoding.terms(
                self.positions,
                layer=layer,
                sequences=self.sequences,
                projections=tuple(projections),
                hidden_states=hidden,
                queries=q,
                keys=k,
                dtype=self.dtype,
            )
        return self._terms_of(layer, self.shared, projections, numbers, *(vectors or (None, None)))

    # ---- attention

    def appended(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.cache is None:
            return k, v
        kept = self.cache.layers[layer]
        kept.key, kept.value = _joined(kept.key, k), _joined(kept.value, v)
        return kept.key, kept.value

    def attend(self, q: Tensor, k: Tensor, v: Tensor, terms: Terms, layer: int) -> tuple[Tensor, Tensor | None]:
        where, keys = self.positions, self.key_positions
        if isinstance(terms, Terms) and terms.positions is not None:
            where, keys = terms.positions, terms.key_positions
        where, is_same = where.to(q.device), keys is None or keys is where
        mask = None if self.key_mask is None else self.key_mask[:, None, None]
        tensors = {"positions": where, "key_positions": where if is_same else keys.to(q.device)}
        tensors |= {"mask": mask, "prefix": self.prefix, "packed": self.packed}
        reach = self.windows[layer] or -1  # 0: no window
        sides = (max(reach - 1, -1), 0) if self.is_causal else (reach, reach)
        out = self._attended(q, k, v, terms, tensors, sides)
        if not self.attends:
            return out, None
        return out, attend((q, k, unit_values(k)), terms.of_scores(), tensors, sides, "explicit").transpose(1, 2)

    def attend_across(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        where = {"positions": torch.arange(q.shape[1], device=q.device), "mask": self.encoder_mask}
        where["key_positions"] = torch.arange(k.shape[1], device=q.device)
        return self._attended(q, k, v, None, where, (-1, -1))

    def _attended(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Terms | None, tensors: dict, sides: tuple[int, int]
    ) -> Tensor:
        p = 0.0 if self.drop.seed is None else self.attention_dropout
        seed, stream = (self.drop.seed, self.drop.stream()) if p else (None, 0)
        return attend((q, k, v), terms, tensors | {"seed": seed}, sides, dropout=p, stream=stream)

    def attend_linear(self, layer: int, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
        key_mask, state, tokens = self.key_mask, None, q.shape[1]
        if self.cache is not None:
            terms.key = last_rows(terms.key, tokens)
            key_mask = None if key_mask is None else key_mask[:, -tokens:]
            state = self.cache.layers[layer].sums
        options = {"is_causal": self.is_causal, "key_mask": key_mask, "state": state, "sequences": self.packed}
        return self.linear[layer](q, k, v, terms, **options)

    def repeatable(self, layer: nn.Module) -> Callable:
        """The layer for a checkpoint: its sites have the same numbers whenever it runs, and it also returns the next
        number. Compiled code must change nothing there that it did not make there."""
        drop = copy.copy(self.drop)

        def again(hidden: Tensor) -> tuple[Tensor, Tensor | None, int]:
            step = copy.copy(self)
            step.drop = copy.copy(drop)
            return *layer(hidden, step), step.drop.calls

        return again

    def seen(self, hidden: Tensor) -> None:
        if self.states is not None:
            self.states.append(hidden)


def _sequences(ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> Tensor | None:
    """The sequence of each token: its segment, or 0 and -1 for tokens that a mask shows and hides."""
    if ids.shape[0] == 0 or (mask is None and segments is None):
        return None
    if segments is not None:
        return segments.long()
    shown = mask.ne(0)
    is_known = not torch.compiler.is_compiling() and not is_followed(shown)
    return None if is_known and bool(shown.all()) else shown.long() - 1
