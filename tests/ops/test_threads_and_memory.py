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


def rope_table(x):
    ids, freqs = torch.arange(50000), torch.rand(64, dtype=torch.float64)
    return lambda: roformer_cpp.rope_table(ids, freqs)


def rope(x):
    positions = torch.arange(x.size(1))
    return lambda: roformer_cpp.rope(x, positions, layout="pairs")


def linear(x):
    rows, weight = x.flatten(2), torch.ones(512, 512)
    return lambda: OPERATORS.linear(rows, weight, None)


# A call for x [4,512,8,64], large enough for several threads. What it reads is made before, on the test's own thread.
CALLS = {
    "rope": rope,
    "rope_table": rope_table,
    "dropout": lambda x: lambda: OPERATORS.dropout(x, 0.1, 1, 2),
    "gelu": lambda x: lambda: OPERATORS.gelu(x),
    "linear": linear,
    "attention": lambda x: lambda: roformer_cpp.attention(x, x, x),
    "attention, backward": attention_backward,
    "linear_attention": lambda x: lambda: roformer_cpp.linear_attention(x, x, x),
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
    call = CALLS[name](torch.randn(4, 512, 8, 64))
    for threads in (1, 3):
        torch.set_num_threads(threads)
        assert threads_made(call) == threads - 1


def test_memory_is_held_and_released():
    x = torch.randn(2, 300, 4, 64)
    roformer_cpp.rope(x, torch.arange(300), layout="pairs")
    roformer_cpp.attention(x, x, x)
    work, table = roformer_cpp.memory_held()
    assert work > 0
    assert table >= 300 * 64 * 4
    roformer_cpp.release_memory()
    assert roformer_cpp.memory_held() == (0, 0)
    positions = torch.arange(300)
    expected = roformer_cpp.rope(x.double(), positions, layout="pairs")
    roformer_cpp.release_memory()
    assert torch.equal(roformer_cpp.rope(x.double(), positions, layout="pairs"), expected)
