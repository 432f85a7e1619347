"""Texts to rows of token ids, as transformers' tokenizer gives them for the same directory, without PyTorch."""

import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from . import _checks, _native

_engine = _native.load()
_WHERE = "tokenize"

TRUNCATIONS = ("longest_first", "only_first", "only_second", "do_not_truncate")
PADDINGS = ("longest", "max_length", "do_not_pad")
SIDES = ("right", "left")

# Pipelines whose class in transformers is in Python: there an empty second text makes a pair.
_IN_PYTHON = ("bert-legacy", "esm", "wobert")


def _special(name: str) -> tuple[property, property]:
    """The properties of a special token: its text, and its id."""

    def token(self: "Tokenizer") -> str | None:
        return self._special[name]

    def token_id(self: "Tokenizer") -> int | None:
        return None if self._special[name] is None else self._tokenizer.find(self._special[name])

    return property(token), property(token_id)


class Tokenizer:
    """The tokenizer of a model directory (docs/tokenizers.md says which, and where rows differ from transformers').

    Names follow transformers. Several threads may use a tokenizer concurrently. It is pickled as its directory, so that
    workers of a ``DataLoader`` can have one.

    Args:
        model_dir: a directory with the tokenizer's files, a GGUF file, or an id of the Hugging Face Hub.
        dictionary: jieba's dict.txt for tokenizers that segment Chinese. Default: that of the directory, else the
            installed one.
        user_dictionaries: further words, in jieba's format.

    Raises:
        FileNotFoundError, RuntimeError, ValueError, TypeError: as for :class:`Engine`.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike,
        *,
        dictionary: str | os.PathLike | None = None,
        user_dictionaries: Sequence[str | os.PathLike] = (),
    ):
        self.name_or_path = _checks.model("tokenizer", model_dir)
        self._dictionaries = {
            "dictionary": None if dictionary is None else os.fsdecode(dictionary),
            "user_dictionaries": [os.fsdecode(path) for path in user_dictionaries],
        }
        self._tokenizer = _engine.Tokenizer(
            self.name_or_path, self._dictionaries["dictionary"] or "", self._dictionaries["user_dictionaries"]
        )
        self.truncation_side: Literal["right", "left"] = self._tokenizer.truncation_side()
        self.padding_side: Literal["right", "left"] = self._tokenizer.padding_side()
        self._special = self._tokenizer.special_tokens()

    @classmethod
    def from_pretrained(cls, model_dir: str | os.PathLike, **options: Any) -> "Tokenizer":
        """The tokenizer of a directory; arguments as for the class."""
        return cls(model_dir, **options)

    def __reduce__(self):
        sides = {"truncation_side": self.truncation_side, "padding_side": self.padding_side}
        return partial(type(self), self.name_or_path, **self._dictionaries), (), sides

    def __repr__(self) -> str:
        return f"Tokenizer({self.name_or_path!r}, {len(self)} tokens)"

    def __len__(self) -> int:
        """All tokens, including tokens added to the model's vocabulary."""
        return self._tokenizer.size()

    # ---- rows

    def __call__(
        self,
        text: str | Iterable[str] | Iterable[tuple[str, str]],
        text_pair: str | Iterable[str] | None = None,
        *,
        add_special_tokens: bool = True,
        truncation: bool | Literal["longest_first", "only_first", "only_second", "do_not_truncate"] = False,
        max_length: int | None = None,
        stride: int = 0,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        pad_to_multiple_of: int | None = None,
        return_overflowing_tokens: bool = False,
        return_offsets_mapping: bool = False,
        return_special_tokens_mask: bool = False,
        return_length: bool = False,
        return_tensors: Literal["np", "pt"] | None = None,
    ) -> dict[str, Any]:
        """Rows of token ids.

        Args:
            text: a string, or a list of strings or of pairs.
            text_pair: the second texts, as many.
            add_special_tokens: as in ``[CLS] text [SEP]``.
            truncation: ``True`` is ``"longest_first"``: of the longer text of a pair tokens are cut off first.
            max_length: tokens of a row with its special tokens; ignored, as in transformers, with padding to the
                longest row and no truncation. Default: ``model_max_length``.
            stride: tokens that an overflowing row repeats of the one before.
            padding: ``True`` is ``"longest"``: to the longest row; ``"max_length"``: to ``max_length``.
            pad_to_multiple_of: rounds the length of padded rows up.
            return_overflowing_tokens: tokens that are cut off become further rows of their text, which
                ``overflow_to_sample_mapping`` names.
            return_offsets_mapping: adds ``offset_mapping``: where each token is in its text, in characters.
            return_special_tokens_mask: adds ``special_tokens_mask``, 1 for special tokens and padding.
            return_length: adds ``length``, the number of tokens of each row with padding.
            return_tensors: ``"np"``: int64 arrays ``[rows, length]``; ``"pt"``: tensors of torch. Default: lists.

        Returns:
            ``input_ids``, ``token_type_ids`` and ``attention_mask`` by name: for one string the lists of its row, for a
            list, and with ``return_overflowing_tokens`` or ``return_tensors``, the lists or arrays of all rows.
        """
        is_one_pair = isinstance(text, str) and isinstance(text_pair, str)
        if is_one_pair and not text_pair and self._tokenizer.pipeline() not in _IN_PYTHON:
            text_pair = None  # as in the fast tokenizers of transformers
        first, second, is_one = _samples(text, text_pair)
        pad = _rule("padding", padding, PADDINGS, "longest", "do_not_pad")
        rule = _rule("truncation", truncation, TRUNCATIONS, "longest_first", "do_not_truncate")
        length = self._max_length(max_length, rule != "do_not_truncate" or pad == "max_length", pad)
        arrays = self._tokenizer.rows(
            first,
            second,
            add_specials=_checks.boolean(_WHERE, "add_special_tokens", add_special_tokens),
            truncation=rule,
            truncation_side=_checks.choice(_WHERE, "truncation_side", self.truncation_side, SIDES),
            overflow=_checks.boolean(_WHERE, "return_overflowing_tokens", return_overflowing_tokens),
            stride=_checks.integer(_WHERE, "stride", stride),
            max_length=length,
            padding=pad,
            padding_side=_checks.choice(_WHERE, "padding_side", self.padding_side, SIDES),
            pad_to_multiple_of=(
                1 if pad_to_multiple_of is None else _checks.integer(_WHERE, "pad_to_multiple_of", pad_to_multiple_of)
            ),
        )
        columns = {"input_ids": arrays["ids"], "token_type_ids": arrays["types"], "attention_mask": arrays["mask"]}
        if return_special_tokens_mask:
            columns["special_tokens_mask"] = (arrays["text_index"] < 0).astype(np.int64)
        if return_offsets_mapping:
            columns["offset_mapping"] = arrays["offsets"]
        begins = arrays["begins"]
        rows = _tensors(columns, begins, return_tensors) if return_tensors else _lists(columns, begins)
        if return_length:
            rows["length"] = np.diff(begins).tolist()
        if return_overflowing_tokens:
            rows["overflow_to_sample_mapping"] = arrays["samples"].tolist()
        elif is_one and return_tensors is None:
            rows = {name: column[0] for name, column in rows.items()}
        return rows

    def _max_length(self, given: int | None, is_used: bool, padding: str) -> int:
        """The length to truncate or pad to; 0: none."""
        if given is not None:
            length = _checks.integer(_WHERE, "max_length", given)
            if not is_used and padding == "do_not_pad":
                raise ValueError(f"[{_WHERE}] max_length must be with truncation or padding to it, got neither")
            return length if is_used else 0
        limit = self._tokenizer.model_max_length()
        if limit is None and is_used:
            raise ValueError(f"[{_WHERE}] max_length must be given for a tokenizer without model_max_length, got none")
        return (limit or 0) if is_used else 0

    def encode(self, text: str, text_pair: str | None = None, **options: Any) -> list[int]:
        """The ids of one text or pair; arguments as for a call."""
        return self(_checks.text(_WHERE, "text", text), text_pair, **options)["input_ids"]

    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[str]:
        """The tokens of a text; with ``add_special_tokens`` also the special ones."""
        return self.convert_ids_to_tokens(self.encode(text, add_special_tokens=add_special_tokens))

    def apply_chat_template(
        self,
        conversation: Iterable[dict[str, Any]] | Iterable[Iterable[dict[str, Any]]],
        *,
        tools: Iterable[dict[str, Any]] | None = None,
        documents: Iterable[dict[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        return_dict: bool = True,
        variables: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """The prompt of a conversation, by the template of the model, as transformers makes it.

        Args:
            conversation: messages such as ``{"role": "user", "content": "Hello"}``, or a list of conversations. Fields
                of a message that are None are absent.
            tools: JSON schemas of functions that the model may call.
            documents: texts with titles that it may read.
            chat_template: another template, or the name of one of the model's.
            add_generation_prompt: ends the prompt with the beginning of the assistant's answer.
            tokenize: ``False`` returns the text.
            return_dict: ``False`` returns the ids alone.
            variables: further ones that the template reads, such as ``{"enable_thinking": False}``.
            options: of a call, such as ``padding``; no special tokens are added, since templates write them.

        Raises:
            ValueError: the model has no template.
            RuntimeError: the template refuses the conversation, or has a part that is not supported.
        """
        chats = [*conversation]
        is_one = not chats or isinstance(chats[0], dict)
        texts = []
        for chat in [chats] if is_one else chats:
            given = {
                "messages": [_message(message) for message in chat],
                "tools": None if tools is None else [*tools],
                "documents": None if documents is None else [*documents],
                "add_generation_prompt": _checks.boolean(_WHERE, "add_generation_prompt", add_generation_prompt),
            }
            source = "default" if chat_template is None else _checks.text(_WHERE, "chat_template", chat_template)
            try:
                shown = json.dumps(given | (variables or {}), ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ValueError(f"[{_WHERE}] a conversation must consist of JSON values, got {error}") from None
            texts.append(self._tokenizer.render_chat(source, shown))
        text = texts[0] if is_one else texts
        if not tokenize:
            return text
        rows = self(text, **({"add_special_tokens": False} | options))
        return rows if return_dict else rows["input_ids"]

    # ---- back to text

    def decode(self, token_ids: int | Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """The text of tokens."""
        ids = _ids(token_ids)
        return self._tokenizer.decode(ids, _checks.boolean(_WHERE, "skip_special_tokens", skip_special_tokens))

    def batch_decode(self, sequences: Iterable[Iterable[int]], *, skip_special_tokens: bool = False) -> list[str]:
        """The text of each sequence of tokens."""
        return [self.decode(ids, skip_special_tokens=skip_special_tokens) for ids in sequences]

    # ---- vocabulary

    def convert_ids_to_tokens(self, ids: int | Iterable[int]) -> str | list[str]:
        tokens = [self._tokenizer.token(each) for each in _ids(ids)]
        return tokens if isinstance(ids, Iterable) else tokens[0]

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> int | list[int] | None:
        """The id of a token or of each of several; that of the unknown token for another text."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(_checks.text(_WHERE, "a token", token)) for token in tokens]
        found = self._tokenizer.find(tokens)
        return found if found >= 0 else self.unk_token_id

    def get_vocab(self) -> dict[str, int]:
        """The id of every token."""
        return {self._tokenizer.token(i): i for i in range(len(self))}

    @property
    def vocab_size(self) -> int:
        """The tokens of the model, without added tokens."""
        return self._tokenizer.model_size()

    @property
    def model_max_length(self) -> int | None:
        """The maximum length of a row from tokenizer_config.json, or None."""
        return self._tokenizer.model_max_length()

    def save_pretrained(self, model_dir: str | os.PathLike) -> None:
        """Writes the tokenizer's files to a directory, which transformers reads too."""
        os.makedirs(model_dir, exist_ok=True)  # noqa: PTH103
        self._tokenizer.save(os.fsdecode(model_dir))

    @property
    def special_tokens_map(self) -> dict[str, str]:
        return {name: token for name, token in self._special.items() if token is not None}

    @property
    def all_special_ids(self) -> list[int]:
        return sorted({self._tokenizer.find(token) for token in self.special_tokens_map.values()})

    pad_token, pad_token_id = _special("pad_token")
    unk_token, unk_token_id = _special("unk_token")
    cls_token, cls_token_id = _special("cls_token")
    sep_token, sep_token_id = _special("sep_token")
    mask_token, mask_token_id = _special("mask_token")
    bos_token, bos_token_id = _special("bos_token")
    eos_token, eos_token_id = _special("eos_token")


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise TypeError(f"[{_WHERE}] a message must be a dict, got {_checks.kind(message)}")
    return message


def _rule(name: str, given: Any, rules: tuple[str, ...], default: str, none: str) -> str:
    if isinstance(given, bool):
        return default if given else none
    return _checks.choice(_WHERE, name, given, rules)


def _samples(text: Any, text_pair: Any) -> tuple[list[str], list[str] | None, bool]:
    """First texts, second texts, and whether it is one text or pair."""
    first, is_one = _checks.texts(_WHERE, "text", text)
    if text_pair is None:
        if first and isinstance(first[0], (tuple, list)):
            if any(not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in first):
                raise ValueError(f"[{_WHERE}] a pair must have two texts, and all texts must be pairs, got others")
            return [pair[0] for pair in first], [pair[1] for pair in first], False
        return first, None, is_one
    second, is_one_pair = _checks.texts(_WHERE, "text_pair", text_pair)
    if is_one != is_one_pair or len(first) != len(second):
        raise ValueError(f"[{_WHERE}] text_pair must be like text, {len(first)} texts, got {len(second)}")
    return first, second, is_one


def _ids(ids: Any) -> list[int]:
    listed = ids if isinstance(ids, Iterable) and not isinstance(ids, str) else [ids]
    return [_checks.integer(_WHERE, "an id", each) for each in listed]


def _lists(columns: dict[str, np.ndarray], begins: np.ndarray) -> dict[str, list]:
    bounds = begins.tolist()
    rows = {}
    for name, column in columns.items():
        values = column.tolist()
        if name == "offset_mapping":
            values = [tuple(pair) for pair in values]
        rows[name] = [values[begin:end] for begin, end in pairwise(bounds)]
    return rows


def _tensors(columns: dict[str, np.ndarray], begins: np.ndarray, kind: Any) -> dict[str, Any]:
    _checks.choice(_WHERE, "return_tensors", kind, ("np", "pt"))
    lengths = np.diff(begins)
    if len(lengths) and lengths.min() != lengths.max():
        raise ValueError(
            f"[{_WHERE}] rows must have one length for return_tensors, got {lengths.min()} to {lengths.max()} tokens. "
            "Hint: padding=True, truncation=True"
        )
    length = int(lengths[0]) if len(lengths) else 0
    rows = {name: column.reshape(len(lengths), length, *column.shape[1:]) for name, column in columns.items()}
    if kind == "np":
        return rows
    import torch

    return {name: torch.from_numpy(column) for name, column in rows.items()}
