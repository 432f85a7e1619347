"""The kernels compiled for NVIDIA and AMD GPUs, without one: no register is spilled, and memory is accessed in units of
16 bytes. What the interpreter accepts and the compiler refuses fails here."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# Around the scripts, each of which defines every(); `compiled` launches nothing (kernel_compiler.py).
FRAME = """
import json, sys
import torch
import roformer_cpp
from kernel_compiler import compiled
roformer_cpp.rope
found = []
for script, arch in json.loads(sys.argv[1]):
    names = {"arch": arch}
    exec(script, names)
    kernels = compiled(arch, names["every"])
    found.append([[k.name, k.spilled_bytes, k.shared_bytes, k.asm.get("ptx", "")] for k in kernels])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The name, the bytes that are spilled and shared, and the PTX of each kernel of each script and architecture, of a
    process without the interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = [str(TESTS.parent / "python"), str(TESTS), environment.get("PYTHONPATH", "")]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    scripts = [(ROTATIONS, 90), (ROTATIONS, "gfx942"), (ATTENTION, 90), (LINEAR_ATTENTION, 80)]
    command = [sys.executable, "-c", FRAME, json.dumps(scripts)]
    found = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return dict(zip(scripts, found, strict=True))


# Tensors of the sizes of a model.
ROTATIONS = """
import torch
from roformer_cpp.gpu import dropout, library, rope, rope_table

library.missing = lambda device: None

def rotations(dtype, layout, rotary_dim=64):
    q, k = torch.zeros(2, 64, 12, 128, dtype=dtype), torch.zeros(2, 64, 2, 128, dtype=dtype)
    rows = torch.zeros(2, 64, rotary_dim // 2, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    rope.rotate(q, rows, rows, layout)
    rope.rotate_pair(q, k, rows[:1], rows[:1], layout, direction="transpose", inplace=True)

def every():
    dtypes = [(torch.bfloat16, "pairs"), (torch.float64, "halves")]
    if arch == 90:
        dtypes += [(torch.float16, "halves"), (torch.float32, "pairs")]
    for dtype, layout in dtypes:
        rotations(dtype, layout)
        dropout.dropout(torch.zeros(64, 128, dtype=dtype), 0.1, -1, 2**40)
    high, low = rope_table.frequencies(10000.0, 64, torch.device("cpu"))
    rope_table.rope_table(torch.arange(64), high, low)
    rope_table.rope_table(torch.zeros(2, 64, dtype=torch.float64), high.expand(2, 2, 32)[:, :1], dtype=torch.float64)
"""


@pytest.mark.parametrize(("arch", "dtypes"), [(90, 4), ("gfx942", 2)])
def test_rotations(arch, dtypes, compiled):
    kernels = compiled[ROTATIONS, arch]
    assert [name for name, *_ in kernels].count("_rotate_kernel") == 2 * dtypes and len(kernels) == 3 * dtypes + 2
    for name, spilled_bytes, _, ptx in kernels:
        assert spilled_bytes == 0, name
        accesses = re.findall(r"(?:ld|st)\.global[^ ]*", ptx)
        if name == "_rope_table_kernel":
            contractible = re.findall(r"(?:mul|add|sub)[.]f64", ptx)
            assert contractible == [], "Dekker's products need .rn operations, which are not contracted"
        elif arch != "gfx942":
            assert any(".v4.b32" in each or ".v2.b64" in each for each in accesses), (name, accesses)


# A model with a bias by distance in bfloat16, and K by distance in packed sequences with dropout.
ATTENTION = """
import torch
from roformer_cpp.gpu.attention_backward import attention_kernel_backward
from roformer_cpp.gpu.attention_call import TABLES, TERMS
from roformer_cpp.gpu.attention_forward import attention_kernel

def attend(term, table, **options):
    q = torch.zeros(1, 64, 4, 64, dtype=torch.bfloat16)
    positions = torch.arange(64)[None]
    terms = [table if name == term else None for name in TERMS]
    arguments = [q, q, q, positions, positions, None, terms, [-8, 8] * len(TABLES)]
    out, log_sum = attention_kernel(*arguments, **options)
    wanted = [True] * 3 + [x is not None for x in terms]
    attention_kernel_backward(out, out, log_sum, wanted, *arguments, **options)

def every():
    attend("bias", torch.zeros(4, 17), right=0)
    ends = torch.tensor([0, 24, 64])
    options = dict(dropout=0.1, seed=-1, stream=2**40, cu_seqlens_q=ends, cu_seqlens_k=ends)
    attend("key_table", torch.zeros(4, 17, 64), **options)
"""


def test_attention(compiled):
    kernels = compiled[ATTENTION, 90]
    names = ["forward_kernel", "dot_kernel", "keys_kernel", "queries_kernel", "tables_kernel"]
    assert [name for name, *_ in kernels] == 2 * names
    assert not any(spilled_bytes for _, spilled_bytes, *_ in kernels[:5])
    assert all(shared_bytes <= 160 * 1024 for _, _, shared_bytes, _ in kernels), "an A100's"


# A model's head in bfloat16, and exponents of packed sequences.
LINEAR_ATTENTION = """
import torch
from roformer_cpp.gpu import linear_attention as gpu

def every():
    q, k = torch.zeros(2, 64, 4, 64, dtype=torch.bfloat16), torch.zeros(2, 64, 2, 64, dtype=torch.bfloat16)
    rows = torch.zeros(1, 64, 32)
    options = {name: rows for name in ("query_cos", "query_sin", "key_cos", "key_sin")}
    options |= {"feature_map": "elu", "direction": "causal"}
    out, denominators, _ = gpu.linear_attention_kernel(q, k, k, **options)
    gpu.linear_attention_kernel_backward(out, out, denominators, [True] * 3, q, k, k, **options)
    x, ends = torch.zeros(1, 64, 1, 16), torch.tensor([0, 64])
    options = {"key_exponents": x[..., 0], "cu_seqlens_q": ends, "cu_seqlens_k": ends}
    gpu.linear_attention_kernel(x, x, x, feature_map="given", direction="causal", **options)
"""


def test_linear_attention(compiled):
    kernels = compiled[LINEAR_ATTENTION, 80]
    assert len(kernels) == 14
    for name, spilled_bytes, shared_bytes, _ in kernels:
        assert spilled_bytes == 0 and shared_bytes <= 2**16, name
