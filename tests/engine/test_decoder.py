"""A cache of keys and values changes no bit: logits of sequences that grow in steps are those of the whole at once."""

import numpy as np
import pytest

from engine_case import VOCAB, WIDE, change_config, make_causal, make_sequences, set_threads
from rf_engine import EngineError
from rf_generation import CausalEngine, Decoder, check_grown

LENGTHS = [1, 64, 3, 130, 65, 31, 130, 3, 260]


@pytest.mark.parametrize("family, precision", [("RoFormer", "float32"), ("Bert", "bfloat16")])
def test_bits(family, precision, tmp_path):
    make_causal(family, tmp_path, **WIDE)
    engine = CausalEngine(tmp_path, precision)
    rows, _ = make_sequences(LENGTHS)
    whole = [engine.logits([row]) for row in rows]
    for threads, longest_step in ((2, 1), (1, 50), (3, 300)):
        set_threads(threads)
        check_grown(engine, rows, longest_step, lambda i, length: whole[i][length - 1], threads)


def test_copies(tmp_path):
    """Sequences become others, which they share a part with, and go on."""
    make_causal("RoFormer", tmp_path, max_position_embeddings=64)
    engine = CausalEngine(tmp_path)
    random = np.random.default_rng(2)
    decoder = Decoder(engine, 4, 60)
    rows = [[int(random.integers(VOCAB))] for _ in range(4)]
    decoder.append(range(4), rows)
    for _ in range(50):
        source, target = (int(i) for i in random.integers(0, 4, 2))
        decoder.copy(source, target)
        rows[target] = list(rows[source])
        if random.random() < 0.3 and len(rows[source]) > 1:
            rows[source] = rows[source][: int(random.integers(1, len(rows[source])))]
            decoder.truncate(source, len(rows[source]))
        added = [[int(random.integers(VOCAB))] for _ in range(4)]
        rows = [row + new for row, new in zip(rows, added, strict=True)]
        for row, ours in zip(rows, decoder.append(range(4), added), strict=True):
            assert np.array_equal(ours, engine.logits([row])[-1])


def test_errors(tmp_path):
    make_causal("Bert", tmp_path, max_position_embeddings=48)
    engine = CausalEngine(tmp_path)
    decoder = Decoder(engine, 2, 4)
    before = decoder.append([1], [[3, 4]])
    for sequences, added, message in (
        ([2], [[1]], r"sequences must be in 0\.\.1, got 2"),
        ([1, 0], [[1], [1]], "sequences must ascend, got 0 after 1"),
        ([0, 1], [[1], []], "must grow by at least one token, got 0 for 1"),
        ([1], [[1, 2, 3]], "at most the 4 tokens that there is room for, got 5"),
        ([1], [[VOCAB]], r"token ids must be in 0\.\.60, got 61"),
    ):
        with pytest.raises(EngineError, match=message):
            decoder.append(sequences, added)
    with pytest.raises(EngineError, match=r"truncate must leave 0\.\.2 tokens, got 3"):
        decoder.truncate(1, 3)
    with pytest.raises(EngineError, match="positions must be below the 48"):
        Decoder(engine, 1, 49)
    decoder.truncate(1, 1)
    assert np.array_equal(decoder.append([1], [[4]]), before)


DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 16, "long_factor": [1.0 + i % 5 for i in range(16)]}
LONGROPE |= {"original_max_position_embeddings": 20}


ENCODINGS = [("none", "bfloat16"), ({"type": "rope", "rotary_value": True}, "float32")]
ENCODINGS += [({"type": "rope", "rope_parameters": DYNAMIC}, "bfloat16")]
ENCODINGS += [({"type": "rope", "rope_parameters": LONGROPE}, "float32")]
ENCODINGS += [({"type": "xpos", "scale_base": 8}, precision) for precision in ("float32", "bfloat16")]
ENCODINGS += [(["sinusoidal", "rope", {"type": "nezha", "max_relative_position": 9}], "float32")]


@pytest.mark.parametrize("encoding, precision", ENCODINGS, ids=str)
def test_bits_of_encodings(encoding, precision, tmp_path):
    """Tables by distance; rotations that change once; and those that change as a sequence grows, in one layer: in the
    second, states of earlier tokens would change with them, which a cache cannot follow."""
    changes_with_length = "dynamic" in str(encoding) or "xpos" in str(encoding)
    layers = {"num_hidden_layers": 1 if changes_with_length else 3}
    make_causal("RoFormer", tmp_path, **WIDE | {"max_position_embeddings": 30} | layers)
    change_config(tmp_path, model_type="rf_encoder", architectures=["RfEncoderForCausalLM"], position_encoding=encoding)
    engine = CausalEngine(tmp_path, precision)
    rows, _ = make_sequences((1, 40, 7, 40, 40, 70))
    check_grown(engine, rows, 9, lambda i, length: engine.logits([rows[i][:length]])[-1])
