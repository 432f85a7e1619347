"""A child that was forked after an engine, a tokenizer or an operator computed with several threads computes the same,
and so does its parent: what gunicorn --preload and multiprocessing's "fork" do."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import roformer_cpp
from engine_case import set_threads
from sentence_model import TEXTS, save_encoder

LIMIT_S = 60  # a child that hangs ends by a signal


def in_child(compute, expected):
    """Exit status of a child that computes the same, twice."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(LIMIT_S)
            code = 0 if all(np.array_equal(compute(), expected) for _ in range(2)) else 2
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def embedding(folder):
    save_encoder(folder)
    engine = roformer_cpp.Engine(folder, threads=2)
    texts = TEXTS * 40  # more than one thread takes at once
    return lambda: engine.embed(texts)


def tokenizing(folder):
    save_encoder(folder)
    tokenizer = roformer_cpp.Tokenizer.from_pretrained(folder)
    return lambda: np.array(tokenizer(["words and more words " * 20] * 400, padding=True)["input_ids"])


def rotating(folder):
    set_threads(2)
    x = torch.linspace(-1, 1, 4 * 512 * 8 * 64).view(4, 512, 8, 64)
    return lambda: roformer_cpp.rope(x, torch.arange(512), layout="halves").numpy()


@pytest.mark.parametrize("kind", [embedding, tokenizing, rotating])
def test_fork(kind, tmp_path):
    compute = kind(tmp_path)
    expected = compute()
    assert in_child(compute, expected) == 0
    assert np.array_equal(compute(), expected)


def test_fork_while_another_thread_computes(tmp_path):
    compute = embedding(tmp_path)
    expected = compute()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: [compute() for _ in range(20)])
        assert in_child(lambda: tmp_path.exists(), True) == 0
        assert all(np.array_equal(each, expected) for each in running.result())
