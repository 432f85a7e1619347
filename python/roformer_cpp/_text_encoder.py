"""Base of the encoders with names of sentence-transformers: prompts, and an engine for each role."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from . import _checks, _native

_WHERE = "encode"


class TextEncoder:
    """A model directory, with an engine for each role that has its own modules or lengths, and for each adapter."""

    _info: dict[str, Any]  # of the first engine: "by_role", "prompts", "prompt", "dimensions", "max_length", ..
    _engines: dict[str | None, Any]

    def _new_engine(self, role: str | None) -> Any:
        raise NotImplementedError

    def _engine_of(self, role: str | None) -> Any:
        tasks = self._info["tasks"]
        if role is not None:
            _checks.choice(_WHERE, "task", role, (*_checks.ROLES, *tasks))
        key = role if self._info["by_role"] or role in tasks else None
        if key not in self._engines:
            self._engines[key] = self._new_engine(key)
        return self._engines[key]

    def _open_first(self) -> Any:
        """The engine of texts without a role; for a Router without a default route, the engine of documents."""
        try:
            self._engines = {None: self._new_engine(None)}
        except RuntimeError as error:
            if "parameters.default_route is null" not in str(error):
                raise
            self._info = {"tasks": {}}
            self._engines = {"document": self._new_engine("document")}
        return next(iter(self._engines.values()))

    def _encoded(
        self,
        sentences: str | Iterable[str],
        options: tuple[str | None, str | None, int, bool | None, str | None, str | None],
        compute: Callable[[Any, list[str], str], Any],
    ) -> tuple[list, bool]:
        """``compute(engine, texts, prompt)`` of each part of the sentences, and whether they were one string."""
        prompt_name, prompt, batch_size, show_progress_bar, device, task = options
        _checks.cpu(_WHERE, device)
        _checks.integer(_WHERE, "batch_size", batch_size, 1)
        listed, is_one = _checks.texts(_WHERE, "sentences", sentences)
        named = self.default_prompt_name if prompt_name is None else prompt_name
        text = _checks.prompt(_WHERE, self.prompts, prompt, named)
        engine = self._engine_of(task)
        parts = _checks.blocks(len(listed), "sentences", show_progress_bar)
        return [compute(engine, listed[part], text) for part in parts], is_one

    def _role_options(self, role: str | None) -> dict[str, Any]:
        if role is None:
            return {}
        return {"adapter" if role in self._info["tasks"] else "role": role}

    def _set_prompts(self, prompts: dict[str, str] | None, default_prompt_name: str | None) -> None:
        self.prompts: dict[str, str] = {"query": "", "document": ""} | self._info["prompts"] | (prompts or {})
        named = [name for name, text in self._info["prompts"].items() if text == self._info["prompt"] != ""]
        self.default_prompt_name: str | None = default_prompt_name or (named[0] if named else None)
        _checks.prompt(_WHERE, self.prompts, None, self.default_prompt_name)

    def encode_query(self, sentences: str | Iterable[str], prompt_name: str | None = None, **options: Any) -> Any:
        """As ``encode`` of queries, with the prompt ``query`` if no other is given."""
        return self._encode_as("query", ("query",), sentences, prompt_name, options)

    def encode_document(self, sentences: str | Iterable[str], prompt_name: str | None = None, **options: Any) -> Any:
        """As ``encode`` of documents, with the prompt ``document``, ``passage`` or ``corpus`` if no other is given."""
        return self._encode_as("document", ("document", "passage", "corpus"), sentences, prompt_name, options)

    def _encode_as(self, task: str, prompts: tuple, sentences: Any, prompt_name: str | None, options: dict) -> Any:
        """``encode`` for a task; without a given prompt, with the first one of `prompts` that the model has."""
        if not prompt_name and options.get("prompt") is None:
            prompt_name = next((name for name in prompts if name in self.prompts), None)
        return self.encode(sentences, prompt_name=prompt_name, **{"task": task} | options)  # type: ignore[attr-defined]

    @property
    def max_seq_length(self) -> int:
        """The maximum number of tokens of a sentence, with special tokens."""
        return self._info["max_length"]

    @property
    def device(self) -> str:
        return "cpu"


class VectorEncoder(TextEncoder):
    """An encoder of vectors of a kind that the native engine alone has."""

    _VECTORS = ""

    def _open_model(
        self,
        model_name_or_path: str | os.PathLike,
        device: str | None,
        precision: Any,
        token_budget: Any,
        threads: Any,
        prompts: dict[str, str] | None,
        default_prompt_name: str | None,
        max_active_dims: int | None = None,
    ) -> None:
        _checks.cpu(_WHERE, device)
        options = _checks.engine_options(_WHERE, precision, token_budget, threads)
        if max_active_dims is not None:
            options["max_active"] = _checks.integer(_WHERE, "max_active_dims", max_active_dims, 1)
        self._model_dir = _checks.model(_WHERE, model_name_or_path)
        self._options = options | {"vectors": self._VECTORS, "task": "embed"}
        self._info = json.loads(self._open_first().embedding_info())
        self._set_prompts(prompts, default_prompt_name)

    def _new_engine(self, role: str | None) -> Any:
        options = self._options | self._role_options(role)
        engine = _native.load().Engine(self._model_dir, json.dumps(options))
        _native.give_warnings(engine, stacklevel=2)
        return engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model_dir!r}, {self._info['dimensions']} dimensions)"
