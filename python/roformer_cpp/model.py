"""Encoder models for Python: modules of torch with the parameters of a checkpoint, whose files C++ reads and writes."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from typing import Literal

import torch
from torch import Tensor, nn

from . import _checks, _hub, _jagged, _torch  # noqa: F401 - it loads the operators
from ._model_layers import Group, activated, encode, table_of
from ._model_loss import loss_of
from ._model_parts import parts_of
from ._model_pass import Dropout, KeyValueCache, Pass
from ._operator_call import bare, check_devices, check_tensors, is_followed, is_transformed, operator_call
from ._script_module import ScriptModule, keep_table, kept_table, script_maker, value_of
from .encoding import SCALAR_TYPES, Encoding

_Script = torch.classes.roformer.Model
HEADS = tuple(f"RoFormer{suffix}" for suffix in _Script.head_suffixes())
_INPUTS = (
    *("input_ids", "attention_mask", "token_type_ids", "segments", "positions"),
    *("encoder_hidden", "encoder_mask"),
)
_LAYOUT = ("attention_mask", "segments", "positions")  # read on the CPU, so they may be there
_ALL_TOKENS = 2**63 - 1
_MISSING_FILE = "missing file: "  # of nn/src/script_terms.h


class Model(ScriptModule):
    """An encoder with one head; made by :func:`load_model` or :func:`build_model`. Starts in evaluation mode, with
    gradients enabled. A ``torch.nn.Module`` whose parameters have the names of the checkpoint.

    Every method raises ValueError with a message ``[where] rule, got value`` for bad input, and TypeError for what
    is not a tensor.
    """

    _group = Group

    def __init__(self, script: torch.ScriptObject):
        self._definition = script.config_json(), script.head()
        self._position_table = script.position_table()
        self._layout = json.loads(script.layout())
        self.base_model_prefix = self._layout["body"]
        super().__init__(script, parts_of(script, self._layout, self._described()))
        for stage in self._layout["stages"]:
            self._container(stage["linear"])  # also for a tied stage without parameters
        self.eval()

    def _described(self) -> str:
        """A text from which _made makes the C++ model, without values; only in this process if it has a table."""
        table = self._position_table
        return json.dumps([*self._definition, None if table is None else keep_table(table)])

    def _rebuilt(self) -> torch.ScriptObject:
        return _made(self._described())

    def __repr__(self) -> str:
        layout = self._layout
        numbers = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"{type(self).__name__}({self.head}, {self._encoding.name}, {layout['layers']} layers, "
            f"hidden_size {layout['hidden_size']}, {layout['heads']} heads, "
            f"vocab_size {len(self._body.embeddings.word_embeddings.weight)}, {numbers:,} parameters, "
            f"{'training' if self.training else 'evaluation'} mode)"
        )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        encoder_hidden: Tensor | None = None,
        encoder_mask: Tensor | None = None,
        num_choices: int = 1,
        cache: KeyValueCache | None = None,
        dropout_key: tuple[int, int] | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        return_dict: bool | None = None,
        past_key_values: None = None,
    ) -> dict[str, Tensor]:
        """One forward pass. Names follow ``transformers``: ``model(**tokenizer(texts, return_tensors="pt"))``.

        Args:
            input_ids: int64 ``[B, T]``, T > 0; or a nested tensor with ``layout=torch.jagged``, without a mask: results
                for tokens are jagged too.
            attention_mask: ``[B, T]``, bool or integers 0 and 1; 1: the token may be attended to. Default: all. Not a
                mask of numbers that are added to scores: for such a mask, give ``mask == 0``.
            token_type_ids: int64 ``[B, T]``. Default: 0.
            segments: int32 ``[B, T]``, in place of ``attention_mask``: tokens attend within equal values >= 0; -1 is
                padding.
            positions: int64 ``[T]``, ``[B, T]`` or, on several axes, ``[B, T, axes]``, >= 0. Default: 0..T-1, or with a
                cache the positions after it.
            encoder_hidden: ``[B, S, C]``, the states that cross-attention attends to. With a cache, at its first call.
            encoder_mask: ``[B, S]``, as ``attention_mask``. Default: all.
            num_choices: for multiple choice, whose ``input_ids`` are ``[B * num_choices, T]``.
            cache: from :meth:`new_cache`. The results for the new tokens equal a pass over all tokens. Not in training
                with gradient checkpointing.
            dropout_key: (seed, step), which then determine dropout in training mode. Default: every pass draws
                a new seed from torch's default generator; ``torch.manual_seed`` repeats a run, and
                ``torch.utils.checkpoint``, which restores the generator, drops the same in both of its passes.
            inputs_embeds: ``[B, T, E]``, in place of ``input_ids``: word embeddings, to which positions and types are
                added.
            labels: for ``loss``, as in ``transformers``: classes (int64, -100 does not count) in the shape of the
                logits without their last dimension, which a causal language model shifts by a token itself; numbers
                for regression and for several labels.
            start_positions, end_positions: int64 ``[B]``, for the loss of question answering.
            output_hidden_states: also ``hidden_states``, of the embeddings and of every layer, ``[B, T, C]`` each.
            output_attentions: also ``attentions``, of every layer, ``[B, H, T, S]``, before dropout.
            return_dict: not False; peft gives it.
            past_key_values: None; peft's prefix tuning, which gives others, does not work.

        Returns:
            ``loss`` where labels are given; ``hidden`` [B, T, C], and by head:
            ``logits`` (language models [B, T, V]; sequence classification
            [B, num_labels]; multiple choice [B, num_choices]; token classification [B, T, num_labels]), or
            ``start_logits`` and ``end_logits`` [B, T] for question answering; ``pooled`` [B, C] where BERT has it (with
            a cache: at its first call).
        """
        for name, value in (("output_hidden_states", output_hidden_states), ("output_attentions", output_attentions)):
            if value is not None:
                _checks.boolean("input", name, value)
        if return_dict is False:
            raise ValueError("[input] return_dict must be True or None, got False")
        if past_key_values is not None:
            raise ValueError(
                "[input] past_key_values must be None, because caches are not kept, got "
                f"{type(past_key_values).__name__}"
            )
        if _jagged.is_jagged(input_ids):
            given = dict(attention_mask=attention_mask, segments=segments, positions=positions, cache=cache)
            given |= dict(encoder_hidden=encoder_hidden, encoder_mask=encoder_mask, dropout_key=dropout_key)
            given |= dict(output_hidden_states=output_hidden_states, output_attentions=output_attentions)
            given |= dict(num_choices=num_choices, start_positions=start_positions, end_positions=end_positions)
            return _jagged.forward(self, input_ids, dict(token_type_ids=token_type_ids, labels=labels), given)
        inputs = (input_ids, attention_mask, token_type_ids, segments, positions, encoder_hidden, encoder_mask)
        options = dict(words=inputs_embeds, states=output_hidden_states, attends=output_attentions)
        call = self._with_cache if cache is not None and torch.compiler.is_compiling() else self._run
        hidden, step, given = call(inputs, num_choices, cache, dropout_key, **options)
        out = self._heads(hidden, step, given, num_choices, cache is None or cache.count == hidden.shape[1])
        if output_hidden_states:
            out["hidden_states"] = tuple(step.states)
        if output_attentions:
            out["attentions"] = tuple(step.attentions)
        ends = None if start_positions is None and end_positions is None else (start_positions, end_positions)
        if labels is None and ends is None:
            return out
        return {"loss": loss_of(self._layout["kind"], out, labels, ends, self._layout)} | out

    @torch.compiler.disable(reason="a call with a cache, which it changes, must be outside of a graph")
    def _with_cache(self, *arguments: object, **options: object) -> tuple[Tensor, Pass, dict[str, Tensor]]:
        return self._run(*arguments, **options)

    def _run(
        self,
        inputs: tuple[Tensor | None, ...],
        num_choices: int | None,
        cache: KeyValueCache | None,
        dropout_key: tuple[int, int] | None,
        words: Tensor | None = None,
        states: bool = False,
        attends: bool = False,
    ) -> tuple[Tensor, Pass, dict[str, Tensor]]:
        """The last hidden states, with what the pass shares and the inputs that were given."""
        layout = self._layout
        if words is not None:
            mask = inputs[1]
            if isinstance(mask, Tensor) and mask.is_floating_point() and not torch.compiler.is_compiling():
                mask = mask.bool() if mask.any() and (mask * (mask - 1) == 0).all() else mask  # of peft's prompts
            inputs = self._ids_of(words, inputs[0]), mask, *inputs[2:]
        given, compiling = self._given(*inputs), torch.compiler.is_compiling()
        dtypes = self._dtypes(given["input_ids"].device.type)
        if not compiling:
            self._check(given, dtypes[0], num_choices, cache)
            given |= {name: given[name].cpu() for name in _LAYOUT if name in given and not given[name].is_cpu}
        if attends and (compiling or layout["linear_attention"] is not None):
            where = "compiled code" if compiling else "linear attention"
            raise ValueError(f"[input] output_attentions needs softmax attention in a plain call, got {where}")
        key = _key(dropout_key)
        drop = Dropout(*_draws(key)) if self.training else Dropout()
        linear = self.linear_attention if layout["linear_attention"] is not None else []
        step = Pass(self._encoding, layout, dtypes, linear, drop, attends=attends)
        step.cache = None if cache is None else cache.begun(layout["layers"])
        step.encoder_hidden, step.states = given.get("encoder_hidden"), [] if states else None
        if layout["draws_positions"] and self.training and cache is None:
            given = given | self._drawn(given, step)
        ids, types = given["input_ids"], given.get("token_type_ids")
        prefix = None
        if layout["prefix_lm"] and (cache is None or cache.count == 0):
            shape = torch.full((len(ids),), ids.shape[1], device=ids.device)
            prefix = shape if types is None else types.ne(0).cumsum(1).eq(0).sum(1)
        rows = (given.get(name) for name in (*_LAYOUT, "encoder_mask"))
        step.begin(ids, *rows, prefix)
        body = self._body
        hidden = encode(self, ids, step, types, words) if body is self else body(ids, step, types, words)
        if cache is not None:
            cache.__dict__.update(step.cache.__dict__)
        return hidden, step, given

    def _heads(
        self, hidden: Tensor, step: Pass, given: dict[str, Tensor], num_choices: int, begins: bool
    ) -> dict[str, Tensor]:
        layout, out = self._layout, {"hidden": hidden}
        stages = layout["stages"]
        starts_with_pooler = bool(stages) and stages[0]["linear"] == layout["pooler"]
        averages = layout["reads"] == "mean_logits"
        read = hidden if averages or layout["reads"] == "tokens" else _read(hidden, layout["reads"], given)
        if begins and hasattr(self._body, "pooler"):
            out["pooled"] = self._body.pooler(hidden[:, 0] if layout["reads"] == "tokens" else read)
        if not layout["has_logits"]:
            return out
        x = out["pooled"] if starts_with_pooler else read
        logits = self._logits(x, stages[starts_with_pooler:], step)
        logits = _read(logits, "mean", given) if averages else logits
        if layout["kind"] == "ForQuestionAnswering":
            return out | {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
        if layout["kind"] == "ForMultipleChoice":
            logits = logits.view(-1, num_choices)
        return out | {"logits": logits}

    def _logits(self, x: Tensor, stages: list[dict], step: Pass | None = None, depth: int = 1) -> Tensor:
        """Computes stages in the modules that group them, whose hooks run; depth: of their names."""
        groups: dict[str, list[dict]] = {}
        for stage in stages:
            groups.setdefault(".".join(stage["linear"].split(".")[:depth]), []).append(stage)
        for name, (stage, *more) in groups.items():
            if name != stage["linear"]:
                module, inside = self.get_submodule(name), stage["linear"].split(".")[depth]
                is_own = isinstance(module, Group) or hasattr(module, inside)  # also in a wrapper of peft
                compute = partial(self._logits, stages=[stage, *more], step=step, depth=depth + 1)
                x = module(x, compute) if is_own else module(x)
                continue
            if stage["dropout"] and step is not None:
                x = step.drop(x, self._layout["head_dropout"])
            x = self._product(x, stage)
            if stage["norm"]:
                x = self.get_submodule(stage["norm"])(x)
        return x

    def _product(self, x: Tensor, stage: dict) -> Tensor:
        if not stage["tied"]:
            linear = self.get_submodule(stage["linear"])
            return activated(linear, x, stage["activation"]) if stage["activation"] else linear(x)
        path, _, leaf = stage["tied_bias"].rpartition(".")
        bias = value_of(self.get_submodule(path), leaf) if leaf else None
        weight = table_of(self._body.embeddings.word_embeddings)
        if torch.compiler.is_compiling():
            return nn.functional.linear(x, weight, bias)
        return torch.ops.roformer.linear_layer(x, weight, bias)

    @property
    def device(self) -> torch.device:
        """The device of the word embeddings."""
        return self._body.embeddings.word_embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self._body.embeddings.word_embeddings.weight.dtype

    @property
    def base_model(self) -> nn.Module:
        """The body below the head, the attribute named by ``base_model_prefix``; without a head the model itself."""
        return getattr(self, self.base_model_prefix, self)

    _body = base_model

    @property
    def _encoding(self) -> Encoding:
        of_table = getattr(self._body.embeddings, "position_embeddings", None)
        return self.position_encoding if of_table is None else of_table

    def _dtypes(self, device: str) -> tuple[torch.dtype, torch.dtype]:
        """Of queries, keys and values, and of the weights."""
        of_weights = self._body.embeddings.word_embeddings.weight.dtype
        lowered = of_weights == torch.float32 and torch.amp.is_autocast_available(device)
        if lowered and torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device), of_weights
        return of_weights, of_weights

    def _check(
        self, given: dict[str, Tensor], dtype: torch.dtype, num_choices: int | None, cache: KeyValueCache | None
    ) -> None:
        if not isinstance(num_choices, (int, type(None))) or isinstance(num_choices, bool):
            raise TypeError(f"[input] num_choices must be an integer, got {type(num_choices).__name__}")
        if not isinstance(cache, (KeyValueCache, type(None))):
            raise TypeError(f"[input] cache must be a KeyValueCache, got {type(cache).__name__}")
        if value_of(self._body.embeddings.word_embeddings, "weight").is_meta:
            raise ValueError(
                "[model] parameters must have values, got a tensor on the device meta. Hint: "
                "load_state_dict(.., assign=True)"
            )
        if self._encoding.reads_projections and any(x.is_meta for x in self._body.encoder.parameters()):
            raise ValueError(
                f"[model] layers must stay on their device with {self._encoding.name}, which reads their projections, "
                "got offloaded ones. Hint: name them in the device_map of dispatch_model"
            )
        layout, kept = self._layout, 0 if cache is None else cache.count
        if is_followed(given):
            return  # without values
        operator_call("input", self._script.check, given, SCALAR_TYPES[dtype], num_choices, kept)
        if cache is None:
            return
        if self.training and torch.is_grad_enabled() and self._body.encoder.checkpoints is not None:
            raise ValueError(f"[input] cache must be None in training with gradient checkpointing, got {cache!r}")
        if num_choices is not None and layout["reads"] != "tokens":
            raise ValueError(f"[input] a cache needs a head that reads every token, got {self.head}")
        if not layout["is_decoder"]:
            raise ValueError("[input] a cache needs causal attention (is_decoder), got a bidirectional model")
        sizes = layout["layers"], layout["heads"], layout["hidden_size"] // layout["heads"]
        cache.check(*sizes, layout["linear_attention"] is None, layout["cross_attention"], dtype)
        cache.check_tokens(given["input_ids"], given.get("positions"))

    def _ids_of(self, words: Tensor, input_ids: Tensor | None) -> Tensor:
        """Ids that stand for word embeddings in checks."""
        check_tensors("input", inputs_embeds=words)
        dtype, size = self._dtypes(words.device.type)[1], self._body.embeddings.word_embeddings.weight.shape[1]
        if words.dtype != dtype and not torch.is_autocast_enabled(words.device.type):
            raise ValueError(f"[input] inputs_embeds must be {dtype}, as the weights are, got {words.dtype}")
        if words.dim() != 3 or words.shape[2] != size or input_ids is not None or self._encoding.changes_words:
            raise ValueError(
                f"[input] inputs_embeds must be [batch, tokens, {size}], without input_ids and with a position "
                f"encoding that does not read them, got {list(words.shape)}"
            )
        counted = int(self._layout["padding_id"] == 0)
        return torch.full(words.shape[:2], counted, dtype=torch.int64, device=words.device)

    def _drawn(self, given: dict[str, Tensor], step: Pass) -> dict[str, Tensor]:
        """Positions of training."""
        if torch.compiler.is_compiling():
            raise ValueError("[input] training_positions must be drawn in plain calls, got compiled code")
        call = {name: x for name, x in given.items() if name in ("input_ids", *_LAYOUT)}
        draws = step.drop.number, step.drop.stream()
        drawn = operator_call("input", self._script.training_positions, call, *draws)
        step.real_positions = drawn[1] if drawn[1].numel() else None
        return {"positions": drawn[0]}

    def gradient_checkpointing_enable(
        self, gradient_checkpointing_kwargs: dict | None = None, every_n_layers: int = 1, offload: bool = False
    ) -> None:
        """Layers then keep their inputs alone for the backward, which computes them once more.

        Args:
            gradient_checkpointing_kwargs: of ``torch.utils.checkpoint.checkpoint``.
            every_n_layers, offload: 1 and False, which the ``Trainer`` of ``transformers`` gives.
        """
        if every_n_layers != 1:
            raise ValueError(f"[model] every_n_layers must be 1, got {_checks.shown(every_n_layers)}")
        if offload:
            raise ValueError(f"[model] offload must be False, got {_checks.shown(offload)}")
        if self._layout["linear_attention"] is not None and list(self.linear_attention.buffers()):
            raise ValueError(
                "[model] gradient checkpointing needs layers that compute the same twice, got random features that "
                "are drawn anew"
            )
        self._body.encoder.checkpoints = gradient_checkpointing_kwargs or {}

    def gradient_checkpointing_disable(self) -> None:
        self._body.encoder.checkpoints = None

    def _given(self, *inputs: Tensor | None) -> dict[str, Tensor]:
        given = {name: value for name, value in zip(_INPUTS, inputs, strict=True) if value is not None}
        if "input_ids" not in given:
            raise TypeError("[input] input_ids must be a tensor, got none")
        for name, value in given.items():
            if not isinstance(value, Tensor):
                hint = '. Hint: tokenizer(.., return_tensors="pt")' if isinstance(value, list) else ""
                raise TypeError(f"[input] {name} must be a tensor, got {type(value).__name__}{hint}")
        self._check_devices(**given)
        return bare(given) if is_transformed() else given

    def _check_devices(self, **given: Tensor) -> None:
        first = self._body.embeddings.word_embeddings.weight
        if not first.is_meta:  # the call itself reports a model without values
            on_cpu = [name for name in _LAYOUT if name in given and given[name].is_cpu]
            check_devices("input", **{"the model": first}, **{x: y for x, y in given.items() if x not in on_cpu})

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        encoder_hidden: Tensor | None = None,
        encoder_mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
        dropout_key: tuple[int, int] | None = None,
    ) -> Tensor:
        """Only the last hidden state [B, T, C]; arguments as above."""
        inputs = (input_ids, attention_mask, token_type_ids, segments, positions, encoder_hidden, encoder_mask)
        call = self._with_cache if cache is not None and torch.compiler.is_compiling() else self._run
        return call(inputs, None, cache, dropout_key)[0]

    def prepare_inputs_for_generation(self, input_ids: Tensor, **inputs: object) -> dict[str, object]:
        """The arguments of a call, for peft's models of causal language."""
        return {"input_ids": input_ids} | inputs

    @staticmethod
    def new_cache() -> KeyValueCache:
        """An empty cache of keys and values for a causal model; its ``tokens()`` is the number of tokens."""
        return KeyValueCache()

    def masked_lm_logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[N, V]`` of a language model's head at chosen hidden states ``[N, C]``."""
        check_tensors("input", hidden=hidden)
        self._check_devices(hidden=hidden)
        if self._layout["kind"] not in ("ForMaskedLM", "ForCausalLM"):
            raise ValueError(f"[model] logits over the vocabulary need a language model, got {self.head}")
        size = self._layout["hidden_size"]
        if hidden.dim() == 0 or hidden.shape[-1] != size:
            raise ValueError(f"[input] hidden states must be [.., {size}], got {list(hidden.shape)}")
        return self._logits(hidden, self._layout["stages"])

    def save(self, model_dir: str | PathLike) -> None:
        """Writes config.json and model.safetensors (float32), which ``transformers`` reads, and for position encodings
        that need it position_terms.safetensors (docs/formats.md)."""
        tensors = []
        for (own, leaf), name in zip(self._places, self._names, strict=True):
            module = self.get_submodule(name.rpartition(".")[0])  # after peft's merge_and_unload also a trained copy
            if type(module) not in (type(own), nn.Linear):
                raise ValueError(
                    f"[model] the module of {name} must be the model's own, got another in its place. Hint: "
                    "merge_and_unload() of peft"
                )
            tensors.append(value_of(module, leaf))
        with _missing_files():
            self._script.save(tensors, _checks.path("model", "model_dir", model_dir))

    @property
    def head(self) -> str:
        """The equivalent class of ``transformers``, as in ``HEADS``; without one, ``RfEncoder`` with the same
        ending."""
        return self._definition[1]

    @property
    def config(self) -> dict:
        """The configuration, with the keys of config.json."""
        return _Config(json.loads(self._definition[0]))


