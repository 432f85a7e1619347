"""The operators with Python's defaults and names; the C++ side is ops/."""

from typing import Literal

import torch
from torch import Tensor

from . import _torch  # noqa: F401 - it loads the operators
from ._operator_call import check_tensors, operator_call

_rope = torch.ops.roformer.rope.default
_rope_inplace = torch.ops.roformer.rope_.default
_rotate = torch.ops.roformer.rotate.default
_rope_table = torch.ops.roformer.rope_table.default


def rope(
    x: Tensor,
    positions: Tensor,
    *,
    layout: Literal["pairs", "halves"],
    base: float = 10000.0,
    freqs: Tensor | None = None,
    scale: float = 1.0,
    rotary_dim: int | None = None,
    heads_first: bool = False,
    direction: Literal["forward", "transpose", "inverse"] = "forward",
    inplace: bool = False,
) -> Tensor:
    """Rotary position embedding (RoFormer, arXiv 2104.09864, Eq. 34).

    Pair i of a head vector at position p turns counter-clockwise by the angle p * theta_i, theta_i = base^(-2i/R), and
    is multiplied by ``scale``. Angles are formed in more than double precision: accuracy does not fall with p.

    Args:
        x: ``[.., T, H, D]``, or ``[.., H, T, D]`` with ``heads_first``; float32, float64, bfloat16 or float16, on the
            CPU or a CUDA device. Views with a contiguous last dimension, such as slices of a fused qkv, are read
            without a copy.
        positions: ``[T]``, or ``[B, T]`` where B is the product of the leading dimensions of ``x``; integers or
            float64. Packed sequences restart at 0. On a CUDA device, where their values are not checked, integers
            beyond 2^53 give results that are not numbers, and each call computes the angles again: with the same
            positions in many calls, ``rope_table`` once and ``rotate`` are faster.
        layout: which elements form pair i: ``"pairs"`` (2i, 2i+1), as in RoFormer and GPT-J; ``"halves"`` (i, i+R/2),
            as in GPT-NeoX and Llama. It must be given, because a wrong layout goes unnoticed.
        base: of the frequencies.
        freqs: float64 ``[R/2]``, the frequencies, instead of ``base``; they may require grad.
        scale: multiplies cos and sin; finite, not 0.
        rotary_dim: R, even; the elements from R on are unchanged. Default: D, or twice the number of ``freqs``.
        heads_first: whether ``x`` is ``[.., H, T, D]``.
        direction: ``"forward"`` applies R, ``"transpose"`` R^T (the backward), ``"inverse"`` R^-1. The last two
            coincide for scale 1.
        inplace: overwrite ``x`` and return it.

    Returns:
        A new contiguous tensor of the shape and dtype of ``x``, or ``x`` itself when ``inplace``. Gradients of any
        order flow to ``x`` and ``freqs``.

    Raises:
        ValueError: an argument outside the rules above; the message names the rule and the value.
        TypeError: an argument of another type.
        NotImplementedError: ``positions`` require grad, forward-mode differentiation, or torch.func.
        RuntimeError: ``inplace`` on a leaf that requires grad, or on overlapping memory.
    """
    check_tensors("rope", {"freqs": freqs}, x=x, positions=positions)
    options = dict(layout=layout, base=base, freqs=freqs, scale=scale, rotary_dim=rotary_dim)
    options |= dict(heads_first=heads_first, direction=direction)
    y = operator_call("rope", _rope_inplace if inplace else _rope, x, positions, **options)
    return x if inplace else y


def rotate(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    layout: Literal["pairs", "halves"],
    direction: Literal["forward", "transpose"] = "forward",
) -> Tensor:
    """Rotation by given rows: the second step of ``rope``, after cosines and sines were computed.

    Pair i of the vectors of token t becomes ``(c x_a - s x_b, s x_a + c x_b)`` with c and s the row of t at i. The rows
    include any scale.

    Args:
        x: ``[B, T, H, D]``; float32, float64, bfloat16 or float16, on the CPU or a CUDA device. Views with a
            contiguous last dimension are read without a copy.
        cos, sin: ``[B or 1, T, R/2]``, R <= D; float64 for float64 ``x``, float32 for the other dtypes. The elements
            of ``x`` from R on are unchanged.
        layout: which elements form pair i, as for ``rope``.
        direction: ``"forward"``, or ``"transpose"``: the transposed matrix, which is the backward.

    Returns:
        A new contiguous tensor of the shape and dtype of ``x``. Gradients of any order flow to ``x``, ``cos`` and
        ``sin``; where neither row requires grad, the backward is one transposed rotation.

    Raises:
        ValueError: an argument outside the rules above; the message names the rule and the value.
        NotImplementedError: forward-mode differentiation.
    """
    check_tensors("rotate", x=x, cos=cos, sin=sin)
    return operator_call("rotate", _rotate, x, cos, sin, layout=layout, direction=direction)


def rope_table(
    positions: Tensor,
    freqs: Tensor,
    freqs_lo: Tensor | None = None,
    *,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The rows of a rotation: ``scale * cos`` and ``scale * sin`` of ``positions * (freqs + freqs_lo)``.

    Angles are formed and reduced in more than double precision, and each number is rounded once: the error of a
    float32 row is at most 6e-8 times ``scale`` up to position 2^31.

    Args:
        positions: integers within 2^53, or float64; any shape ``[..]``. On a CUDA device, rows of other integers are
            not numbers.
        freqs: float64 ``[R/2]``, or ``[.., R/2]`` with the dimensions of ``positions`` or 1: frequencies that differ
            from sequence to sequence (``[B, 1, R/2]``) or from token to token.
        freqs_lo: the rounding error of ``freqs``, of the same shape; default: 0.
        scale: finite, not 0.
        dtype: of the result, ``torch.float32`` or ``torch.float64``.

    Returns:
        ``(cos, sin)``, each ``[.., R/2]``, as ``rotate`` takes them. Gradients of any order flow to ``freqs``.

    Raises:
        ValueError: an argument outside the rules above; the message names the rule and the value.
        NotImplementedError: ``positions`` or ``freqs_lo`` require grad, or forward-mode differentiation.
    """
    check_tensors("rope_table", {"freqs_lo": freqs_lo}, positions=positions, freqs=freqs)
    return operator_call("rope_table", _rope_table, positions, freqs, freqs_lo, scale=scale, dtype=dtype)


def target() -> str:
    """The instruction set that the kernels use, for example ``"AVX3_ZEN4"``; ``"ref"`` for the float64 loops."""
    return torch.ops.roformer.target()


def set_target(name: str) -> None:
    """Restricts the kernels to the instruction set ``name`` (``"AVX2"``, ``"ref"``, ..); ``""`` allows all.

    Raises:
        ValueError: this machine or this build lacks the instruction set.
    """
    torch.ops.roformer.set_target(name)


def memory_held() -> tuple[int, int]:
    """Bytes that the kernels keep between calls: work space of threads, and rows of rotary tables."""
    return torch.ops.roformer.memory_held()


def release_memory() -> None:
    """Frees the memory that the kernels keep between calls, except memory in use by calls on other threads.

    They keep at most 64 MiB of unused work space and 256 MiB of rotary tables; no result depends on it.
    """
    torch.ops.roformer.release_memory()
