"""The vector of a sequence has the same bits whatever else a call has, in whatever order, on any number of threads."""

import numpy as np
import pytest

from engine_case import WIDE, make_oracle, make_sequences, set_threads
from rf_engine import Engine

LENGTHS = [1, 2, 1, 17, 64, 65, 3, 130, 1, 31, 256, 5, 16, 15, 90, 1]


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_batches(family, precision, tmp_path):
    make_oracle(family, "Model", **WIDE).save_pretrained(tmp_path)
    ids, types = make_sequences(LENGTHS)
    alone_engine = Engine(tmp_path, precision)
    set_threads(1)
    alone = [alone_engine.hidden([i], types=[t]) for i, t in zip(ids, types, strict=True)]
    vectors = [alone_engine.pooled([i], types=[t]) for i, t in zip(ids, types, strict=True)]
    random = np.random.default_rng(5)
    for budget, threads in ((1, 1), (40, 2), (200, 3), (4096, 2), (4096, 1)):
        engine = Engine(tmp_path, precision, token_budget=budget)
        set_threads(threads)
        order = random.permutation(len(ids))
        some = order[: random.integers(1, len(order) + 1)]

        def pick(x, some=some):
            return [x[i] for i in some]

        hidden = engine.hidden(pick(ids), types=pick(types))
        assert np.array_equal(hidden, np.concatenate(pick(alone)))
        assert np.array_equal(engine.pooled(pick(ids), types=pick(types)), np.concatenate(pick(vectors)))
