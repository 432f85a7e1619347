"""Trained models without PyTorch: vectors, masks, predictions and continuations of texts."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import _checks, _native

_engine = _native.load()

POOLINGS = ("cls", "last", "max", "mean", "mean-sqrt-len", "pooler", "weighted-mean")
CACHE_PRECISIONS = ("auto", "bfloat16", "int8")
TASKS = ("embed", "fill-mask", "generate", "predict")


class Engine:
    """A model directory, opened by the engine (docs/engine.md says which models).

    Calls release the GIL: several threads may use one engine concurrently, and ``await asyncio.to_thread(engine.embed,
    texts)`` does not block an event loop. The result of a text does not depend on the other texts of a call, nor on the
    number of threads.

    Args:
        model_dir: a model directory, also of sentence-transformers or a training run; a GGUF file; or an id of the
            Hugging Face Hub, which is downloaded if ``huggingface_hub`` is installed.
        precision: of weights and computation; ``"bf16"`` is ``"bfloat16"``, ``"fp32"`` ``"float32"``.
        token_budget: maximum tokens of a batch; affects memory, not results.
        threads: number of threads, 1 to 1024. Default: as many as OpenMP uses (``OMP_NUM_THREADS``, else all
            processors).
        task: the method to open now. Other methods open their parts at their first call, with a second copy of the
            weights in memory. Default: the task of the directory.
        pooling: of token vectors: ``"cls"``, ``"last"``, ``"max"``, ``"mean"``, ``"mean-sqrt-len"``, ``"pooler"``,
            ``"weighted-mean"``, or several, which are concatenated. This and the following arguments are for vectors,
            and replace what the directory says (docs/embeddings.md).
        normalize: whether vectors have length 1.
        dimensions: number of leading elements to keep; a normalized vector is normalized again.
        max_length: tokens of a text with its special tokens; a longer text is truncated, or refused with
            ``long_texts="refuse"``.
        prompt: text before each text.
        prompt_name: one of the directory's prompts.
        role: the kind of the texts, ``"query"`` or ``"document"``: gives them the prompt of that name, and the modules
            and lengths that the model has for it.
        adapter: a folder with an adapter of PEFT (LoRA), which is added to the weights; or the task of a model that has
            adapters (jina-embeddings-v3), with its prompt if no other is given.
        cache_precision: of the keys and values that ``generate`` keeps; ``"auto"``: as computed
            (docs/generation.md).
        draft: a draft model with the same vocabulary, for speculative decoding in ``generate`` (docs/generation.md).

    Raises:
        FileNotFoundError: the directory or a file that it must have does not exist.
        RuntimeError: a file is damaged, or describes a model that is not supported.
        ValueError, TypeError: an argument breaks a rule. Every message reads ``[where] rule, got value``.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike,
        *,
        precision: Literal["float32", "bfloat16", "int8"] = "float32",
        token_budget: int = 4096,
        threads: int | None = None,
        task: Literal["embed", "fill-mask", "generate", "predict"] | None = None,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        max_length: int | None = None,
        long_texts: Literal["truncate", "refuse"] = "truncate",
        prompt: str | None = None,
        prompt_name: str | None = None,
        role: Literal["query", "document"] | None = None,
        adapter: str | os.PathLike | None = None,
        cache_precision: Literal["auto", "bfloat16", "int8"] = "auto",
        draft: str | os.PathLike | None = None,
    ):
        where = "engine"
        options = _checks.engine_options(where, precision, token_budget, threads)
        options |= _checks.given(where, _checks.choice, _checks.ROLES, role=role)
        options["long_texts"] = _checks.choice(where, "long_texts", long_texts, ("truncate", "refuse"))
        options |= _checks.given(where, _checks.choice, TASKS, task=task)
        if adapter is not None and (Path(adapter) / "adapter_config.json").is_file():
            adapter = os.fspath(adapter)
        elif adapter is not None:
            options["task"] = _checks.choice(where, "task with an adapter", task or "embed", ("embed",))
        if pooling is not None:
            names = [pooling] if isinstance(pooling, str) else list(pooling)
            options["pooling"] = [_checks.choice(where, "pooling", name, POOLINGS) for name in names]
        options |= _checks.given(where, _checks.boolean, normalize=normalize)
        options |= _checks.given(where, _checks.integer, 1, dimensions=dimensions, max_length=max_length)
        options |= _checks.given(where, _checks.text, prompt=prompt, prompt_name=prompt_name, adapter=adapter)
        options["cache_precision"] = _checks.choice(where, "cache_precision", cache_precision, CACHE_PRECISIONS)
        if draft is not None:
            options["draft"] = _checks.model(where, draft)
        self._engine = _engine.Engine(_checks.model(where, model_dir), json.dumps(options))
        self._options = options
        self._embedding_info: dict[str, Any] | None = None
        self._warn()

    def __repr__(self) -> str:
        return f"Engine({self.model_dir!r}, precision={self._options['precision']!r})"

    @property
    def model_dir(self) -> str:
        """The directory that is open; for a training run that of its newest checkpoint."""
        return self._engine.model_dir()

    # ---- vectors

    def embed(self, texts: str | Iterable[str], *, prompt: str | None = None) -> np.ndarray:
        """The vectors of texts.

        Args:
            texts: a list of strings, or one string.
            prompt: text before each text, in place of the engine's.

        Returns:
            float32 ``[texts, dimensions]``; of one string ``[dimensions]``.
        """
        listed, is_one = _checks.texts("embed", "texts", texts)
        vectors = self._engine.embed(listed, _prompt("embed", prompt))
        self._warn()
        return vectors[0] if is_one else vectors

    def embed_stream(
        self, texts: Iterable[str], *, batch: int = 256, prompt: str | None = None
    ) -> Iterator[np.ndarray]:
        """The vectors of any number of texts, in order and in constant memory.

        Args:
            texts: strings, for example the lines of a file; read when their vectors are needed.
            batch: texts that are read and computed together.
            prompt: text before each text, in place of the engine's.

        Returns:
            An iterator of float32 ``[dimensions]``, one for each text.
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise TypeError(f"[embed] texts must be an iterable of strings, got {_checks.kind(texts)}")
        size, prompt = _checks.integer("embed", "batch", batch, 1), _prompt("embed", prompt)

        def vectors() -> Iterator[np.ndarray]:
            source = iter(texts)
            while block := list(islice(source, size)):
                yield from self.embed(block, prompt=prompt)

        return vectors()

    def encode(self, texts: str | Iterable[str], *, prompt: str | None = None) -> list[np.ndarray] | np.ndarray:
        """The last hidden states of texts, of all tokens with the special ones.

        Args:
            texts, prompt: as for :meth:`embed`.

        Returns:
            float32 ``[tokens, hidden_size]`` for each text; for one string the array alone. Equal texts share an array.
        """
        listed, is_one = _checks.texts("encode", "texts", texts)
        states, begins, sequences = self._engine.hidden(listed, _prompt("encode", prompt))
        self._warn()
        rows = np.split(states, begins[1:-1]) if len(begins) > 1 else []
        arrays = [rows[sequence] for sequence in sequences.tolist()]
        return arrays[0] if is_one else arrays

    @property
    def embedding_info(self) -> dict[str, Any]:
        """Facts about the vectors: ``dimensions``, and ``width`` before they were cut to ``dimensions``;
        ``max_length``, ``pooling``, ``normalized``, ``prompt``, ``prompts`` by name; and ``similarity``, for which the
        model was trained (cosine, dot, euclidean, manhattan)."""
        if self._embedding_info is None:
            self._embedding_info = json.loads(self._engine.embedding_info())
            self._warn()
        return dict(self._embedding_info)

    # ---- heads

    def fill_mask(self, texts: str | Iterable[str], *, top_k: int = 5) -> list:
        """The most probable tokens for each mask of a text.

        Args:
            texts: with one or more mask tokens, such as ``[MASK]`` or ``<mask>``: a list of strings, or one string.
            top_k: tokens for each mask.

        Returns:
            For each text a list of its masks, each a list of dictionaries ``token``, ``id`` and ``probability``, the
            most probable first; for one string the list of its masks.
        """
        listed, is_one = _checks.texts("fill-mask", "texts", texts)
        results = json.loads(self._engine.fill_mask(listed, _checks.integer("fill-mask", "top_k", top_k)))
        self._warn()
        return results[0] if is_one else results

    def predict(self, records: str | dict | Iterable[str | dict]) -> Any:
        """Predictions of a fine-tuned model (docs/finetuning.md has the fields and keys of each task), or the scores of
        pairs, ``text`` and ``pair``, of a ``CrossEncoder`` on a language model.

        Args:
            records: dictionaries with the task's fields, such as ``{"text": .., "pair": ..}``; a string is a record of
                one text. A list, or one record.

        Returns:
            A dictionary for each record, for example with ``label`` and ``probabilities``; for one record that alone.
        """
        where, is_one = "predict", isinstance(records, (str, dict))
        if not is_one and (isinstance(records, (bytes, bytearray)) or not isinstance(records, Iterable)):
            raise TypeError(f"[{where}] records must be strings or dictionaries, got {_checks.kind(records)}")
        listed = [records] if is_one else list(records)
        for index, record in enumerate(listed):
            if not isinstance(record, (str, dict)):
                raise TypeError(
                    f"[{where}] a record must be a string or a dictionary, got {_checks.kind(record)} at {index}"
                )
        results = json.loads(self._engine.predict(_json(where, listed)))
        self._warn()
        for result in results:
            del result["index"], result["line"]
        return results[0] if is_one else results

    def generate(
        self,
        prompts: str | Iterable[str],
        *,
        max_new_tokens: int = 64,
        min_new_tokens: int = 0,
        sample: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int | None = None,
        beams: int | None = None,
        length_penalty: float | None = None,
        num_return_sequences: int = 1,
        stop: Sequence[str] | None = None,
        json_schema: Mapping[str, Any] | bool | None = None,
        batch: int = 8,
        stream: bool = False,
        draft_tokens: int = 4,
    ) -> "Generations | TextStream":
        """Texts that a causal language model continues (docs/generation.md).

        Args:
            prompts: a list of strings, or one string.
            max_new_tokens: maximum number of new tokens.
            min_new_tokens: minimum number of new tokens.
            sample: draw tokens from their distribution; implied by ``temperature``, ``top_k`` and ``top_p``. Default:
                greedy search.
            temperature: of sampling, divides the logits.
            top_k: draw from the k most probable tokens only.
            top_p: nucleus sampling: draw from the smallest set of tokens whose total probability is at least p; 1: all.
            repetition_penalty: above 1, tokens that occur already become less probable.
            presence_penalty: subtracted once from the logit of each token that the new text has.
            frequency_penalty: the same, for each occurrence.
            seed: of sampling, and only with it; the result of a prompt is a function of it. Default: 0.
            beams: beam search with this number of beams.
            length_penalty: with ``beams``: results are ranked by log-probability over tokens^penalty. Default: 1.
            num_return_sequences: results per prompt: 1 for greedy search, at most ``beams`` (the best) for beam search.
            stop: strings that end a text, which keeps them, or special tokens; they replace the tokens that end a text
                in the tokenizer. ``[]``: nothing ends a text.
            json_schema: constrains each text to JSON of this schema (docs/generation.md), unless ``max_new_tokens``
                cuts it; True: any JSON value. Not with ``beams`` or ``min_new_tokens``.
            batch: sequences per batch; affects speed, not results.
            stream: of one string, without beams: returns an iterator over the parts of its text.
            draft_tokens: tokens that the draft model proposes at each step.

        Returns:
            For each prompt a list of ``num_return_sequences`` dictionaries: the new ``text``, its ``ids``, their summed
            ``log_probability`` (natural logarithm), ``stopped`` (True if a stop string or token ended it, False at
            ``max_new_tokens``), and with beams ``score``; for one string its list. The returned list has ``tokens``,
            ``seconds`` and ``tokens_per_second`` of the call. With ``stream`` a :class:`TextStream`.
        """
        where = "generate"
        listed, is_one = _checks.texts(where, "prompts", prompts)
        integers = dict(max_new_tokens=max_new_tokens, min_new_tokens=min_new_tokens, batch=batch)
        integers |= dict(num_return_sequences=num_return_sequences, draft_tokens=draft_tokens)
        options = {name: _checks.integer(where, name, value) for name, value in integers.items()}
        numbers = dict(repetition_penalty=repetition_penalty, presence_penalty=presence_penalty)
        numbers |= dict(frequency_penalty=frequency_penalty)
        options |= {name: _checks.number(where, name, value) for name, value in numbers.items()}
        given = _checks.given(where, _checks.number, temperature=temperature, top_p=top_p)
        given = _checks.given(where, _checks.integer, top_k=top_k) | given
        options |= given | {"sample": _checks.boolean(where, "sample", sample) or bool(given)}
        if beams is not None:
            if options["sample"]:
                raise ValueError(f"[{where}] beams must be without sampling, got {next(iter(given), 'sample')}")
            options["beams"] = _checks.integer(where, "beams", beams)
        if length_penalty is not None:
            if beams is None:
                raise ValueError(f"[{where}] length_penalty must be with beams, got none")
            options["length_penalty"] = _checks.number(where, "length_penalty", length_penalty)
        if seed is not None:
            if not options["sample"]:
                raise ValueError(f"[{where}] seed must be with sampling, got none")
            options["seed"] = _checks.integer(where, "seed", seed, 0)
        if stop is not None:
            if isinstance(stop, str):
                raise TypeError(f"[{where}] stop must be a list of strings, got a string")
            options["stop"] = [_checks.text(where, "a stop string", each) for each in stop]
        if json_schema is not None:
            options["json_schema"] = _json(where, json_schema)
        if _checks.boolean(where, "stream", stream):
            if not is_one or beams is not None or num_return_sequences != 1:
                raise ValueError(f"[{where}] stream must be with one string, without beams and num_return_sequences")
            text = TextStream(self._engine.stream(listed, _json(where, options)))
            self._warn()
            return text
        begin = time.perf_counter()
        results = json.loads(self._engine.generate(listed, _json(where, options)))
        seconds = time.perf_counter() - begin
        self._warn()
        tokens = sum(len(sequence["ids"]) for result in results for sequence in result)
        for result in results if beams is None else ():
            for sequence in result:
                del sequence["score"]
        return Generations(results[0] if is_one else results, tokens, seconds)

    # ----

    def __reduce__(self):
        """Opens the directory again, for the same results."""
        return partial(type(self), self._engine.model_dir(), **self._options), ()

    def _warn(self) -> None:
        _native.give_warnings(self._engine, stacklevel=3)


class Generations(list):
    """The results of ``Engine.generate``, and its speed.

    Attributes:
        tokens: number of new tokens of all results.
        seconds: wall time of the call, prompts included.
    """

    def __init__(self, results: list, tokens: int, seconds: float):
        super().__init__(results)
        self.tokens, self.seconds = tokens, seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


class TextStream(Iterator[str]):
    """The text of ``Engine.generate(.., stream=True)``: an iterator of its parts, in whole characters.

    The parts together are the ``text`` of the result without ``stream``. A part that later tokens may change waits for
    them: the bytes of an unfinished character, or a space before punctuation where the tokenizer cleans up.

    Attributes:
        result: after the end, the dictionary that ``Engine.generate`` has for the text; before it None.
        seconds: the time of computation, including the prompt, without the caller's time between the parts.
    """

    def __init__(self, stream: Any):
        self._stream = stream
        self.result: dict[str, Any] | None = None
        self.seconds = 0.0

    def __next__(self) -> str:
        if self._stream is None:
            raise StopIteration
        stream, self._stream = self._stream, None  # what raises ends it
        begin = time.perf_counter()
        part = stream.next()
        self.seconds += time.perf_counter() - begin
        if part is None:
            self.result = json.loads(stream.result())
            del self.result["score"]
            raise StopIteration
        self._stream = stream
        return part

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second; None before the end."""
        return None if self.result is None else len(self.result["ids"]) / max(self.seconds, 1e-9)


def _prompt(where: str, prompt: str | None) -> str | None:
    return None if prompt is None else _checks.text(where, "prompt", prompt)


def _json(where: str, value: object) -> str:
    try:
        result = json.dumps(value, allow_nan=False, ensure_ascii=False)
        result.encode()
    except TypeError as error:
        raise TypeError(f"[{where}] records must have a JSON form, got: {error}") from None
    except ValueError as error:
        raise ValueError(f"[{where}] records must have finite numbers and no lone surrogates, got: {error}") from None
    return result
