"""ONNX files of model directories: `python -m roformer_cpp.onnx_export MODEL OUT.onnx`.

The graph computes the engine's results, in float32, for any batch and any length up to a limit. Its inputs are
``input_ids``, ``attention_mask`` and, for models with several token types, ``token_type_ids``, int64
[batch, tokens], for multiple choice [batch, choices, tokens]; tokens do not attend to a token masked by 0. The export
needs the package onnx, but not PyTorch.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from . import _checks
from ._command import exit_code

OPSETS = (17, 23)
TASKS = ("embed", "hidden", "logits")
WHERE = "export_onnx"
# A file of protocol buffers holds less than 2 GiB.
_LARGEST_FILE_BYTES = 2**31 - 2**20
_MODEL_SUFFIXES = (".json", ".safetensors", ".txt")  # of files that are read


def export_onnx(
    model_dir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    opset: Literal[17, 23] = 23,
    task: Literal["embed", "hidden", "logits"] | None = None,
    length: int | None = None,
    external_data: bool | None = None,
) -> dict[str, Any]:
    """Writes a model directory as an ONNX file (docs/convert.md says which models).

    Args:
        model_dir: a directory that ``Engine`` opens.
        path: the file to write. It is replaced as a whole, or not at all.
        opset: 23 uses the operators RotaryEmbedding and Attention; 17 is for older runtimes, and is composed of
            products and a softmax.
        task: ``"embed"``, the vectors that ``Engine.embed`` gives, as ``sentence_embedding`` [batch, dimensions];
            ``"logits"`` of the head: ``logits`` [batch, tokens, vocab_size or labels], [batch, labels] or
            [batch, choices], or
            ``start_logits`` and ``end_logits`` [batch, tokens]; ``"hidden"``: ``last_hidden_state`` [batch, tokens,
            hidden_size], and ``pooler_output`` [batch, hidden_size] of a model with a pooler. Default: ``"embed"``
            with a modules.json that is not a CrossEncoder's, else ``"logits"`` where config.json names a head, else
            ``"hidden"``.
        length: tokens of the longest sequence that the graph reads; tables by position have a row for each. Default:
            ``max_position_embeddings``, or less where the model reads less.
        external_data: whether weights are in a second file, ``path`` with ``.data`` at its end. Default: where they
            are 2 GiB or more, which one file cannot hold.

    Returns:
        ``outputs``, their names; ``length``; ``opset``; ``bytes`` of all files.

    Raises:
        ImportError: the package onnx is missing.
        FileNotFoundError, RuntimeError: as for ``Engine``.
        ValueError, TypeError: an argument breaks a rule; the model has causal linear attention, or a position encoding
            without a graph.
    """
    if _checks.integer(WHERE, "opset", opset) not in OPSETS:
        raise ValueError(f"[{WHERE}] opset must be 17 or 23, got {_checks.shown(opset)}")
    _checks.given(WHERE, _checks.choice, TASKS, task=task)
    _checks.given(WHERE, _checks.integer, 1, length=length)
    _checks.given(WHERE, _checks.boolean, external_data=external_data)
    model_dir = _checks.directory(WHERE, model_dir)
    target = _target(path, model_dir)
    graph, properties = _build(model_dir, opset, task, length)
    size = _save(graph, properties, target, external_data)
    return {"outputs": graph.output_names, "length": int(properties["max_tokens"]), "opset": opset, "bytes": size}


def _target(path: str | os.PathLike, model_dir: str) -> Path:
    target = Path(_checks.path(WHERE, "the file", path))
    given = target  # of a pipe, /dev/stdout leads to a name that does not exist
    if target.is_symlink():  # what it leads to is replaced, as with an open file
        target = target.resolve()
    if target.is_dir():
        raise ValueError(f"[{WHERE}] the file must not be a directory, got {target}")
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"[{WHERE}] the folder of the file must exist, got {target.parent}")
    for written in (given, target, target.with_name(f"{target.name}.data")):  # the last of external_data
        if written.exists() and not written.is_file():
            raise ValueError(f"[{WHERE}] only a regular file is replaced, got the device or pipe {written}")
        for read in Path(model_dir).rglob("*"):
            if read.suffix in _MODEL_SUFFIXES and written.exists() and read.exists() and written.samefile(read):
                raise ValueError(f"[{WHERE}] the file must not replace one of the model, got {written}")
    return target


def _build(model_dir: str, opset: int, task: str | None, length: int | None) -> tuple[Any, dict[str, str]]:
    """The graph, and the metadata of the file."""
    _checks.needed("onnx", f"[{WHERE}] the package onnx must be installed (pip install onnx)")
    from ._model_files import ModelFiles
    from ._onnx import heads
    from ._onnx.encoder import Encoder
    from ._onnx.graph import Graph
    from ._onnx.position import read_position

    scored = heads.cross_encoder_dir(model_dir)
    if task is None and not scored and os.path.lexists(Path(model_dir) / "modules.json"):
        task = "embed"  # the engine refuses a dead link
    modules = None
    if task == "embed":
        from .engine import Engine

        engine = Engine(model_dir, task="embed")
        modules = heads.SentenceModules(WHERE, engine.model_dir, engine.embedding_info)
        del engine
        files = ModelFiles(WHERE, modules.encoder_dir, bare=True)
    else:
        files = ModelFiles(WHERE, scored or model_dir, bare=task == "hidden")
    has_head = bool(files.head["stages"])
    if not has_head and task == "logits":
        rule = "the head must be a language model's, one of classes, of tokens, of answers or of choices"
        raise ValueError(f'[{WHERE}] {rule}, or task must be "hidden", got {files.architecture}')
    position = read_position(WHERE, files, length)
    graph = Graph(opset)
    encoder = Encoder(graph, files, position, choices=files.head["chooses"])
    hidden = encoder.build()
    if modules:
        heads.add_embedding(graph, encoder, hidden, modules)
    elif has_head:
        heads.add_logits(graph, encoder, hidden)
    else:
        heads.add_hidden(graph, encoder, hidden)
    return graph, {"architecture": files.architecture, "max_tokens": str(position.tokens)}


def _save(graph: Any, properties: dict[str, str], target: Path, external: bool | None) -> int:
    """Writes to a folder next to the target, checks, and renames. Returns the number of bytes."""
    import onnx

    from . import __version__

    weights = graph.constant_bytes
    if external is None:
        external = weights >= _LARGEST_FILE_BYTES
    elif not external and weights >= _LARGEST_FILE_BYTES:
        raise ValueError(f"[{WHERE}] external_data must be True for 2 GiB of weights or more, got {weights} bytes")
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as folder:
        written = Path(folder) / target.name
        graph.save(written, properties["architecture"], __version__, properties, external=external)
        onnx.checker.check_model(str(written), full_check=True)
        files = sorted(Path(folder).iterdir(), reverse=True)  # the weights first
        size = sum(file.stat().st_size for file in files)
        for file in files:
            file.replace(target.absolute().parent / file.name)
    return size


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m roformer_cpp.onnx_export", description="Writes a model directory as an ONNX file."
    )
    parser.add_argument("model", help="a directory that the engine opens")
    parser.add_argument("output", help="the file to write, such as model.onnx")
    parser.add_argument("--opset", type=int, default=23, help="23 (default), or 17 for older runtimes")
    parser.add_argument("--task", help="embed, logits or hidden; default: the task of the directory")
    parser.add_argument("--length", type=int, help="tokens of the longest sequence; default: the model's")
    parser.add_argument("--external-data", action="store_true", help="weights in a second file, OUTPUT.data")
    given = vars(parser.parse_args(arguments))
    model, output, external = (given.pop(name) for name in ("model", "output", "external_data"))

    def work() -> None:
        print(json.dumps({"output": output} | export_onnx(model, output, external_data=external or None, **given)))

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
