"""Vectors of bytes and bits, as sentence-transformers computes them."""

from typing import Any, Literal

import numpy as np

from . import _checks

_WHERE = "quantize"
PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")


def quantize_embeddings(
    embeddings: Any,
    precision: Literal["float32", "int8", "uint8", "binary", "ubinary"],
    ranges: np.ndarray | None = None,
    calibration_embeddings: np.ndarray | None = None,
) -> Any:
    """Vectors with one byte or one bit for each element.

    Args:
        embeddings: floats ``[n, dimension]`` or ``[dimension]``, an array, a tensor or a list of vectors; or a list of
            ``[tokens, dimension]``, which share their ranges.
        precision: ``"int8"`` and ``"uint8"``: 256 levels between the minimum and maximum of each dimension;
            ``"ubinary"``: one bit for each element, 1 if it is greater than 0, packed into uint8; ``"binary"``: the
            same minus 128, as int8.
        ranges: ``[2, dimension]``, the minimum and maximum of each dimension.
        calibration_embeddings: vectors from which ``ranges`` is computed if it is None. Default: ``embeddings``.

    Returns:
        An array of that type; for a list of ``[tokens, dimension]`` a list.

    Raises:
        ValueError: for ranges of one vector, and for other shapes and types.
    """
    _checks.choice(_WHERE, "precision", precision, PRECISIONS)
    if isinstance(embeddings, (list, tuple)):
        listed = [np.asarray(each) for each in embeddings]
        if not listed:
            return []
        if listed[0].ndim == 2:
            if precision in ("int8", "uint8") and ranges is None:
                ranges = _ranges(np.concatenate(listed), precision, calibration_embeddings)
            return [quantize_embeddings(each, precision, ranges, calibration_embeddings) for each in listed]
        embeddings = np.stack(listed)
    vectors = np.asarray(embeddings)
    if vectors.dtype.kind != "f" or vectors.ndim not in (1, 2):
        raise ValueError(
            f"[{_WHERE}] embeddings must be floats [n, dimension] or [dimension], got {vectors.dtype} of shape "
            f"{list(vectors.shape)}"
        )
    if precision == "float32":
        return vectors.astype(np.float32)
    if precision in ("binary", "ubinary"):
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else (bits ^ 128).view(np.int8)
    if vectors.ndim == 2 and not len(vectors):
        return np.zeros(vectors.shape, np.int8 if precision == "int8" else np.uint8)
    if ranges is None:
        ranges = _ranges(vectors, precision, calibration_embeddings)
    limits = np.asarray(ranges, np.float32)
    if limits.shape != (2, vectors.shape[-1]):
        raise ValueError(f"[{_WHERE}] ranges must be [2, {vectors.shape[-1]}], got {list(limits.shape)}")
    low, high = limits
    if not np.isfinite(limits).all():
        raise ValueError(f"[{_WHERE}] ranges must be finite, got {limits[~np.isfinite(limits)][0]}")
    steps = (high - low) / 255
    levels = np.clip(np.floor((vectors - low) / np.where(steps == 0, 1, steps)), 0, 255)
    return levels.astype(np.uint8) if precision == "uint8" else (levels - 128).astype(np.int8)


def _ranges(vectors: np.ndarray, precision: str, calibration: np.ndarray | None) -> np.ndarray:
    if calibration is None:
        if vectors.ndim == 1 or len(vectors) == 1:
            raise ValueError(
                f"[{_WHERE}] {precision} needs ranges or calibration_embeddings of several vectors, got one vector"
            )
        calibration = vectors
    return np.stack([np.min(calibration, axis=0), np.max(calibration, axis=0)]).astype(np.float32)
