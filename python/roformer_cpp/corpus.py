"""From text files to what :func:`roformer_cpp.pretrain` reads: a vocabulary, and token shards. Without PyTorch."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _checks, _child

File = str | os.PathLike
Records = Iterable[str | Mapping[str, Any]]


def vocab(
    input: File | Sequence[File] | Records | None,
    output: File,
    *,
    bytes: bool = False,
    size: int | None = None,
    min_frequency: int | None = None,
    max_alphabet: int | None = None,
    cased: bool = False,
    format: str | None = None,
    field: str | None = None,
    quotes: bool = True,
    skip_bad_records: bool = False,
    threads: int | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Trains a vocabulary of word pieces, as `roformer vocab` does.

    Args:
        input: files, directories and patterns, or records, as for :func:`prepare`; None with ``bytes``.
        output: ``vocab.txt`` to write, with the tokenizer's settings next to it; with ``bytes`` a directory.
        bytes: no text: a tokenizer whose tokens are the bytes (docs/pretraining.md).
        size: tokens in total, with five special ones. Default: 8000.
        min_frequency: pairs that occur less often are not merged. Default: 2.
        max_alphabet: characters kept, the most frequent first. Default: 6000.
        cased: keep case and accents.
        format, field, quotes, skip_bad_records: how the files are read, as for :func:`prepare`.
        threads, verbose: as for :func:`roformer_cpp.pretrain`.

    Returns:
        The result of the command: ``size``, ``hash`` and ``output``, and with ``input`` also counts of the input.

    Raises:
        ValueError, FileNotFoundError, RuntimeError, ImportError: as for :func:`prepare`.
    """
    given = dict(locals())
    if (input is None) != _checks.boolean("vocab", "bytes", bytes):
        raise ValueError(f"[vocab] the input must be given unless bytes is True, got {'both' if bytes else 'neither'}")
    return _result("vocab", given | {"output": _checks.path("vocab", "the output", output)})


def prepare(
    input: File | Sequence[File] | Records,
    model: File,
    output: File,
    *,
    documents: str | None = None,
    format: str | None = None,
    field: str | None = None,
    quotes: bool = True,
    skip_bad_records: bool = False,
    words: str | None = None,
    dictionary: File | None = None,
    user_dictionaries: Sequence[File] = (),
    valid_fraction: float | None = None,
    valid_input: File | Sequence[File] | None = None,
    test_input: File | Sequence[File] | None = None,
    shard_tokens: int | None = None,
    part: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Tokenizes documents into shards, as `roformer prepare` does (docs/formats.md).

    Args:
        input: files, directories and patterns (docs/formats.md): one, or a list of such. Or any other iterable of
            records, which is read once and not kept in memory: a generator, a file, a streaming data set of the package
            ``datasets``. A record is the text of a document, or a dictionary with it as ``field``.
        model: directory with a tokenizer's files.
        output: the data directory to write. One that an earlier call made is replaced.
        documents: the unit of a document in text files: ``"file"``, ``"blank-line"`` or ``"line"``. Default: a file.
        format: ``"text"``, ``"jsonl"``, ``"csv"``, ``"tsv"`` or ``"parquet"``, for all inputs. Default: by file
            extension.
        field: of a record, with its text. Default: ``"text"``.
        quotes: False: quotation marks in csv and tsv are text.
        skip_bad_records: count damaged records, rather than stop at the first.
        words: ``"jieba"``: its words are masked as a whole, in place of the tokenizer's.
        dictionary, user_dictionaries: of a tokenizer that segments.
        valid_fraction: part of the documents to hold out, drawn with ``seed``. Default: 0.05.
        valid_input: held-out documents from other files.
        test_input: documents of the split ``test``.
        shard_tokens: tokens after which a new shard starts.
        part: ``"2/4"``: the second of four parts of the input, for :func:`merge`.
        seed: selects the held-out documents. Default: 1.
        threads, verbose: as for :func:`roformer_cpp.pretrain`.

    Returns:
        The result of the command: numbers of ``documents``, ``train_tokens``, ``valid_tokens`` and others.

    Raises:
        ValueError: an argument, or a record, breaks a rule.
        FileNotFoundError: an input or the model does not exist.
        RuntimeError: a file is damaged, or the program was killed.
        ImportError: the program is not there.
    """
    given = dict(locals())
    model, output = _checks.directory("prepare", model), _checks.path("prepare", "the output", output)
    return _result("prepare", given | {"model": model, "output": output})


def merge(input: Sequence[File], output: File, *, verbose: bool = False) -> dict[str, Any]:
    """Joins the parts that :func:`prepare` made of an input to the shards of a call without ``part``, as
    `roformer merge` does (docs/formats.md).

    Args:
        input: the directories of all parts, in any order.
        output: the data directory to write. One that an earlier call made is replaced.
        verbose: as for :func:`roformer_cpp.pretrain`.

    Returns:
        The result of the command, as for :func:`prepare`.

    Raises:
        ValueError: a part is missing, given twice, or made with other settings than the first.
        FileNotFoundError, RuntimeError, ImportError: as for :func:`prepare`.
    """
    directories = [_checks.directory("merge", each, "part's") for each in input]
    output = _checks.path("merge", "the output", output)
    return _result("merge", {"input": directories, "output": output, "verbose": verbose})


def _json_lines(command: str, records: Records, field: str) -> Iterator[bytes]:
    for number, record in enumerate(records, 1):
        text = record.get(field) if isinstance(record, Mapping) else record
        if not isinstance(text, str):
            got = _checks.shown(record)
            raise TypeError(f'[{command}] record {number} must be a text or have one as "{field}", got {got}')
        yield json.dumps({"text": text}).encode() + b"\n"


def _result(command: str, given: dict[str, Any]) -> dict[str, Any]:
    lines = None
    source = given["input"]
    if isinstance(source, Mapping):  # such as all splits of a data set
        raise TypeError(f"[{command}] input must be files or records, got a dictionary with {_checks.shown([*source])}")
    if isinstance(source, Iterable) and not isinstance(source, (str, bytes, os.PathLike, list, tuple)):
        if given["format"] is not None:
            raise ValueError(f"[{command}] format must be None for records, got {given['format']}")
        lines = _json_lines(command, source, given["field"] or "text")
        given = given | {"input": "-", "format": "jsonl", "field": None}
    child, is_finished = _child.run(command, _child.options(command, given), verbose=given["verbose"], lines=lines)
    if not is_finished:
        raise RuntimeError(f"[{command}] the program must end by itself, got a signal that stopped it")
    return child.results[-1]
