"""Model directories out of other checkpoints: `python -m roformer_cpp.convert SOURCE TARGET`.

Reads TensorFlow checkpoints of RoFormer, WoBERT, BERT and NEZHA (by TensorFlow), pytorch_model.bin (by PyTorch, which
runs no code of it), and model directories; writes safetensors with the names that transformers has now, or
pytorch_model.bin; and changes the layout of rotary embedding. The engine opens the written model before it gets
its name.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from . import _checks
from ._command import exit_code
from ._convert import checkpoint, directory, pickles, tensorflow
from ._convert.layout import change_layout, with_layout
from ._model_files import ModelFiles, Stored

WHERE = "convert"
# Endings of files that are not copied: weights, and other pickles of programs.
_OTHER_WEIGHTS = (".bin", ".ckpt", ".h5", ".msgpack", ".onnx", ".ot", ".pkl", ".pt", ".pth")


def convert(
    source: str | os.PathLike,
    target: str | os.PathLike,
    *,
    layout: Literal["pairs", "halves"] | None = None,
    weights: Literal["safetensors", "pytorch"] = "safetensors",
    model_type: Literal["bert", "nezha", "roformer", "roformer_v2"] | None = None,
    tokenizer: Literal["bert", "roformer", "wobert"] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a checkpoint as a model directory (docs/convert.md).

    Args:
        source: a TensorFlow checkpoint (its path without ``.index``, or its directory), a directory with
            pytorch_model.bin, or a model directory. Files next to the weights are copied.
        target: the directory to write, whole or not at all.
        layout: of rotary embedding. The rows of the projections are permuted, so that all results stay the same.
            Default: unchanged.
        weights: the format to write; ``"pytorch"`` writes pytorch_model.bin, which transformers reads and this library
            does not.
        model_type: of a TensorFlow checkpoint. Default: bert where it has a table of positions, else roformer.
        tokenizer: of a TensorFlow checkpoint. ``"wobert"`` is the original tokenizer of RoFormer and WoBERT. Default:
            ``"wobert"`` if the vocabulary contains Chinese words, else ``"bert"``.
        overwrite: whether a model directory at ``target`` is replaced. It may contain only files of models and
            files that the source has too.

    Returns:
        ``architecture``; ``tensors``, their number; ``layout`` of a model that rotates, else None; ``left_out``, the
        source's tensors that are not in the target.

    Raises:
        ImportError: a package is missing: safetensors, TensorFlow for its checkpoints, PyTorch for pytorch_model.bin.
        FileNotFoundError: a file is missing.
        RuntimeError: the weights do not fit the configuration; the message names the tensor.
        ValueError, TypeError: an argument breaks a rule; a tensor does not fit anywhere; a pickle asks for code.
    """
    _checks.given(WHERE, _checks.choice, ("pairs", "halves"), layout=layout)
    _checks.choice(WHERE, "weights", weights, ("pytorch", "safetensors"))
    _checks.boolean(WHERE, "overwrite", overwrite)
    origin = Path(_checks.path(WHERE, "the source", source))
    folder = Path(_checks.path(WHERE, "the target", target))

    _checks.needed("safetensors", f"[{WHERE}] the package safetensors must be installed (pip install safetensors)")
    _checks.given(WHERE, _checks.choice, tensorflow.MODEL_TYPES, model_type=model_type)
    _checks.given(WHERE, _checks.choice, tensorflow.TOKENIZERS, tokenizer=tokenizer)
    directory.check_target(origin, folder, overwrite=overwrite)
    content = _read(origin, model_type, tokenizer)
    with directory.staging(folder) as staged:
        _copy(content, staged)
        result = _write_model(content, staged, layout)
        if weights == "pytorch":
            pickles.write(staged / pickles.FILE, content.tensors)
            (staged / "model.safetensors").unlink()
    return result | {"left_out": content.left_out}


def _read(source: Path, model_type: str | None, tokenizer: str | None) -> checkpoint.Checkpoint:
    has_safetensors = any((source / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))
    has_pickles = any((source / name).is_file() for name in (pickles.FILE, pickles.INDEX))
    if not has_safetensors and not has_pickles:
        prefix = tensorflow.find(source)
        if prefix is not None:
            return tensorflow.read(prefix, model_type, tokenizer)
        if not source.exists():
            raise FileNotFoundError(f"[{WHERE}] the source must exist, got {source}")
        raise ValueError(
            f"[{WHERE}] the source must have model.safetensors, {pickles.FILE} or a TensorFlow checkpoint, got {source}"
        )
    for name, value in (("model_type", model_type), ("tokenizer", tokenizer)):
        if value is not None:
            raise ValueError(
                f"[{WHERE}] {name} must be left to config.json of a model directory, got {_checks.shown(value)}"
            )
    config = checkpoint.read_json(source / "config.json")
    if has_safetensors:
        files = ModelFiles(WHERE, source)
        tensors = {name: files.stored(name) for name in files.native.file_names()}
    else:
        tensors = pickles.read(source)
    return checkpoint.Checkpoint(config, checkpoint.current_names(tensors), copied=_others(source))


