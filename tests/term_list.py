"""The terms of attention that core/terms/rf/attention_terms.h lists, for tests that treat terms of a kind alike."""

import re
from pathlib import Path
from typing import NamedTuple

HEADER = Path(__file__).parents[1] / "core" / "terms" / "rf" / "attention_terms.h"


class Term(NamedTuple):
    kind: str  # ROTATION, TABLE, NUMBERS, SCORES, or PAIR for each of the two
    name: str
    symbol: str
    width: str = ""  # One, HeadDim, ValueDim or HeadDimOrOne; of SCORES the rows, One or Queries


def read_terms(header: str) -> list[Term]:
    terms = []
    for kind, arguments in re.findall(
        r"(?<=\s)(ROTATION|TABLE|NUMBERS|PAIR|SCORES)\((\w+, \"[^\n]*)\)", header, re.MULTILINE
    ):
        fields = [field.strip().strip('"') for field in arguments.split(",")]
        if kind == "PAIR":
            terms += [Term(kind, *fields[:2], "HeadDim"), Term(kind, *fields[2:], "HeadDim")]
        else:
            terms.append(Term(kind, *fields[:2], "" if kind == "ROTATION" else fields[2]))
    return terms


TERMS = read_terms(HEADER.read_text())
ROTATIONS = tuple(term.name for term in TERMS if term.kind == "ROTATION")
TABLES = tuple(term.name for term in TERMS if term.kind == "TABLE")
NUMBERS = tuple(term.name for term in TERMS if term.kind == "NUMBERS")
PAIRS = tuple(term.name for term in TERMS if term.kind == "PAIR")
SCORES = tuple(term.name for term in TERMS if term.kind == "SCORES")
# The tensors of terms in the order of torch.ops.roformer.attention_kernel.
TENSORS = tuple(
    name for t in TERMS for name in ([f"{t.name}_cos", f"{t.name}_sin"] if t.kind == "ROTATION" else [t.name])
)


def shape(name: str, heads: int, positions: int, head_dim: int, rows: int = 0) -> tuple[int, ...]:
    """The shape of a term of position that is no rotation; a table has `rows` distances, a gate factors per element."""
    term = next(term for term in TERMS if term.name == name)
    between = {"TABLE": (rows,), "PAIR": (positions,), "NUMBERS": ()}[term.kind]
    return (heads, *between, *(() if term.width == "One" else (head_dim,)))


def scores_shape(name: str, batch: int, heads: int, queries: int, keys: int) -> tuple[int, ...]:
    """The shape of numbers of tokens that are added to scores."""
    term = next(term for term in TERMS if term.name == name)
    return (batch, heads, *(() if term.width == "One" else (queries,)), keys)
