"""Layers and models in compiled code, compared with plain calls."""

import torch

import tolerances as tol


def same(a, b, bound=tol.COMPILED_F32):
    return all(torch.allclose(x, y, **bound) for x, y in zip(a, b, strict=True))


def result_and_gradients(module, function, *given):
    module.zero_grad()
    torch.manual_seed(3)  # of dropout
    out = function(*given)
    out = out["hidden"] if isinstance(out, dict) else out
    (out.exp().mean() if out.dim() else out).backward()  # the sum of squares of a normed vector has no gradient
    # Compiled code gives zeros to parameters that take no part.
    return out.detach(), [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in module.parameters()]


def assert_compiled_equals(module, function, given, backend="aot_eager", bound=tol.COMPILED_F32):
    """Inputs of several shapes share a graph."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=len(given) > 1)
    for x in given:
        (found, gradients), (out, expected) = (result_and_gradients(module, f, x) for f in (compiled, function))
        assert torch.allclose(found, out, **bound)
        assert any(gradient.abs().max() > 0 for gradient in expected)
        assert same(gradients, expected, tol.COMPILED_GRADIENT_F32)
