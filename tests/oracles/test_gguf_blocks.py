"""Blocks of GGUF tensors with random bits, against llama.cpp's package gguf: the same float32."""

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES

from io_probe import ProbeError, io_probe
from rotary_decoders import close_gguf

TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K"]
TYPES += ["IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4"]
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,), "MXFP4": (), "Q8_K": ()}
HALVES |= dict.fromkeys(["Q8_0", "Q4_0", "Q5_0", "IQ4_NL", "IQ4_XS"], (0,))  # else two at the beginning
SCALES = np.array([0, -0.0, 6e-8, -3e-6, 6e-5, 1, -1.7, 300, 65504, -65504, np.inf], np.float16).view(np.uint8)


def write(path, data, kind, shape=None):
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tensor("x", data, raw_shape=shape, raw_dtype=kind)
    close_gguf(writer)


def random_blocks(name, count, random):
    blocks = random.integers(0, 256, (count, GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]), dtype=np.uint8)
    for at in HALVES.get(name, (0, 2)) if name not in ("F16", "BF16") else ():
        blocks[: count // 2, at : at + 2] = random.choice(SCALES.reshape(-1, 2), count // 2)
    return blocks


def expected(name, blocks):
    if name != "Q8_K":  # which the package does not read
        return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).ravel()
    scales = blocks[:, :4].copy().view(np.float32).astype(np.float64)
    return (scales * blocks[:, 4:260].view(np.int8)).astype(np.float32).ravel()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_random_blocks(tmp_path, name):
    blocks = random_blocks(name, 600, np.random.default_rng(len(name)))
    write(tmp_path / "x.gguf", blocks, gguf.GGMLQuantizationType[name])
    io_probe("gguf", tmp_path / "x.gguf", tmp_path / "x.npy")
    ours, theirs = np.load(tmp_path / "x.npy"), expected(name, blocks)
    assert np.isfinite(theirs).mean() > 0.5
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("name", "row"), [("Q4_K", 128), ("Q6_K", 288), ("Q8_K", 1), ("IQ4_XS", 32), ("MXFP4", 16)])
def test_rows_are_whole_blocks(tmp_path, name, row):
    kind = gguf.GGMLQuantizationType[name]
    size = GGML_QUANT_SIZES[kind][0]
    write(tmp_path / "x.gguf", np.zeros((2, size), np.float32), gguf.GGMLQuantizationType.F32)
    data = (tmp_path / "x.gguf").read_bytes()
    entry = size.to_bytes(8, "little") + (2).to_bytes(8, "little") + (0).to_bytes(4, "little")
    assert data.count(entry) == 1
    changed = row.to_bytes(8, "little") + (2).to_bytes(8, "little") + int(kind).to_bytes(4, "little")
    (tmp_path / "x.gguf").write_bytes(data.replace(entry, changed))
    with pytest.raises(ProbeError, match=f"rows of whole blocks of {size}, got {row} elements of type {name}"):
        io_probe("gguf", tmp_path / "x.gguf", tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ3_S", "IQ1_M", "NVFP4", "Q8_1", "I8"])
def test_other_types_are_refused(tmp_path, name):
    kind = gguf.GGMLQuantizationType[name]
    size = GGML_QUANT_SIZES[kind][1]
    write(tmp_path / "x.gguf", np.zeros((1, size), np.uint8), kind, shape=(1, size))
    with pytest.raises(ProbeError, match=rf'tensor "x" must be of type F32, .*MXFP4, got {name}$'):
        io_probe("gguf", tmp_path / "x.gguf", tmp_path / "x.npy")
