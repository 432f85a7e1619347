"""Encoder models for Python: the C++ modules of nn/ behind a thin object, with autograd."""

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Literal

import torch
from torch import Tensor

from . import _checks, _hub, _torch  # noqa: F401 - it loads the operators
from ._operator_call import check_devices, check_tensors, operator_call
from ._script_module import ScriptModule, kept_script, script_maker
from ._whole_call import Call, whole_call

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

    def __init__(self, script: torch.ScriptObject):
        super().__init__(script)
        self._definition = script.config_json(), script.head()
        self._position_table = script.position_table()
        self._text = self._described()
        self._result_names = list(script.outputs())
        self.eval()

    def _described(self) -> str:
        """A text from which _made makes the C++ model, without values; only in this process if it has a table."""
        table, number = self._position_table, None
        if table is not None:
            number = hashlib.sha256(table.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
            _position_tables[number] = table
        return json.dumps([*self._definition, number])

    def _rebuilt(self) -> torch.ScriptObject:
        self._text = self._described()
        return _made(self._text)

    def __repr__(self) -> str:
        config = self.config
        encodings = config.get("position_encoding", "learned" if config["model_type"] == "bert" else "rope")
        encodings = encodings if isinstance(encodings, list) else [encodings]
        names = "+".join(encoding["type"] if isinstance(encoding, dict) else encoding for encoding in encodings)
        numbers = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"Model({self.head}, {names}, {config['num_hidden_layers']} layers, hidden_size {config['hidden_size']}, "
            f"{config['num_attention_heads']} heads, vocab_size {config['vocab_size']}, {numbers:,} parameters, "
            f"{'training' if self.training else 'evaluation'} mode)"
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        encoder_hidden: Tensor | None = None,
        encoder_mask: Tensor | None = None,
        num_choices: int = 1,
        cache: torch.ScriptObject | None = None,
        dropout_key: tuple[int, int] | None = None,
    ) -> dict[str, Tensor]:
        """One forward pass. Names follow ``transformers``: ``model(**tokenizer(texts, return_tensors="pt"))``.

        Args:
            input_ids: int64 ``[B, T]``, T > 0.
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
            cache: from :meth:`new_cache`. The results for the new tokens equal a pass over all tokens.
            dropout_key: (seed, step), which then determine dropout in training mode. Default: every pass draws
                a new seed from torch's default generator; ``torch.manual_seed`` repeats a run, and
                ``torch.utils.checkpoint``, which restores the generator, drops the same in both of its passes.

        Returns:
            ``hidden`` [B, T, C], and by head: ``logits`` (language models [B, T, V]; sequence classification
            [B, num_labels]; multiple choice [B, num_choices]; token classification [B, T, num_labels]), or
            ``start_logits`` and ``end_logits`` [B, T] for question answering; ``pooled`` [B, C] where BERT has it (with
            a cache: at its first call).
        """
        inputs = (input_ids, attention_mask, token_type_ids, segments, positions, encoder_hidden, encoder_mask)
        given = self._given(*inputs)
        if torch.compiler.is_compiling() and cache is None:
            return self._whole(given, "forward", num_choices, dropout_key)
        return self._plain("forward", given, num_choices=num_choices, cache=cache, dropout_key=_key(dropout_key))

    @torch.compiler.disable(reason="a call with a cache, which it changes, must be outside of a graph")
    def _plain(self, method: str, given: dict[str, Tensor], **options: object) -> dict[str, Tensor] | Tensor:
        arguments = {"tensors": self._tensors(), "training": self.training, "inputs": given} | options
        return operator_call("input", getattr(self._script, method), *arguments.values(), names=list(arguments))

    def _given(self, *inputs: Tensor | None) -> dict[str, Tensor]:
        given = {name: value for name, value in zip(_INPUTS, inputs, strict=True) if value is not None}
        if "input_ids" not in given:
            raise TypeError("[input] input_ids must be a tensor, got none")
        for name, value in given.items():
            if not isinstance(value, Tensor):
                hint = '. Hint: tokenizer(.., return_tensors="pt")' if isinstance(value, list) else ""
                raise TypeError(f"[input] {name} must be a tensor, got {type(value).__name__}{hint}")
        self._check_devices(**given)
        return given

    def _check_devices(self, **given: Tensor) -> None:
        first = self._tensors()[0]
        if not first.is_meta:  # the call itself reports a model without values
            on_cpu = [name for name in _LAYOUT if name in given and given[name].is_cpu]
            check_devices("input", **{"the model": first}, **{x: y for x, y in given.items() if x not in on_cpu})

    def _whole(
        self, given: dict[str, Tensor], method: str, num_choices: int, dropout_key: tuple[int, int] | None
    ) -> dict[str, Tensor]:
        """The call as one operator of a graph."""
        key = None
        if self.training and dropout_key is None:
            key = torch.randint(-(2**63), 2**63 - 1, ())
        mode = "train" if self.training else "eval"
        device = given["input_ids"].device.type
        autocast = str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else ""
        numbers = [num_choices] if dropout_key is None else [num_choices, *dropout_key]
        tensors = {"model": self._tensors(), "dropout_key": key} | given
        found = _operator(*Call([self._text, mode, method, autocast], tensors, numbers).flat())
        return dict(zip(self._result_names if method == "forward" else ["hidden"], found, strict=True))

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
        cache: torch.ScriptObject | None = None,
        dropout_key: tuple[int, int] | None = None,
    ) -> Tensor:
        """Only the last hidden state [B, T, C]; arguments as above."""
        inputs = (input_ids, attention_mask, token_type_ids, segments, positions, encoder_hidden, encoder_mask)
        given = self._given(*inputs)
        if torch.compiler.is_compiling() and cache is None:
            return self._whole(given, "encode", 1, dropout_key)["hidden"]
        return self._plain("encode", given, cache=cache, dropout_key=_key(dropout_key))

    @staticmethod
    def new_cache() -> torch.ScriptObject:
        """An empty cache of keys and values for a causal model; its ``tokens()`` is the number of tokens."""
        return torch.classes.roformer.KeyValueCache()

    def masked_lm_logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[N, V]`` of a language model's head at chosen hidden states ``[N, C]``."""
        check_tensors("input", hidden=hidden)
        self._check_devices(hidden=hidden)
        return self._script.masked_lm_logits(self._tensors(), hidden)

    def save(self, model_dir: str | PathLike) -> None:
        """Writes config.json and model.safetensors (float32), which ``transformers`` reads, and for position encodings
        that need it position_terms.safetensors (docs/formats.md)."""
        with _missing_files():
            self._script.save(self._tensors(), _checks.path("model", "model_dir", model_dir))

    @property
    def head(self) -> str:
        """The equivalent class of ``transformers``, as in ``HEADS``; without one, ``RfEncoder`` with the same
        ending."""
        return self._definition[1]

    @property
    def config(self) -> dict:
        """The configuration, with the keys of config.json."""
        return json.loads(self._definition[0])


