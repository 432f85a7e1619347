"""The parts of roformer_cpp.patch: masks with a note of their form, and attention with dropout."""

import pytest
import torch

pytest.importorskip("transformers")

from transformers import LlamaConfig, masking_utils

import patch_models as models
import tolerances as tol
from roformer_cpp import EncoderLayer
from roformer_cpp._patched.attend import attend
from roformer_cpp._patched.masks import MaskForm, make_mask, note_form, noted_form

FUNCTIONS = {
    "causal": masking_utils.causal_mask_function,
    "bidirectional": masking_utils.bidirectional_mask_function,
    "sliding": masking_utils.sliding_window_causal_mask_function(4),
    "sliding both ways": masking_utils.sliding_window_bidirectional_mask_function(3),
}
UNKNOWN = {
    "chunked": masking_utils.chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.long)),
    "another's": lambda b, h, q, k: (k <= q) & (k % 3 != 1),
    "both": masking_utils.or_masks(FUNCTIONS["causal"], FUNCTIONS["sliding both ways"]),
}


def allowed(form, queries, keys):
    """[B, T, S] of a form, from its definition."""
    i, j = torch.arange(queries)[:, None], torch.arange(keys)
    step = j - (i + keys - queries)
    left, right = form.window
    open_TS = ((left < 0) | (step >= -left)) & ((right < 0) | (step <= right))
    return open_TS[None] if form.attend is None else open_TS & form.attend[:, None, :]


@pytest.mark.parametrize("bool_masks", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("queries", "past", "cut"), [(9, 0, 0), (1, 8, 0), (4, 8, 5)])
def test_forms_say_what_masks_say(name, queries, past, cut, bool_masks):
    """`cut`: keys that a cache of a window has dropped."""
    keys = past + queries - cut
    config = models.build(models.FAMILIES["llama" if bool_masks else "gemma2"]).config
    padding = torch.ones(2, past + queries, dtype=torch.bool)
    padding[1, :6] = False
    call = dict(batch_size=2, q_length=queries, kv_length=keys, q_offset=past, kv_offset=cut, dtype=torch.float32)
    call |= dict(mask_function=FUNCTIONS[name], allow_is_causal_skip=False, config=config)
    for mask in (None, padding, padding | True):
        made = make_mask(**call, attention_mask=mask)
        assert made.dtype == (torch.bool if bool_masks else torch.float32)
        form = noted_form(made)
        assert (form.attend is None) == (mask is not padding or bool(padding[:, cut:].all()))
        want = made if bool_masks else made == 0
        assert torch.equal(allowed(form, queries, keys).expand(2, -1, -1), want[:, 0])


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_functions_have_no_form(name):
    assert noted_form(make_mask(2, 5, 5, mask_function=UNKNOWN[name], dtype=torch.float32)) is None


def test_forms_of_other_calls():
    """Models whose configuration is from elsewhere may add a mask to the scores, as eager attention does; queries that
    are not the last tokens, as in a cache of fixed size with room after them, have no form."""
    elsewhere = type("Config", (LlamaConfig,), {})()
    made = make_mask(2, 5, 5, config=elsewhere, dtype=torch.float32)
    assert made.dtype == torch.float32 and noted_form(made) == MaskForm((-1, 0))
    assert noted_form(make_mask(2, 3, 9, q_offset=2, dtype=torch.float32)) is None
    assert noted_form(make_mask(2, 3, 9, q_offset=torch.tensor(6), dtype=torch.float32)) is None


@pytest.mark.parametrize("inference", [False, True])
def test_a_changed_mask_has_no_form(inference):
    with torch.inference_mode(inference):
        made = make_mask(2, 5, 5, dtype=torch.float32)
        assert noted_form(made) == MaskForm((-1, 0))
        assert noted_form(made[:, :, :4]) is None
        made[0, 0, 0, 0] = -1.0
        assert noted_form(made) is None
    note_form(other := torch.zeros(2), MaskForm())
    assert noted_form(other) == MaskForm()


ROWS, HEADS, DIM = 2, 4, 8


def test_dropout():
    """With the identity as values the output is the weights: each is 0 or divided by what is kept."""
    torch.manual_seed(0)
    p, tokens = 0.3, 64
    q, k = torch.randn(2, ROWS, tokens, HEADS, DIM)
    v = torch.eye(tokens)[None, :, None].expand(ROWS, -1, HEADS, -1)
    weights, dropped, other = (attend(q, k, v, MaskForm(), dropout=rate) for rate in (0.0, p, p))
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], weights[kept] / (1 - p), atol=tol.T2_ATOL, rtol=tol.T2_RTOL)
    deviation = (p * (1 - p) / kept.numel()) ** 0.5
    assert abs((~kept).double().mean().item() - p) <= tol.SIGMAS * deviation
    assert not torch.equal(dropped, other)
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"\[attention\] dropout must be from 0 to below 1"):
            attend(q, k, v, MaskForm(), dropout=rate)
    layer, x = EncoderLayer(16, 2, dropout=0.5, attention_dropout=0.5), torch.randn(1, 4, 16)
    assert not torch.equal(layer(x), layer(x)) and torch.equal(layer.eval()(x), layer(x))
