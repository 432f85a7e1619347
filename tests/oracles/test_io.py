"""io against safetensors and NumPy: the same bytes both ways (R-HF-01). tests/io has what is refused."""

import json
import struct

import numpy as np
import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

from io_probe import ProbeError, io_probe

TORCH_DTYPES = {"BOOL": torch.bool, "F16": torch.float16, "BF16": torch.bfloat16}
TORCH_DTYPES |= {"F32": torch.float32, "F64": torch.float64}
TORCH_DTYPES |= {f"I{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)}
TORCH_DTYPES |= {f"U{bits}": getattr(torch, f"uint{bits}") for bits in (8, 16, 32, 64)}
SHAPES = ((), (1,), (3,), (2, 3), (0,), (4, 0, 2), (2, 1, 3, 1))
NUMPY_DTYPES = ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")


def raw_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def random_tensors() -> dict[str, torch.Tensor]:
    """Every dtype in every shape, with random bits (NaN payloads included)."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, dtype in TORCH_DTYPES.items():
        for shape in SHAPES:
            count = int(np.prod(shape, dtype=np.int64))
            size = torch.empty((), dtype=dtype).element_size()
            high = 2 if dtype == torch.bool else 256
            bits = torch.randint(0, high, (max(count, 1) * size,), generator=generator, dtype=torch.uint8)
            tensors[f"{name}.{'x'.join(map(str, shape))}"] = bits.view(dtype)[:count].reshape(shape)
    return tensors


def test_reads_what_safetensors_writes(tmp_path):
    tensors = random_tensors()
    save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "pt", "说明": "é\n"})
    seen = io_probe("tensors", tmp_path / "m.safetensors")
    assert seen["metadata"] == {"format": "pt", "说明": "é\n"}
    assert {t["name"] for t in seen["tensors"]} == set(tensors)
    for entry in seen["tensors"]:
        expected = tensors[entry["name"]]
        assert entry["dtype"] == entry["name"].split(".")[0]
        assert entry["shape"] == list(expected.shape)
        assert bytes.fromhex(entry["hex"]) == raw_bytes(expected), entry["name"]


def test_safetensors_reads_what_we_write(tmp_path):
    tensors = random_tensors()
    save_file(tensors, tmp_path / "in.safetensors", metadata={"format": "pt"})
    io_probe("copy-tensors", tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    loaded = load_file(tmp_path / "out.safetensors")
    assert set(loaded) == set(tensors)
    for name, tensor in tensors.items():
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape)
        assert raw_bytes(loaded[name]) == raw_bytes(tensor), name
    with safetensors.safe_open(tmp_path / "out.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_reads_header_that_is_not_aligned(tmp_path):
    path, data = tmp_path / "odd.safetensors", struct.pack("<f", 1.5)
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode() + b" " * 3
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    (tensor,) = io_probe("tensors", path)["tensors"]
    assert bytes.fromhex(tensor["hex"]) == data


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [*((dtype, (2, 3)) for dtype in NUMPY_DTYPES), *(("f4", shape) for shape in SHAPES if shape != (2, 3))],
)
def test_npy_round_trip(tmp_path, dtype, shape):
    rng = np.random.default_rng(0)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        array = rng.standard_normal(shape).astype(kind)
    elif kind.kind == "b":
        array = rng.random(shape) < 0.5
    else:
        low = 0 if kind.kind == "u" else np.iinfo(kind).min
        array = rng.integers(low, min(np.iinfo(kind).max, 2**63 - 1), shape, dtype=kind, endpoint=True)
    array = np.asarray(array)
    np.save(tmp_path / "in.npy", array)
    seen = io_probe("npy", tmp_path / "in.npy", tmp_path / "out.npy")
    assert seen["shape"] == list(shape)
    if kind.kind != "f":
        assert seen["integers"] == array.astype(np.int64).flatten().tolist()
    again = np.load(tmp_path / "out.npy", allow_pickle=False)
    assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(tmp_path, version):
    with (tmp_path / "in.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(6).reshape(2, 3), version=version)
    assert io_probe("npy", tmp_path / "in.npy", tmp_path / "out.npy")["integers"] == list(range(6))


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.asfortranarray(np.ones((2, 3))), "Fortran"),
        (np.ones(3, dtype=">f4"), "little-endian"),
        (np.array([{}], dtype=object), "pickles"),
        (np.ones(2, dtype="c8"), "<c8"),
        (np.array(["ab"]), "<U2"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "M8"),
        (np.ones(2, dtype=np.longdouble), "f16"),
        (np.ones(2, dtype=[("x", "f4")]), "structured"),
    ],
)
def test_npy_refusals(tmp_path, array, word):
    np.save(tmp_path / "in.npy", array, allow_pickle=True)
    with pytest.raises(ProbeError, match=word):
        io_probe("npy", tmp_path / "in.npy", tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()
