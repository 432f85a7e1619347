"""Random perturbed models of transformers, and sequences, for the tests of the engine."""

import ctypes
import json

import numpy as np
import pytest
import torch
import transformers

import tolerances as tol
from rf_engine import Engine, EngineError

VOCAB, TYPES, LABELS = 61, 3, 5
LENGTHS = (1, 13, 7, 2, 20)
SIZES = {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 37, "max_position_embeddings": 32, "type_vocab_size": TYPES}
WIDE = {"hidden_size": 96, "intermediate_size": 200, "num_attention_heads": 3, "max_position_embeddings": 300}
CAUSAL_HEADS = {"RoFormer": "ForCausalLM", "Bert": "LMHeadModel"}


def set_threads(count):
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(count)


def make_oracle(family, head, spread=0.3, **changes):
    torch.manual_seed(3)
    labels = 2 if head == "ForQuestionAnswering" else LABELS
    config = getattr(transformers, f"{family}Config")(**(SIZES | {"num_labels": labels} | changes))
    model = getattr(transformers, family + head)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # the table of rotations is not
                parameter.add_(spread * torch.randn(parameter.shape))
    return model.eval()


def make_causal(family, folder, **changes):
    """A causal language model, saved in a folder."""
    oracle = make_oracle(family, CAUSAL_HEADS[family], is_decoder=True, **changes)
    oracle.save_pretrained(folder)
    oracle.generation_config.pad_token_id = 0
    return oracle


def make_sequences(lengths=LENGTHS, seed=1):
    random = np.random.default_rng(seed)
    ids = [random.integers(1, VOCAB, n).astype(np.int32) for n in lengths]
    types = [random.integers(0, TYPES, n).astype(np.int32) for n in lengths]
    return ids, types


def random_sources(count, seed):
    """Texts for the models of translation, whose end is the token 1."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 10, (count,), generator=generator).tolist()
    return [[*torch.randint(3, VOCAB, (length,), generator=generator).tolist(), 1] for length in lengths]


def change_config(folder, **changes):
    """Replaces keys of config.json; None removes one."""
    path = folder / "config.json"
    keys = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))


def assert_refused(folder, message, opened=Engine, options=None, **changes):
    """With these changes of config.json, which is then as it was."""
    path = folder / "config.json"
    before = path.read_text()
    if changes:
        change_config(folder, **changes)
    with pytest.raises((EngineError, RuntimeError), match=message):
        opened(folder, **(options or {}))
    path.write_text(before)


def run_oracle(model, ids, types):
    """One sequence at a time, so that nothing is padded."""
    with torch.no_grad():
        for row, type_row in zip(ids, types, strict=True):
            yield model(input_ids=torch.tensor(row)[None].long(), token_type_ids=torch.tensor(type_row)[None].long())


def assert_close(ours, theirs):
    largest = np.abs(theirs).max()
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= tol.T4_MAX * largest
    assert np.abs(ours - theirs).mean() <= tol.T4_MEAN * largest


def assert_near(got, expected):
    expected = np.asarray(expected)
    assert np.abs(np.asarray(got) - expected).max() <= tol.T4_MAX * max(1, np.abs(expected).max()), (got, expected)


def assert_low_precision(ours, theirs, exact):
    """The vectors have the directions of theirs, and are not the engine's own in float32."""
    cosines = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(theirs, axis=-1)
    assert cosines.min() >= tol.LOW_PRECISION_COSINE
    assert not np.array_equal(ours, exact)
