"""The kernels compiled for NVIDIA and AMD GPUs, without one: no register is spilled, and memory is accessed in units of
16 bytes. What the interpreter accepts and the compiler refuses fails here."""

import pytest

from compiled_kernels import compiled_by

# Tensors of the sizes of a model; `compiled` launches nothing. Prints [[name, spilled bytes, widths of accesses, ..]].
SCRIPT = """
import json, re, sys
import torch
import roformer_cpp
from kernel_compiler import compiled
roformer_cpp.rope
from roformer_cpp.gpu import dropout, library, rope, rope_table

library.missing = lambda device: None

def rotations(dtype, layout, rotary_dim=64):
    q, k = torch.zeros(2, 64, 12, 128, dtype=dtype), torch.zeros(2, 64, 2, 128, dtype=dtype)
    rows = torch.zeros(2, 64, rotary_dim // 2, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    rope.rotate(q, rows, rows, layout)
    rope.rotate_pair(q, k, rows[:1], rows[:1], layout, direction="transpose", inplace=True)

def every():
    for dtype, layout in [(torch.bfloat16, "pairs"), (torch.float16, "halves"), (torch.float32, "pairs"),
                          (torch.float64, "halves")]:
        rotations(dtype, layout)
        dropout.dropout(torch.zeros(64, 128, dtype=dtype), 0.1, -1, 2**40)
    high, low = rope_table.frequencies(10000.0, 64, torch.device("cpu"))
    rope_table.rope_table(torch.arange(64), high, low)
    rope_table.rope_table(torch.zeros(2, 64, dtype=torch.float64), high.expand(2, 2, 32)[:, :1], dtype=torch.float64)

def accesses(ptx):
    return sorted(set(re.findall(r"(?:ld|st)\\.global[^ ]*", ptx)))

arch = sys.argv[1]
kernels = compiled(int(arch) if arch.isdigit() else arch, every)
print(json.dumps([[k.name, k.spilled_bytes, accesses(k.asm.get("ptx", "")), sorted(set(re.findall(
    r"(?:mul|add|sub)[.]f64", k.asm.get("ptx", ""))))] for k in kernels]))
"""


@pytest.mark.parametrize("arch", ["90", "gfx942"])
def test_kernels_compile(arch, tmp_path):
    kernels = compiled_by(SCRIPT, tmp_path, arch)
    assert [name for name, *_ in kernels].count("_rotate_kernel") == 8 and len(kernels) == 14
    for name, spilled_bytes, accesses, contractible in kernels:
        assert spilled_bytes == 0, name
        if arch != "gfx942" and name != "_rope_table_kernel":
            assert any(".v4.b32" in each or ".v2.b64" in each for each in accesses), (name, accesses)
        if name == "_rope_table_kernel":
            assert contractible == [], "Dekker's products need .rn operations, which are not contracted"
