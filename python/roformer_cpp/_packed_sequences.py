"""The two forms of packed sequences, and what follows from them.

``cu_seqlens``, int32 or int64 ``[sequences + 1]``: the offsets of sequences that follow each other in a batch of one,
for queries and for keys. Sequence ids, integers ``[1 or B, T]``: a number for each token, equal within a sequence of a
row, -1 for padding; encodings take them as ``sequences`` and models as ``segments``.
"""

import torch
from torch import Tensor


def check_cu_seqlens(where: str, *given: Tensor | None) -> None:
    for x in given:
        if x is not None and (x.dim() != 1 or len(x) == 0 or x.dtype not in (torch.int32, torch.int64)):
            raise ValueError(
                f"[{where}] cu_seqlens must be int32 or int64 [sequences + 1], got {x.dtype} {list(x.shape)}"
            )


def fits(cu_seqlens: Tensor, tokens: int) -> bool:
    """Whether offsets rise from 0 to ``tokens``. Compiled code, which cannot read them, takes it for granted."""
    if torch.compiler.is_compiling():
        return True
    if len(cu_seqlens) == 0 or cu_seqlens[0] != 0 or cu_seqlens[-1] != tokens:
        return False
    return bool((cu_seqlens.diff() >= 0).all())


def of_tokens(numbers: Tensor, cu_seqlens: Tensor, tokens: int) -> Tensor:
    """A number of each sequence for each of its tokens."""
    return torch.repeat_interleave(numbers, cu_seqlens.long().diff(), output_size=tokens)


def sequence_ids(cu_seqlens: Tensor, tokens: int) -> Tensor:
    """Sequence ids ``[1, T]`` of offsets that fit."""
    numbers = torch.arange(len(cu_seqlens) - 1, device=cu_seqlens.device)
    return of_tokens(numbers, cu_seqlens, tokens).unsqueeze(0)


def sequence_ids_of(cu_seqlens: Tensor | None, x: Tensor, mask: Tensor | None) -> Tensor | None:
    """Sequence ids of the tokens of ``x`` [B, T, C], ``[1 or B, T]``.

    From ``cu_seqlens``, or a mask of keys, which hides keys of sequence -1. ``None``: neither, or a mask that does not
    fit or differs between queries, which attention refuses if terms depend on it.
    """
    if isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[1:3] == (1, 1):
        mask = mask[:, 0, 0].expand(x.size(0) if mask.size(0) == 1 else -1, -1)
    if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == x.shape[:2]:
        return mask.long() - 1
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dim() != 1 or cu_seqlens.is_floating_point():
        return None
    return sequence_ids(cu_seqlens, x.size(1)) if fits(cu_seqlens, x.size(1)) else None


def default_positions(
    queries: int, keys: int, cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """For every sequence: its keys from 0 on, its queries aligned with the last keys.

    Args:
        queries, keys: how many.
        cu_seqlens, cu_seqlens_k: of queries and of keys. ``None``: one sequence.
        device: of the result.
    """
    query_tokens, key_tokens = torch.arange(queries, device=device), torch.arange(keys, device=device)
    if cu_seqlens is None or cu_seqlens_k is None:
        return (key_tokens if queries == keys else query_tokens + (keys - queries)), key_tokens
    if len(cu_seqlens) != len(cu_seqlens_k) or not fits(cu_seqlens, queries) or not fits(cu_seqlens_k, keys):
        return query_tokens, key_tokens  # the operator refuses them
    before = cu_seqlens[:-1].long() - (cu_seqlens_k.long().diff() - cu_seqlens.long().diff())
    query_positions = query_tokens - of_tokens(before, cu_seqlens, queries)
    return query_positions, key_tokens - of_tokens(cu_seqlens_k[:-1].long(), cu_seqlens_k, keys)
