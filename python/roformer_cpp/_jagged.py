"""Nested tensors of the layout ``torch.jagged``: rows of different lengths, without padding between them."""

from collections.abc import Callable

import torch
from torch import Tensor


def is_jagged(x: object) -> bool:
    return isinstance(x, Tensor) and x.layout == torch.jagged


def attention_of_rows(call: Callable[..., Tensor], rows: dict[str, Tensor], heads_first: bool, given: dict) -> Tensor:
    """Attention within each row, as in packed sequences: `call` is ``attention`` and `given` its other arguments."""
    offsets, packed = {}, {}
    for name, x in rows.items():
        x = x.transpose(1, 2) if is_jagged(x) and heads_first and x.dim() == 4 else x
        if not is_jagged(x) or x.dim() != 4 or x._ragged_idx != 1 or x.lengths() is not None:
            got = x.layout if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(
                f"[attention] {name} must be jagged in its tokens and without holes, as the others are, got {got}"
            )
        offsets[name], packed[name] = x.offsets(), x.values().unsqueeze(0)
    wrong = next((name for name in ("mask", "cu_seqlens", "cu_seqlens_k") if given[name] is not None), None)
    if wrong or given["return_weights"]:
        raise ValueError(f"[attention] {wrong or 'return_weights'} must be left out with jagged tensors, got it")
    if not torch.equal(offsets["k"], offsets["v"]):
        raise ValueError("[attention] k and v must have rows of the same lengths, got others")
    ends = {"cu_seqlens": offsets["q"], "cu_seqlens_k": offsets["k"]}
    out = torch.nested.nested_tensor_from_jagged(call(**packed, **(given | ends))[0], offsets["q"])
    return out.transpose(1, 2) if heads_first else out


def forward(model: torch.nn.Module, ids: Tensor, by_token: dict[str, Tensor | None], given: dict) -> dict[str, Tensor]:
    """A pass of a model: results for tokens are jagged. `by_token`: types and labels; `given`: other arguments."""
    wrong = next(
        (name for name in ("attention_mask", "segments", "positions", "cache") if given[name] is not None), None
    )
    if wrong or ids.dim() != 2:
        raise ValueError(f"[input] jagged input_ids must be [B, T], without {wrong or 'more dimensions'}, got it")
    offsets, layout = ids.offsets(), model._layout
    rows = torch.nested.to_padded_tensor(ids, layout["pad_token_id"])
    mask = torch.arange(rows.shape[1], device=rows.device) < offsets.diff()[:, None]
    padded = {"labels": -100, "token_type_ids": 0}
    given |= {
        name: torch.nested.to_padded_tensor(x, padded[name]) if is_jagged(x) else x for name, x in by_token.items()
    }
    out = model(rows, **(given | {"attention_mask": mask}))
    names = {"hidden"} | ({"logits", "start_logits", "end_logits"} if layout["reads"] == "tokens" else set())

    def jagged(x: Tensor) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(x[mask], offsets)

    out |= {name: jagged(out[name]) for name in names & out.keys()}
    if "hidden_states" in out:
        out["hidden_states"] = tuple(map(jagged, out["hidden_states"]))
    return out
