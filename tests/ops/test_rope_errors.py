"""Every bad argument of roformer::rope gives an error that names the rule and the value."""

import re

import pytest
import torch
from torch.autograd import forward_ad

import roformer_cpp

X = torch.zeros(2, 4, 3, 8)
T = torch.arange(4)
FREQS = torch.ones(2, dtype=torch.float64)

VALUE_ERRORS = [
    ({"layout": "interleaved"}, 'layout must be "pairs" (RoFormer, GPT-J) or "halves"', 'got "interleaved"'),
    ({"direction": "backward"}, 'direction must be "forward", "transpose" or "inverse"', 'got "backward"'),
    ({"rotary_dim": 7}, "rotary_dim must be even, >= 2 and <= 8", "got 7"),
    ({"rotary_dim": 10}, "rotary_dim must be even, >= 2 and <= 8", "got 10"),
    ({"rotary_dim": 0}, "rotary_dim must be even, >= 2 and <= 8", "got 0"),
    ({"x": torch.zeros(4, 8)}, "x must be [.., tokens, heads, head_dim]", "got a tensor of 2 dimensions"),
    ({"x": X[0, 0], "heads_first": True}, "x must be [.., heads, tokens, head_dim] (heads_first)", "of 2 dimensions"),
    ({"x": X.long()}, "x must be float32, float64, bfloat16 or float16", "got Long"),
    ({"positions": T.float()}, "positions must be integers or float64", "got Float"),
    ({"positions": T.bool()}, "positions must be integers or float64", "got Bool"),
    ({"positions": torch.arange(5)}, "positions must be [tokens] or [batch, tokens] with 4 tokens", "got [5]"),
    ({"positions": torch.tensor(3)}, "positions must be [tokens] or [batch, tokens]", "got []"),
    ({"positions": T.expand(3, 4)}, "here [4] or [2, 4]", "got [3, 4]"),
    ({"positions": torch.tensor([0, 1, float("nan"), 3]).double()}, "finite", "got nan"),
    ({"base": 0.0}, "base must be finite and > 0", "got 0"),
    ({"base": float("inf")}, "base must be finite and > 0", "got inf"),
    ({"scale": 0.0}, "scale must be finite and not 0", "got 0"),
    ({"scale": float("nan")}, "scale must be finite and not 0", "got nan"),
    ({"freqs": FREQS.float()}, "freqs must be float64 of shape [rotary_dim/2]", "got Float of shape [2]"),
    ({"freqs": FREQS[None]}, "freqs must be float64 of shape [rotary_dim/2]", "got Double of shape [1, 2]"),
    ({"freqs": FREQS[:0]}, "freqs must be float64 of shape [rotary_dim/2]", "got Double of shape [0]"),
    ({"freqs": FREQS, "base": 500.0}, "base must not be given together with freqs", "got base 500"),
    ({"freqs": FREQS, "rotary_dim": 6}, "rotary_dim must be twice the number of freqs, 4", "got 6"),
    ({"freqs": FREQS.repeat(3)}, "freqs must be at most head_dim/2 = 4 numbers", "got 6"),
]


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(("arguments", "rule", "value"), VALUE_ERRORS)
def test_value_errors(arguments, rule, value, inplace):
    arguments = {"x": X, "positions": T, "layout": "pairs", "inplace": inplace, **arguments}
    with pytest.raises(ValueError, match=r"^\[rope\w*\] ") as error:
        roformer_cpp.rope(**arguments)
    message = str(error.value)
    assert rule in message and value in message, message
    assert len(message.splitlines()) == 1, "one line, no stack"


def test_layout_has_no_default():
    with pytest.raises(TypeError, match="layout"):
        roformer_cpp.rope(X, T)
    with pytest.raises(RuntimeError, match="layout"):
        torch.ops.roformer.rope(X, T)


@pytest.mark.parametrize("inplace", [False, True])
def test_positions_have_no_gradient(inplace):
    with pytest.raises(NotImplementedError, match=re.escape("[rope] positions must not require grad")):
        roformer_cpp.rope(X, T.double().requires_grad_(), layout="pairs", inplace=inplace)
    with torch.no_grad():
        roformer_cpp.rope(X, T.double().requires_grad_(), layout="pairs", inplace=inplace)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_forward_mode_is_refused(requires_grad):
    rope, dropout = roformer_cpp.rope, torch.ops.roformer.dropout
    x, positions, freqs = X.double().requires_grad_(requires_grad), T.double(), FREQS
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(t, torch.ones_like(t)) for t in (x, positions, freqs))
        dual_x, dual_positions, dual_freqs = duals
        for argument, call in [
            ("[rope] x", lambda: rope(dual_x, positions, layout="pairs")),
            ("[rope] x", lambda: rope(dual_x, positions, layout="pairs", inplace=True)),
            ("[rope] positions", lambda: rope(x, dual_positions, layout="pairs")),
            ("[rope] freqs", lambda: rope(x, positions, layout="pairs", freqs=dual_freqs)),
            ("[dropout] x", lambda: dropout(dual_x, 0.5, 1, 2)),
        ]:
            with pytest.raises(NotImplementedError, match=re.escape(argument + " must not carry a tangent")):
                call()
    with pytest.raises(NotImplementedError, match=re.escape("[rope] x must not carry a tangent")):
        torch.func.jvp(lambda x: roformer_cpp.rope(x, T, layout="pairs"), (X,), (torch.ones_like(X),))


def test_in_place_on_overlapping_memory():
    with pytest.raises(RuntimeError, match="single memory location"):
        roformer_cpp.rope(torch.zeros(1, 4, 3, 8).expand(2, 4, 3, 8), T, layout="pairs", inplace=True)


def test_shapes_are_checked_without_data():
    with pytest.raises(ValueError, match=re.escape("got [5]")):
        roformer_cpp.rope(X.to("meta"), torch.arange(5, device="meta"), layout="pairs")
    y = roformer_cpp.rope(X.to("meta"), T.to("meta"), layout="pairs")
    assert y.shape == X.shape and y.dtype == X.dtype and y.device.type == "meta"


def test_an_unknown_instruction_set():
    with pytest.raises(ValueError, match=r"got .*AVX9000"):
        roformer_cpp.set_target("AVX9000")
