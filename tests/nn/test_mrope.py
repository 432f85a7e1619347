"""The encoding `mrope`: three axes, each rotating its section of the pairs (arXiv 2409.12191; R-ROPE-12). Beside
transformers in tests/oracles/test_mrope.py."""

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances


def thirds(head_dim):
    pairs = head_dim // 2
    return {"rope_parameters": {"mrope_section": [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]}}


SWEEP_KEYS = {"mrope": thirds}

HEAD_DIM, SECTIONS = 24, [4, 5, 3]
AXES_BTA = torch.tensor([[[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 3, 2], [9, 9, 9]],
                         [[5, 5, 5], [7, 1, 2], [7, 9, 4], [511, 0, 17], [0, 0, 1], [3, 3, 3]]])  # fmt: skip


def encoding(sections=SECTIONS, **keys):
    parameters = {"mrope_section": sections} | keys.pop("rope_parameters", {})
    return roformer_cpp.encoding("mrope", head_dim=HEAD_DIM, rope_parameters=parameters, **keys)


@pytest.mark.parametrize("sections", [SECTIONS, [12, 0, 0], [0, 0, 12]])
def test_each_pair_turns_by_its_axis(sections):
    rotation = encoding(sections).terms(AXES_BTA, dtype=torch.double).query
    axis_of_pair = np.repeat(np.arange(3), sections)
    theta = 10000.0 ** (-np.arange(12) / 12)
    angle = AXES_BTA.numpy()[..., axis_of_pair] * theta
    np.testing.assert_allclose(rotation.cos.numpy(), np.cos(angle), atol=tolerances.T1_ATOL)
    np.testing.assert_allclose(rotation.sin.numpy(), np.sin(angle), atol=tolerances.T1_ATOL)


@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_text_is_ordinary_rotary_embedding(layout):
    positions = torch.arange(7)
    rope = roformer_cpp.encoding("rope", head_dim=HEAD_DIM, layout=layout).terms(positions)
    for text in (positions, positions[None, :, None].expand(1, 7, 3)):
        terms = encoding(layout=layout).terms(text)
        assert terms.layout == layout
        assert torch.equal(terms.query.cos, rope.query.cos)
        assert torch.equal(terms.key.sin, rope.key.sin)


def test_the_length_is_that_of_the_longest_axis():
    dynamic = {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 16}
    batch = encoding(**dynamic).terms(AXES_BTA)
    for row in range(2):
        alone = encoding(**dynamic).terms(AXES_BTA[row : row + 1])
        assert torch.equal(batch.query.cos[row], alone.query.cos[0])
    assert torch.equal(batch.query.cos[0], encoding().terms(AXES_BTA[:1]).query.cos[0])
    assert not torch.equal(batch.query.cos[1], encoding().terms(AXES_BTA[1:]).query.cos[0])


def test_refuses_other_numbers_of_axes():
    with pytest.raises(ValueError, match="positions must have 3 axes, got 2"):
        encoding().terms(AXES_BTA[..., :2])
    with pytest.raises(ValueError, match=r"integers \[tokens\], .* got Long of 4 dimensions"):
        encoding().terms(AXES_BTA[None])


def test_refuses_sections_that_do_not_fit():
    with pytest.raises(ValueError, match=r"mrope_section must be 3 counts of pairs that sum to 12 .* got \[4,4,5\]"):
        encoding([4, 4, 5])
    with pytest.raises(ValueError, match=r"mrope_section must be 3 counts of pairs .* got none"):
        roformer_cpp.encoding("mrope")