def _others(source: Path) -> dict[str, Path]:
    """The files of a model directory without its weights and configuration, by their paths in it."""
    replaced = {"config.json", "model.safetensors", "model.safetensors.index.json", pickles.FILE, pickles.INDEX}
    found = {}
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        is_nested = path.parent != source
        is_weights = path.suffix in _OTHER_WEIGHTS or (path.suffix == ".safetensors" and "-of-" in path.stem)
        is_hidden = any(part.startswith(".") for part in relative.parts)
        if not path.is_file() or str(relative) in replaced or is_hidden:
            continue
        if not is_weights or (is_nested and path.name == pickles.FILE) or str(relative) in pickles.HEADS:
            found[str(relative)] = path
    return found


def _copy(content: checkpoint.Checkpoint, folder: Path) -> None:
    for name, path in content.copied.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if path.name == pickles.FILE:  # of a module of sentence-transformers
            checkpoint.write_safetensors(folder / Path(name).with_name("model.safetensors"), pickles.read(path.parent))
        elif name in pickles.HEADS:
            target = (folder / name).with_suffix(".safetensors")
            checkpoint.write_safetensors(target, pickles.read_files([path]))
        else:
            shutil.copyfile(path, folder / name)
    for name, value in content.written.items():
        checkpoint.write_json(folder / name, value)


def _write_model(content: Any, folder: Path, layout: str | None) -> dict[str, Any]:
    """Writes the configuration and the weights, which the engine then opens."""

    def written(config: dict[str, Any]) -> Any:
        checkpoint.write_json(folder / "config.json", config)
        checkpoint.write_safetensors(folder / "model.safetensors", content.tensors)
        return ModelFiles(WHERE, folder)

    files = written(content.config)
    is_made = bool(content.written)  # a configuration of another program
    changed = layout is not None and change_layout(files, content.tensors, layout)
    if changed or is_made or content.config.get("model_type") == "nezha":
        config = with_layout(files.written_config, layout) if changed else files.written_config
        files = _settled(written(config), content, written)
    rotations = [encoding["layout"] for encoding in files.encodings if encoding["kind"] == "rotary"]
    return {
        "architecture": files.architecture,
        "tensors": len(content.tensors),
        "layout": rotations[0] if rotations else None,
    }


def _settled(files: Any, content: Any, written: Any) -> Any:
    """With the names that follow from the configuration: its model_type, the class, and whether there is a RoFormer's
    table of positions, which transformers reads."""
    config = files.written_config
    named = config.get("architectures") or []
    # The class that has a next-sentence layer is transformers' own, and the engine's only for reading.
    if named and not (config["model_type"] == "bert" and named[0].endswith("ForPreTraining")):
        config["architectures"] = [files.architecture]
    if dtype := content.config.get("dtype", content.config.get("torch_dtype")):
        config["dtype"] = dtype
    table = f"{files.file_prefix}encoder.embed_positions.weight"
    if not files.position_table:
        content.tensors.pop(table, None)
    elif table not in content.tensors:
        content.tensors[table] = Stored("F32", files.native.computed_table())
    return written(config)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m roformer_cpp.convert",
        description="Writes a checkpoint of another program as a model directory.",
    )
    parser.add_argument("source", help="a TensorFlow checkpoint, or a directory with pytorch_model.bin or safetensors")
    parser.add_argument("target", help="the directory to write")
    parser.add_argument("--layout", help="of rotary embedding: pairs or halves")
    parser.add_argument("--weights", default="safetensors", help="safetensors (default), or pytorch")
    parser.add_argument("--model-type", help="of a TensorFlow checkpoint: bert, nezha, roformer or roformer_v2")
    parser.add_argument("--tokenizer", help="of a TensorFlow checkpoint: bert, wobert or roformer")
    parser.add_argument("--overwrite", action="store_true", help="replace a model directory at TARGET")
    given = vars(parser.parse_args(arguments))
    return exit_code(lambda: print(json.dumps(convert(**given), ensure_ascii=False)))


if __name__ == "__main__":
    sys.exit(main())
