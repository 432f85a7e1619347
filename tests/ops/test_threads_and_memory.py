"""Threads of operators called from any thread of Python, and memory that they keep between calls."""

import threading
from pathlib import Path

import pytest
import torch

import roformer_cpp

OPERATORS = torch.ops.roformer


@pytest.fixture(autouse=True)
def restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def attention_backward(x):
    leaves = [x.clone().requires_grad_() for _ in range(3)]
    out = roformer_cpp.attention(*leaves)
    return lambda: torch.autograd.grad(out, leaves, x, retain_graph=True)


X = torch.randn(4, 512, 8, 64)  # large enough for several threads
IDS, FREQS, WEIGHT = torch.arange(50000), torch.rand(64, dtype=torch.float64), torch.ones(512, 512)
CALLS = {
    "rope": lambda: roformer_cpp.rope(X, IDS[:512], layout="pairs"),
    "rope_table": lambda: roformer_cpp.rope_table(IDS, FREQS),
    "dropout": lambda: OPERATORS.dropout(X, 0.1, 1, 2),
    "gelu": lambda: OPERATORS.gelu(X),
    "linear": lambda: OPERATORS.linear(X.flatten(2), WEIGHT, None),
    "attention": lambda: roformer_cpp.attention(X, X, X),
    "attention, backward": attention_backward(X),
    "linear_attention": lambda: roformer_cpp.linear_attention(X, X, X),
}


def tasks():
    return {task.name for task in Path("/proc/self/task").iterdir()}


def threads_made(call):
    """By a call on a thread of its own. OpenMP keeps the threads of a team as long as the one that began it."""
    made = []

    def run():
        before = tasks()
        call()
        made.append(len(tasks() - before))  # those of the test before may still be going

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return made[0]


@pytest.mark.parametrize("name", CALLS)
def test_set_num_threads_counts_in_every_thread(name):
    for threads in (1, 3):
        torch.set_num_threads(threads)
        assert threads_made(CALLS[name]) == threads - 1


def test_memory_is_held_and_released():
    x = torch.randn(2, 300, 4, 64)
    roformer_cpp.rope(x, torch.arange(300), layout="pairs")
    roformer_cpp.attention(x, x, x)
    work, table = roformer_cpp.memory_held()
    assert work > 0 and table >= 300 * 64 * 4
    roformer_cpp.release_memory()
    assert roformer_cpp.memory_held() == (0, 0)
    positions = torch.arange(300)
    expected = roformer_cpp.rope(x.double(), positions, layout="pairs")
    roformer_cpp.release_memory()
    assert torch.equal(roformer_cpp.rope(x.double(), positions, layout="pairs"), expected)
