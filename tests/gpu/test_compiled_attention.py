"""The kernels of attention compiled for an NVIDIA GPU, without one, as test_compiled_kernels.py does."""

from compiled_kernels import compiled_by

# A model with a bias by distance in bfloat16, and K by distance in packed sequences with dropout.
SCRIPT = """
import json
import torch
import roformer_cpp
from kernel_compiler import compiled
roformer_cpp.rope
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

print(json.dumps([[k.name, k.spilled_bytes, k.shared_bytes] for k in compiled(90, every)]))
"""


def test_kernels_compile(tmp_path):
    kernels = compiled_by(SCRIPT, tmp_path)
    names = ["forward_kernel", "dot_kernel", "keys_kernel", "queries_kernel", "tables_kernel"]
    assert [name for name, *_ in kernels] == 2 * names
    assert not any(spilled_bytes for _, spilled_bytes, _ in kernels[:5])
    assert all(shared_bytes <= 160 * 1024 for *_, shared_bytes in kernels), "an A100's"