def _key(dropout_key: tuple[int, int] | None) -> tuple[int, int] | None:
    if dropout_key is None:
        return None
    if not isinstance(dropout_key, (tuple, list)) or not all(isinstance(number, int) for number in dropout_key):
        raise TypeError(f"[input] dropout_key must be two integers, seed and step, got {_checks.shown(dropout_key)}")
    return dropout_key


_position_tables: dict[str, Tensor] = {}  # of files, by their hash


@script_maker("model")
def _made(text: str) -> torch.ScriptObject:
    config, head, table = json.loads(text)
    script = _Script.build(config, head, None)
    if table is not None:
        if table not in _position_tables:
            raise ValueError("[model] a program of a model with a position table must be used in its process, got none")
        script.set_position_table(_position_tables[table])
    return script


def _compute(call: Call) -> list[Tensor]:
    (text, mode, method, autocast), groups, numbers, _ = call
    script = kept_script("model", text, mode == "train")
    given = {name: tensors[0] for name, tensors in groups.items() if name not in ("model", "dropout_key")}
    key = list(numbers[1:]) or ([_seed(int(call.one("dropout_key"))), 0] if "dropout_key" in groups else None)
    tensors, training = groups["model"], mode == "train"
    device = call.one("input_ids").device.type
    with torch.autocast(device, getattr(torch, autocast.removeprefix("torch.") or "bfloat16"), enabled=bool(autocast)):
        if method == "encode":
            return [script.encode(tensors, training, given, None, key)]
        found = script.forward(tensors, training, given, numbers[0], None, key)
    return [found[name] for name in script.outputs()]


def _seed(drawn: int) -> int:
    """The seed that C++ draws from the same state of the generator: 64 bits, minus 2^63 in torch."""
    return drawn + 2**63 if drawn < 0 else drawn - 2**63


def _shapes(call: Call) -> list[Tensor]:
    (text, _, method, _), groups, numbers, _ = call
    script = kept_script("model", text)
    ids = call.one("input_ids")
    rows, tokens = ids.shape
    dtype = next(x.dtype for x in groups["model"] if x.is_floating_point())
    sizes = {"batch": rows // numbers[0], "choices": numbers[0], "rows": rows, "tokens": tokens}
    outputs = script.outputs()
    names = ["hidden"] if method == "encode" else outputs
    shapes = {name: [sizes[extent] if extent in sizes else int(extent) for extent in outputs[name]] for name in names}
    return [ids.new_empty(shape, dtype=dtype) for shape in shapes.values()]


_operator = whole_call("model", _compute, _shapes)


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
        head: one of ``HEADS``, or the same with ``Bert`` (but ``BertLMHeadModel``) or ``RfEncoder``. Default: the one
            that config.json names.
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
        ``tokens``, the longest sequence that the file serves, and ``longest``, that the encoding reads at all; None
        without a limit; and ``bytes``. None for an encoding that does not need the file.

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


@contextmanager
def _missing_files() -> Iterator[None]:
    """torch cannot raise FileNotFoundError from C++ (nn/src/script_terms.h); a user's encoding may raise IndexError."""
    try:
        yield
    except IndexError as error:
        if not str(error).startswith(_MISSING_FILE):
            raise
        raise FileNotFoundError(str(error).removeprefix(_MISSING_FILE)) from None
