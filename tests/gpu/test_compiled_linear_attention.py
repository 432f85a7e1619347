"""The kernels of linear attention compiled for an NVIDIA GPU, without one, as test_compiled_kernels.py does."""

from compiled_kernels import compiled_by

# A model's head in bfloat16, and exponents of packed sequences. Prints [[name, spilled bytes, shared bytes], ..].
SCRIPT = """
import json, sys
import torch
import roformer_cpp
from kernel_compiler import compiled
roformer_cpp.rope
arch = sys.argv[1]
torch.version.hip = None if arch.isdigit() else "7.0"
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

kernels = compiled(int(arch) if arch.isdigit() else arch, every)
print(json.dumps([[k.name, k.spilled_bytes, k.shared_bytes] for k in kernels]))
"""


def test_kernels_compile(tmp_path):
    kernels = compiled_by(SCRIPT, tmp_path, "80")
    assert len(kernels) == 14
    for name, spilled_bytes, shared_bytes in kernels:
        assert spilled_bytes == 0 and shared_bytes <= 2**16, name