class _Config(dict):
    """Keys also as attributes, which the ``Trainer`` of ``transformers`` reads and sets."""

    def __getattr__(self, name: str) -> object:
        if name not in self:
            raise AttributeError(name)
        return self[name]


def _key(dropout_key: tuple[int, int] | None) -> tuple[int, int] | None:
    if dropout_key is None:
        return None
    if not isinstance(dropout_key, (tuple, list)) or not all(isinstance(number, int) for number in dropout_key):
        raise TypeError(f"[input] dropout_key must be two integers, seed and step, got {_checks.shown(dropout_key)}")
    if len(dropout_key) != 2:
        raise ValueError(f"[input] dropout_key must be two numbers, seed and step, got {len(dropout_key)}")
    return dropout_key


def _draws(key: tuple[int, int] | None) -> tuple[Tensor, int]:
    """The seed and the step of dropout. C++ draws the same seed from the same state of the generator."""
    if key is not None:
        return torch.tensor(key[0], device="cpu"), key[1]
    drawn = torch.randint(-(2**63), 2**63 - 1, (), device="cpu")
    return drawn.bitwise_xor(-(2**63)), 0


def _read(hidden: Tensor, reads: str, given: dict[str, Tensor]) -> Tensor:
    """The input of heads of sequences, [B, C]."""
    if reads != "mean":
        return hidden[:, -1 if reads == "last" else 0]
    segments, mask = given.get("segments"), given.get("attention_mask")
    if segments is None and mask is None:
        return hidden.mean(1)
    shown = (mask.ne(0) if segments is None else segments.ge(0)).to(hidden.device).unsqueeze(2).to(hidden.dtype)
    return (hidden * shown).sum(1) / shown.sum(1).clamp_min(1)


