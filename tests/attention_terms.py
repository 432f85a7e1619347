"""Random terms, data and positions for the tests of attention."""

import torch
from torch import Tensor

from roformer_cpp import DistanceTable, Rotation, Terms, attention
from term_list import NUMBERS, PAIRS, SCORES, TABLES, scores_shape, shape

D = 6
POSITIONS = 240  # rows of the tables by position


def _draw(*shape, dtype):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def dtype_of_rows(dtype):
    """Of rotations beside terms of a dtype."""
    return dtype if dtype.itemsize >= 4 else torch.float32


def data(batch, queries, keys, heads, key_heads, dtype=torch.float64):
    return (
        _draw(batch, queries, heads, D, dtype=dtype),
        _draw(batch, keys, key_heads, D, dtype=dtype),
        _draw(batch, keys, key_heads, D, dtype=dtype),
    )


def all_terms(batch, queries, keys, heads, dtype=torch.float64, positions=POSITIONS) -> Terms:
    """Every term at once; windows narrower and wider than the distances, of one side and of both."""

    def rotation(rows, tokens, pairs):
        rows_dtype = dtype_of_rows(dtype)
        return Rotation(_draw(rows, tokens, pairs, dtype=rows_dtype), _draw(rows, tokens, pairs, dtype=rows_dtype))

    def table(rows, lo, hi, *width):
        return DistanceTable(_draw(rows, hi - lo + 1, *width, dtype=dtype), lo, hi)

    return Terms(
        query=rotation(max(batch, 1), queries, 2),
        key=rotation(1, keys, 2),
        value=rotation(1, keys, 1),
        key_table=table(heads, -3, 2, D),
        query_table=table(1, -10, 2, D),
        value_table=table(heads, -1, 2, D),
        bias=table(heads, -20, 20),
        gate=table(1, -1, 1, D),
        scale=0.3,
        **{name: _draw(*shape(name, heads, positions, D), dtype=dtype) for name in (*NUMBERS, *PAIRS)},
        **{name: _draw(*scores_shape(name, max(batch, 1), heads, queries, keys), dtype=dtype) for name in SCORES},
    )


def positions_of(kind, batch, queries, keys) -> tuple[Tensor, Tensor]:
    """Both sides' positions: "steps" of 1, or "scattered"."""
    if kind == "steps":
        return torch.arange(2, 2 + queries), torch.arange(keys)
    generator = torch.Generator().manual_seed(3)
    query = torch.randint(0, 12, (batch, queries), generator=generator)
    key = torch.randint(0, 12, (1, keys), generator=generator)
    query[:, :1], key[:, -1:] = 0, 0  # the reset terms
    return query, key


def to_dict(terms: Terms) -> dict[str, Tensor]:
    """Every tensor by the name that the operators give it; "<table>_window" and "scale" are tensors too."""
    tensors, names, ranges, layout, scale = terms.arguments()
    flat = dict(zip(names, tensors, strict=True))
    flat |= {f"{x}_window": torch.tensor(ranges[2 * i : 2 * i + 2]) for i, x in enumerate(names) if x in TABLES}
    flat |= {} if scale is None else {"scale": torch.tensor(scale, dtype=torch.float64)}
    return flat if layout == "pairs" else flat | {"halves": torch.tensor(1)}


def from_dict(flat: dict[str, Tensor]) -> Terms:
    """The terms of which this is the to_dict."""
    names = [name for name in flat if name not in ("scale", "halves") and not name.endswith("_window")]
    ranges = [x for name in names for x in (flat[f"{name}_window"].tolist() if name in TABLES else [0, 0])]
    scale = flat["scale"].item() if "scale" in flat else None
    layout = "halves" if "halves" in flat else "pairs"
    return Terms.from_arguments([flat[name] for name in names], names, ranges, layout, scale)


def with_gradients(tensors, terms: Terms, **options):
    """attention as a function of q, k, v and every tensor of `terms`, and those tensors, requiring grad."""
    flat = {name: x for name, x in to_dict(terms).items() if x.is_floating_point() and name != "scale"}
    inputs = tuple(x.detach().clone().requires_grad_() for x in (*tensors, *flat.values()))

    def run(q, k, v, *rest):
        return attention(q, k, v, from_dict(to_dict(terms) | dict(zip(flat, rest, strict=True))), **options)

    return run, inputs
