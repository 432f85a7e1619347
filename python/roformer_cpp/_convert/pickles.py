"""Weights in pytorch_model.bin. Such a file is a pickle, which can name any code to run; it is read by PyTorch's reader
for tensors alone (``weights_only``), which runs none and refuses a file that asks for some."""

from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks
from .._model_files import Stored
from .checkpoint import WHERE, read_json

FILE = "pytorch_model.bin"
INDEX = f"{FILE}.index.json"
HEADS = ("colbert_linear.pt", "sparse_linear.pt")  # of bge-m3
_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL", "uint8": "U8"} | {
    f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)
}


def _torch() -> Any:
    return _checks.needed("torch", f"[{WHERE}] {FILE} needs PyTorch to read or write it")


def read(folder: Path) -> dict[str, Stored]:
    """The tensors of a directory with pytorch_model.bin, or with shards and their index."""
    return read_files(_files(folder))


def read_files(paths: list[Path]) -> dict[str, Stored]:
    """The tensors of files. One that asks for code, or holds something besides tensors, is a ValueError."""
    torch = _torch()
    tensors: dict[str, Stored] = {}
    for path in paths:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise FileNotFoundError(f"[{WHERE}] the source must have {path.name}, got none in {path.parent}") from None
        except Exception as error:  # of pickle, of zip files, and of PyTorch
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ValueError(f"[{WHERE}] {path} must hold tensors alone and no code, got: {first}") from None
        if not isinstance(content, dict):
            raise ValueError(f"[{WHERE}] {path} must hold tensors by name, got {type(content).__name__}")
        for name, tensor in content.items():
            if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
                kind = type(tensor).__name__
                raise ValueError(
                    f"[{WHERE}] {path} must hold tensors by name, got {kind} for {_checks.short(str(name))}"
                )
            if name in tensors:
                raise ValueError(f"[{WHERE}] a tensor must be in one file only, got {_checks.short(name)} in two")
            tensors[name] = _stored(torch, name, tensor)
    return tensors


def _files(folder: Path) -> list[Path]:
    if (folder / FILE).is_file():
        return [folder / FILE]
    shards = read_json(folder / INDEX).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ValueError(f"[{WHERE}] {folder / INDEX} must have an object weight_map, got {type(shards).__name__}")
    for name in shards.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(f"[{WHERE}] a shard must be the name of a file next to {INDEX}, got {_checks.shown(name)}")
    return [folder / name for name in sorted(set(shards.values()))]


def _stored(torch: Any, name: str, tensor: Any) -> Stored:
    dtype = _DTYPES.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None or tensor.layout != torch.strided or tensor.is_quantized:
        got = f"{tensor.dtype} for {_checks.short(name)}"
        raise ValueError(f"[{WHERE}] tensors must be dense, of a dtype of safetensors, got {got}")
    tensor = tensor.detach()  # also of parameters, which numpy does not take
    if dtype == "BF16":
        return Stored(dtype, tensor.contiguous().view(torch.int16).numpy().view(np.uint16))
    return Stored(dtype, tensor.contiguous().numpy())


def write(path: Path, tensors: dict[str, Stored]) -> None:
    """One file that ``torch.load(.., weights_only=True)`` reads."""
    torch = _torch()

    def tensor(stored: Stored) -> Any:
        array = np.array(stored.array)  # a writable copy
        if stored.dtype == "BF16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    torch.save({name: tensor(stored) for name, stored in tensors.items()}, path)
