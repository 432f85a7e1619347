"""``roformer::dropout``: the mask of core's counter-based generator (core/include/rf/dropout.h), bit for bit."""

import math

from torch import Tensor

from .launch import checked_results, implementation


def threshold_of(p: float) -> int:
    """round(65536 p), halves up."""
    return math.floor(65536 * p + 0.5)


def dropout(x: Tensor, p: float, seed: int, stream: int) -> Tensor:
    """``roformer::dropout``. In a CUDA graph the mask is that of the captured seed at every replay."""
    y = checked_results("dropout", x, p, seed, stream)
    if x.numel() > 0:
        threshold = threshold_of(p)
        drop_into = implementation(x, "dropout_kernels").drop_into
        drop_into(x.contiguous(), y, threshold, 65536 / (65536 - threshold), seed, stream)
    return y
