"""Token shards of `roformer prepare` as a dataset of PyTorch (docs/formats.md, data/include/rf/data/shard.h)."""

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _checks, _native
from .tokenizer import Tokenizer

try:
    import torch
    from torch.utils.data import Dataset
except ImportError as error:
    raise ImportError(f"[roformer_cpp] ShardDataset needs PyTorch, got: {error}. Hint: install torch") from None

_WHERE = "shards"
_SPLITS = ("train", "valid", "test")
_HEADER = struct.Struct("<8sIIQQQ32s")
_HEADER_BYTES, _ALIGNMENT = 128, 64
_SPECIALS = 2  # [CLS] and [SEP]
_GROUP = 64  # documents for which one number is kept in memory


class ShardDataset(Dataset):
    """The rows of a split: each document cut into pieces of ``max_length - 2`` tokens, the last one shorter, and each
    piece as ``[CLS] piece [SEP]``, in the order of the documents. These are the rows that `roformer pretrain` reads
    with ``"packing": "padded"``, before it shuffles and masks them.

    Row ``i`` is a dictionary of int64 tensors ``[T]``, T <= ``max_length``: ``input_ids``; ``attention_mask``, all 1;
    ``special_tokens_mask``, 1 for ``[CLS]``, ``[SEP]`` and other special tokens. Nothing is masked or padded: give
    :meth:`collate`, or a collator of transformers, to the ``DataLoader``. Files are mapped into memory, so the
    processes of a ``DataLoader`` share them, and a pickled dataset is its paths.

    Args:
        data_dir: a directory of `roformer prepare`. Its files must not change while the dataset is used.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        max_length: tokens of a row with its special ones, at least 3.
        check: read all files now and check them, checksums too. For many gigabytes, `roformer verify --data DIR` does
            that once, and False reads only the headers and where documents end.

    Raises:
        FileNotFoundError: the directory does not exist.
        RuntimeError: it is not a data directory, lacks the split, or a file is damaged.
        ValueError: ``max_length`` or ``split`` breaks its rule.
        ImportError: PyTorch is not installed.
    """

    def __init__(self, data_dir: str | os.PathLike, split: str = "train", *, max_length: int = 128, check: bool = True):
        self.data_dir = _checks.directory(_WHERE, data_dir, "data")
        self.split = _checks.choice(_WHERE, "split", split, _SPLITS)
        self.max_length = _checks.integer(_WHERE, "max_length", max_length, _SPECIALS + 1)
        if _checks.boolean(_WHERE, "check", check):
            _native.load().check_split(self.data_dir, self.split)
        tokenizer = Tokenizer(self.data_dir)
        self._cls, self._sep, self._pad = (
            _special(tokenizer, name) for name in ("cls_token", "sep_token", "pad_token")
        )
        self._special_ids = np.array(tokenizer.all_special_ids)
        self._open()

    def _open(self) -> None:
        manifest = json.loads((Path(self.data_dir) / "data.json").read_bytes())
        names = manifest["splits"].get(self.split, {"shards": []})["shards"]
        self._shards = [_Shard(Path(self.data_dir) / name) for name in names]
        documents = [len(shard.ends) for shard in self._shards]
        self._first_document = np.concatenate([[0], np.cumsum(documents, dtype=np.int64)])
        # The first row of every 64th document of a shard; for the others, ends of documents are read again.
        first_rows, groups, rows = [np.empty(0, np.int64)], [0], 0
        for shard in self._shards:
            ends = np.cumsum(self._rows(shard, 0, len(shard.ends)))
            first_rows.append(rows + np.concatenate([[0], ends[_GROUP - 1 : -1 : _GROUP]]))
            groups.append(groups[-1] + len(first_rows[-1]))
            rows += int(ends[-1]) if len(ends) else 0
        self._first_row, self._first_group, self._length = np.concatenate(first_rows), np.array(groups), rows

    def _rows(self, shard: "_Shard", begin: int, end: int) -> np.ndarray:
        """The number of rows of each document."""
        ends = shard.ends[max(begin - 1, 0) : end]
        lengths = np.diff(ends, prepend=0) if begin == 0 else np.diff(ends)
        return -(-lengths // (self.max_length - _SPECIALS))

    def __getstate__(self) -> dict[str, Any]:
        opened = ("_shards", "_first_document", "_first_row", "_first_group", "_length")
        return {k: v for k, v in vars(self).items() if k not in opened}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __repr__(self) -> str:
        return f"ShardDataset({self.data_dir!r}, {self.split!r}, max_length={self.max_length}, {len(self)} rows)"

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = _index("a row", index, len(self))
        group = int(np.searchsorted(self._first_row, row, side="right")) - 1
        number = int(np.searchsorted(self._first_group, group, side="right")) - 1
        shard, place = self._shards[number], (group - int(self._first_group[number])) * _GROUP
        ends = int(self._first_row[group]) + np.cumsum(self._rows(shard, place, place + _GROUP))
        inside = int(np.searchsorted(ends, row, side="right"))
        size = self.max_length - _SPECIALS
        begin = (row - int(ends[inside - 1] if inside else self._first_row[group])) * size
        piece = shard.tokens(place + inside)[begin : begin + size]
        ids = np.empty(len(piece) + _SPECIALS, np.int64)
        ids[0], ids[1:-1], ids[-1] = self._cls, piece, self._sep
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.ones(len(ids), dtype=torch.int64),
            "special_tokens_mask": torch.from_numpy(np.isin(ids, self._special_ids).astype(np.int64)),
        }

    @property
    def documents(self) -> int:
        """The number of documents."""
        return int(self._first_document[-1])

    def document(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A whole document without special tokens: int64 ids ``[N]``, and bool ``[N]``, True where a word begins."""
        number = _index("a document", index, self.documents)
        of_shard = int(np.searchsorted(self._first_document, number, side="right")) - 1
        shard, place = self._shards[of_shard], number - int(self._first_document[of_shard])
        return torch.from_numpy(shard.tokens(place).astype(np.int64)), torch.from_numpy(shard.starts_word(place))

    def collate(self, rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """A batch: rows padded on the right to the longest one, int64 ``[B, T]``. For ``DataLoader(collate_fn=..)``."""
        fill = {"input_ids": self._pad, "attention_mask": 0, "special_tokens_mask": 1}
        return {
            name: torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True, padding_value=value)
            for name, value in fill.items()
        }


class _Shard:
    """A shard, mapped into memory. ``ends``: where each document ends, counted in tokens."""

    def __init__(self, path: Path):
        base = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        if len(base) < _HEADER_BYTES:
            raise RuntimeError(f"[shard] {path}: a shard must have at least {_HEADER_BYTES} bytes, got {len(base)}")
        _, _, token_bytes, tokens, documents, _, _ = _HEADER.unpack_from(base)
        words = _aligned(_HEADER_BYTES + tokens * token_bytes)
        offsets = _aligned(words + (tokens + 7) // 8)
        end = offsets + 8 * (documents + 1)
        if end != len(base):
            raise RuntimeError(f"[shard] {path}: the size must be {end}, got {len(base)} (is the file truncated?)")
        self._tokens = base[_HEADER_BYTES : _HEADER_BYTES + tokens * token_bytes].view(f"<u{token_bytes}")
        self._words = base[words : words + (tokens + 7) // 8]
        self.ends = base[offsets:].view("<i8")[1:]

    def _bounds(self, document: int) -> tuple[int, int]:
        return int(self.ends[document - 1]) if document else 0, int(self.ends[document])

    def tokens(self, document: int) -> np.ndarray:
        begin, end = self._bounds(document)
        return self._tokens[begin:end]

    def starts_word(self, document: int) -> np.ndarray:
        begin, end = self._bounds(document)
        bits = np.unpackbits(self._words[begin // 8 : (end + 7) // 8], bitorder="little")
        return bits[begin % 8 :][: end - begin].astype(bool)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _index(what: str, index: int, size: int) -> int:
    """As for a list; IndexError ends a loop over the dataset."""
    number = _checks.integer(_WHERE, what, index)
    if not -size <= number < size:
        raise IndexError(f"[{_WHERE}] {what} must be in [{-size}, {size}), got {number}")
    return number % size


def _special(tokenizer: Tokenizer, name: str) -> int:
    if (token := getattr(tokenizer, f"{name}_id")) is None:
        raise RuntimeError(f"[{_WHERE}] the tokenizer of {tokenizer.name_or_path} must have a {name}, got none")
    return token
