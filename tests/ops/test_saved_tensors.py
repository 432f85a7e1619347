"""Hooks on saved tensors (torch.autograd.graph.saved_tensors_hooks: offloading, compression) may give a backward the
same numbers at other strides. Gradients are then those without hooks, which the other tests of each operator check.
"""

import pytest
import torch

import roformer_cpp
import tolerances as tol

ops = torch.ops.roformer
B, T, H, D, C, V = 2, 70, 4, 16, 33, 57

# Copies whose last dimension is not contiguous.
COPIES = {
    "every other number": lambda x: torch.stack([x, torch.zeros_like(x)], -1)[..., 0],
    "dimensions in reverse": lambda x: x.permute(*range(x.dim())[::-1]).contiguous().permute(*range(x.dim())[::-1]),
}
FREQS = torch.linspace(0.1, 1, D // 2, dtype=torch.float64)
MASK = torch.arange(T).remainder(5).ne(3).expand(B, T)
X, QKV, ROWS = [(B, T, H, D)], [(B, T, H, D)] * 3, [(1, T, D // 2)] * 2
# An operator, and the shapes of its arguments.
CASES = {
    "attention": (lambda *qkv: roformer_cpp.attention(*qkv, is_causal=True, kernel="fused"), QKV),
    "attention with a mask": (lambda *qkv: roformer_cpp.attention(*qkv, mask=MASK, kernel="fused"), QKV),
    "linear attention": (lambda *qkv: roformer_cpp.linear_attention(*qkv, is_causal=True, kernel="fused"), QKV),
    "rotate": (lambda x, cos, sin: ops.rotate(x, cos, sin, "pairs"), X + ROWS),
    "rope": (lambda x: roformer_cpp.rope(x, torch.arange(T), layout="pairs", freqs=FREQS), X),
    "norm": (lambda x, residual, *rest: ops.norm(x, None, residual, *rest, eps=1e-5), [(B, T, C)] * 2 + [(C,)] * 2),
    "gelu": (ops.gelu, [(B, T, C), (C,)]),
    "linear": (lambda *given: ops.linear(*given, activation="gelu_erf"), [(B, T, C), (V, C), (V,)]),
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, copy):
    compute, shapes = CASES[name]
    leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
    out = compute(*leaves)
    given = torch.linspace(-1, 2, out.numel()).view_as(out)
    expected = torch.autograd.grad(out, leaves, given)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, COPIES[copy]):
        grads = torch.autograd.grad(compute(*leaves), leaves, given)
    for got, want in zip(grads, expected, strict=True):
        assert (got - want).abs().max() <= tol.GRADIENT_F32 * want.abs().max()
