"""Hooks on saved tensors (torch.autograd.graph.saved_tensors_hooks: offloading, compression) may give a backward the
same numbers at other strides. Gradients of every operator are then compared with torch's own formulas in float64.
"""

import pytest
import torch
import torch.nn.functional as F

import roformer_cpp
import tolerances as tol

ops = torch.ops.roformer
B, T, H, D, C, V = 2, 70, 4, 16, 33, 57

# Copies whose last dimension is not contiguous.
COPIES = {
    "every other number": lambda x: torch.stack([x, torch.zeros_like(x)], -1)[..., 0],
    "dimensions in reverse": lambda x: (
        x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
    ),
}


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def turned(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    c, s = (rows.to(x.dtype)[:, :, None] for rows in (cos, sin))
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


def exact_attention(q, k, v):
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)


def exact_linear_attention(q, k, v):
    weights = torch.einsum("bthd,bshd->bhts", F.elu(q) + 1, F.elu(k) + 1).tril()
    return torch.einsum("bhts,bshd->bthd", weights / weights.sum(-1, keepdim=True), v)


ANGLES = torch.linspace(0, 3, T * D // 2, dtype=torch.float64).view(1, T, D // 2)
FREQS = torch.linspace(0.1, 1, D // 2, dtype=torch.float64)
PLACES = torch.arange(T, dtype=torch.float64)[None, :, None] * FREQS
MASK = torch.arange(T).remainder(5).ne(3).expand(B, T)

# The operator, torch's formula of the same, and their arguments.
CASES = {
    "attention": (
        lambda q, k, v: roformer_cpp.attention(q, k, v, is_causal=True, kernel="fused"),
        exact_attention,
        [draw(B, T, H, D) for _ in range(3)],
    ),
    "attention with a mask": (
        lambda q, k, v: roformer_cpp.attention(q, k, v, mask=MASK, kernel="fused"),
        lambda q, k, v: F.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=MASK[:, None, None]
        ).transpose(1, 2),
        [draw(B, T, H, D) for _ in range(3)],
    ),
    "linear attention": (
        lambda q, k, v: roformer_cpp.linear_attention(q, k, v, is_causal=True, kernel="fused"),
        exact_linear_attention,
        [draw(B, T, H, D) for _ in range(3)],
    ),
    "rotate": (
        lambda x, cos, sin: ops.rotate(x, cos, sin, "pairs"),
        turned,
        [draw(B, T, H, D), ANGLES.cos(), ANGLES.sin()],
    ),
    "rope": (
        lambda x: roformer_cpp.rope(x, torch.arange(T), layout="pairs", freqs=FREQS),
        lambda x: turned(x, PLACES.cos(), PLACES.sin()),
        [draw(B, T, H, D)],
    ),
    "norm": (
        lambda x, residual, gain, bias: ops.norm(x, None, residual, gain, bias, eps=1e-5),
        lambda x, residual, gain, bias: F.layer_norm(x + residual, (C,), gain, bias, 1e-5),
        [draw(B, T, C), draw(B, T, C), draw(C), draw(C)],
    ),
    "gelu": (lambda x, bias: ops.gelu(x, bias), lambda x, bias: F.gelu(x + bias), [draw(B, T, C), draw(C)]),
    "linear": (
        lambda x, weight, bias: ops.linear(x, weight, bias, activation="gelu_erf"),
        lambda x, weight, bias: F.gelu(F.linear(x, weight, bias)),
        [draw(B, T, C), draw(V, C), draw(V)],
    ),
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, copy):
    compute, exact, arguments = CASES[name]
    truth = [x.clone().requires_grad_() for x in arguments]
    ours = [x.float().requires_grad_() for x in arguments]
    expected = exact(*truth)
    given = torch.linspace(-1, 2, expected.numel(), dtype=torch.float64).view(expected.shape)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, COPIES[copy]):
        out = compute(*ours)
        grads = torch.autograd.grad(out, ours, given.float())
    for got, want in zip(grads, torch.autograd.grad(expected, truth, given), strict=True):
        assert (got.double() - want).abs().max() <= tol.GRADIENT_F32 * want.abs().max()