@script_maker("model")
def _made(text: str) -> torch.ScriptObject:
    config, head, table = json.loads(text)
    script = _Script.build(config, head, None)
    if table is not None:
        script.set_position_table(kept_table(table))
    return script


def load_model(
    model_dir: str | PathLike,
    head: str | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    *,
    allow_fresh_head: bool = False,
) -> Model:
    """Opens a directory with config.json and model.safetensors, as ``transformers`` and this library write it.

    Args:
        model_dir: the directory, or an id of the Hugging Face Hub: looked up in the local cache, then downloaded where
            ``huggingface_hub`` is installed.
        head: a class, such as ``"RoFormerForMaskedLM"`` (``roformer_cpp.model.HEADS`` has all), also with the prefix
            ``Bert`` (but ``BertLMHeadModel``) or ``RfEncoder``. Default: the one that config.json names.
        dtype: of the parameters in memory; files may hold F16, BF16, F32 or F64.
        allow_fresh_head: whether a head whose weights are not in the file is initialised at random instead of refused.

    Raises:
        FileNotFoundError: the directory or one of the files does not exist.
        RuntimeError: a damaged file, a missing, unexpected or misshapen tensor, NaN or infinity in a weight, a
            configuration key that changes the result and is not computed; the message says where and which.

    Warns:
        UserWarning: config.json has a key that nobody knows; the file has a position table that differs from the
            computed one, and the file's is used.
    """
    with _missing_files():
        script = _Script.load(
            _hub.located(_checks.path("model", "model_dir", model_dir)), head or "", dtype, allow_fresh_head
        )
    for message in script.warnings():
        warnings.warn(message, stacklevel=2)
    return Model(script)


