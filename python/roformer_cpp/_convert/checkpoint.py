"""A checkpoint between its source and its target: a configuration, tensors, and files that are copied."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks
from .._model_files import Stored

WHERE = "convert"


@dataclass
class Checkpoint:
    """``written``: files made here, by name. ``copied``: files of the source, by their paths in the target."""

    config: dict[str, Any]
    tensors: dict[str, Stored]
    written: dict[str, str] = field(default_factory=dict)
    copied: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # names of the source's tensors


def read_json(path: Path) -> dict[str, Any]:
    """An object; FileNotFoundError and ValueError say what else there is."""
    if not path.is_file():
        raise FileNotFoundError(f"[{WHERE}] the source must have {path.name}, got none in {path.parent}")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"[{WHERE}] {path} must be JSON, got: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"[{WHERE}] {path} must be a JSON object, got {type(value).__name__}")
    return value


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def named(names: list[str], most: int = 5) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(_checks.short, sorted(names)[:most])) + more


def current_names(tensors: dict[str, Stored]) -> dict[str, Stored]:
    """With the names that transformers has now: ``weight`` and ``bias`` for a layer norm's ``gamma`` and ``beta``, and
    ``bert.`` for ``nezha.``, whose class it no longer has. Two tensors of one name are a ValueError."""
    renamed: dict[str, Stored] = {}
    for name, tensor in tensors.items():
        new = name
        for old, now in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
            if new.endswith(old):
                new = new.removesuffix(old) + now
        if new.startswith("nezha."):
            new = "bert." + new.removeprefix("nezha.")
        if new in renamed:
            raise ValueError(f"[{WHERE}] tensor names must be unique, got two for {_checks.short(new)}")
        renamed[new] = tensor
    return renamed


def write_safetensors(path: Path, tensors: dict[str, Stored]) -> None:
    """Of bfloat16 it needs the package ml_dtypes."""
    from safetensors.numpy import save_file

    def array(stored: Stored) -> np.ndarray:
        values = np.asarray(stored.array, order="C")
        if stored.dtype != "BF16":
            return values
        rule = f"[{WHERE}] weights of bfloat16 need the package ml_dtypes (pip install ml_dtypes)"
        return values.view(_checks.needed("ml_dtypes", rule).bfloat16)

    save_file({name: array(stored) for name, stored in tensors.items()}, path, {"format": "pt"})
