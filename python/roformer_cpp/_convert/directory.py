"""The directory that a conversion writes: whole, under its name, or not at all."""

import filecmp
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .checkpoint import WHERE


def check_target(source: Path, target: Path, *, overwrite: bool) -> None:
    """Raises ValueError for a target that is the source or inside it, a file, or a directory with something in it that
    is not a model directory or not to be overwritten; FileNotFoundError for one in a folder that does not exist."""
    folder, given = (source if source.is_dir() else source.parent).resolve(), target.resolve()
    if given == folder or given in folder.parents or (source.is_dir() and folder in given.parents):
        raise ValueError(f"[{WHERE}] target and source must not be, or lie inside, each other, got {target}")
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"[{WHERE}] the folder of the target must exist, got {target.absolute().parent}")
    if not os.path.lexists(target):
        return
    if not target.is_dir() or target.is_symlink():
        raise ValueError(f"[{WHERE}] the target must be a directory, got the file {target}")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise ValueError(f"[{WHERE}] the target must be new or empty without overwrite, got {target} with files in it")
    if not (target / "config.json").is_file():
        raise ValueError(f"[{WHERE}] only a model directory is overwritten, got {target} without config.json")
    for path in sorted(target.rglob("*")):
        if not _is_of_model(path, target) and not _is_copy(path, folder / path.relative_to(target)):
            rule = "only a model directory is overwritten, with nothing else in it"
            raise ValueError(f"[{WHERE}] {rule}, got {path} (move it, or choose another target)")


# Files of model directories, as this package, transformers and sentence-transformers name them; and folders of
# sentence-transformers' modules.
_FILES = re.compile(
    r"config\.json|generation_config\.json|(model|pytorch_model|position_terms|adapter_model|(colbert|sparse)_linear)"
    r"(-\d+-of-\d+)?"
    r"\.(safetensors|bin)(\.index\.json)?|tokenizer(_config)?\.json|vocab\.(txt|json)|merges\.txt|dict\.txt"
    r"|user_dict\.txt|special_tokens_map\.json|added_tokens\.json|task\.json|modules\.json|tokenizer\.model"
    r"|sentence_bert_config\.json|config_sentence_transformers\.json|(tf|flax)_model\.(h5|msgpack)|training_args\.bin"
)
_MODULE = re.compile(r"\d+_[A-Z]\w*")


def _is_of_model(path: Path, folder: Path) -> bool:
    *modules, name = path.relative_to(folder).parts
    if any(_MODULE.fullmatch(module) is None for module in modules) or len(modules) > 1 or path.is_symlink():
        return False
    return _MODULE.fullmatch(name) is not None if path.is_dir() else _FILES.fullmatch(name) is not None


def _is_copy(path: Path, of: Path) -> bool:
    """Of a file or folder of the source, which is copied again."""
    if path.is_dir():
        return of.is_dir() and not path.is_symlink()
    return path.is_file() and of.is_file() and filecmp.cmp(path, of, shallow=False)


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A temporary directory next to the target. It is renamed to the target at the end of the block, or removed
    after an error."""
    target = target.absolute()
    folder = target.parent / f".{target.name}.converting-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
        _publish(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, target: Path) -> None:
    if not target.is_dir() or not any(target.iterdir()):
        folder.replace(target)
        return
    old = folder.with_name(f"{folder.name}.old")
    target.replace(old)
    try:
        folder.replace(target)
    except OSError:
        old.replace(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