def build_model(config: dict, head: str | None = None, seed: int = 0) -> Model:
    """A new model with random weights, which are a function of the configuration and the seed.

    Args:
        config: the keys of config.json (docs/formats.md), among them ``position_encoding`` and ``attention``.
        head: as for :func:`load_model`.
        seed: of the draws. Torch's own generator is not used.

    Raises:
        ValueError: an unknown key or a value out of range; the message says which.
    """
    if head is not None:
        _checks.text("config", "head", head)
    return Model(_Script.build(json.dumps(config), head or "", _checks.integer("config", "seed", seed)))


def bake(model_dir: str | PathLike, length: int | None = None) -> dict[str, int | None] | None:
    """Writes position_terms.safetensors (docs/formats.md) into a model directory, as ``roformer bake`` does: for
    sequences longer than the stored terms, or if the file is missing.

    Args:
        model_dir: with config.json and model.safetensors.
        length: tokens of the longest sequence, for encodings whose tables have rows for each length. Default: that of
            :meth:`Model.save`.

    Returns:
        A dictionary: ``tokens``, the longest sequence that the file covers, and ``longest``, the limit of the encoding
        itself, both None without a limit; and ``bytes``, the size of the file. None for an encoding that does not need
        the file.

    Raises:
        RuntimeError: a length that the encoding does not read, or whose tables are larger than 4 GiB; an encoding with
            terms that are not constants, ``key_score`` and ``pair_bias``.
    """
    with _missing_files():
        saved = torch.ops.roformer.bake(_checks.directory("bake", model_dir), length)
    if not saved:
        return None
    tokens, longest = (None if value == _ALL_TOKENS else value for value in saved[:2])
    return {"tokens": tokens, "longest": longest, "bytes": saved[2]}


def register() -> None:
    """Makes ``AutoConfig``, ``AutoModel`` with every head, ``AutoTokenizer`` and ``pipeline`` of transformers know the
    ``model_type`` ``rf_encoder``, for the process; further calls change nothing.

    The models are a ``PreTrainedModel`` of the modules of :class:`Model`. Directories that :meth:`Model.save` and
    ``save_pretrained`` write open in both; no remote code is needed. ``generate`` computes every step without a cache.

    Raises:
        ImportError: transformers 5 is not installed.
    """
    rule, hint = "[model] transformers 5 must be installed", ". Hint: pip install transformers"
    _checks.needed(f"{__package__}._auto", rule, hint).register()


@contextmanager
def _missing_files() -> Iterator[None]:
    """torch cannot raise FileNotFoundError from C++ (nn/src/script_terms.h); a user's encoding may raise IndexError."""
    try:
        yield
    except IndexError as error:
        if not str(error).startswith(_MISSING_FILE):
            raise
        raise FileNotFoundError(str(error).removeprefix(_MISSING_FILE)) from None
