"""Terms of Python against the list in C (core/terms/rf/attention_terms.h), and the list against the operator."""

from dataclasses import fields

import torch

from attention_terms import all_terms, from_dict, to_dict
from roformer_cpp import Terms
from term_list import TABLES, TENSORS, TERMS


def test_python_has_the_terms_of_the_list():
    others = ("layout", "scale", "positions", "key_positions")
    assert [field.name for field in fields(Terms) if field.name not in others] == [term.name for term in TERMS]


def test_dictionary_has_every_tensor():
    flat = to_dict(all_terms(1, 2, 3, 4))
    assert set(flat) == {*TENSORS, *(f"{name}_window" for name in TABLES), "scale"}
    assert to_dict(from_dict(flat)).keys() == flat.keys()


def test_operator_has_every_tensor():
    wanted = torch.ops.roformer.attention_kernel_backward.default._schema.arguments[3]
    assert wanted.name == "wanted" and 3 + len(TENSORS) == wanted.N
