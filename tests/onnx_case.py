"""ONNX files, run by ONNX Runtime, and batches for them."""

import numpy as np
import onnxruntime
import torch

import tolerances as tol
from engine_case import VOCAB, assert_close
from parity_case import exact_table

OPSETS = (17, 23)


def open_session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path, ids, mask, types):
    session = open_session(path)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    names = [output.name for output in session.get_outputs()]
    given = {x.name: np.asarray(inputs[x.name], np.int64) for x in session.get_inputs()}
    return dict(zip(names, session.run(None, given), strict=True))


def padded(ids, types, side="right"):
    """Rows of one length, and the mask; padding has random tokens, which must not matter."""
    length, vocabulary = max(map(len, ids)), VOCAB - 1  # the smallest of the models
    rows, masks, kinds = np.random.default_rng(2).integers(1, vocabulary, (3, len(ids), length))
    masks[:], kinds[:] = 0, 0
    for i, row in enumerate(ids):
        at = slice(0, len(row)) if side == "right" else slice(length - len(row), length)
        rows[i, at], masks[i, at], kinds[i, at] = row, 1, types[i]
    return rows, masks, kinds


def kept(values, mask):
    """The rows of real tokens [tokens, ..], or all rows of sequences."""
    return values[mask == 1] if values.shape[:2] == mask.shape else values


def of_torch(oracle, mask, outputs):
    """The outputs of a model of transformers under the names of the file."""
    names = {"last_hidden_state", "pooler_output", "logits", "start_logits", "end_logits"}
    return {name: kept(value.numpy(), mask) for name, value in outputs.items() if name in names and value is not None}


def oracle_outputs(oracle, ids, mask, types):
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    if not getattr(oracle.config, "type_vocab_size", 0):
        del given["token_type_ids"]
    with torch.no_grad():
        return of_torch(oracle, mask, oracle(**{k: torch.as_tensor(v) for k, v in given.items()}))


def check_against(oracle, path, batch):
    """Our error against float64 is at most twice that of transformers in float32; equal names and shapes.

    Errors are root mean squares: the largest of a few dozen float32 errors is chance, and changes with the threads.
    """
    ours = {name: kept(value, batch[1]) for name, value in run(path, *batch).items()}
    theirs = oracle_outputs(oracle, *batch)
    exact = oracle_outputs(exact_table(oracle.double()), *batch)
    assert ours.keys() == theirs.keys()
    for name, value in exact.items():
        assert_close(ours[name], value)
        error, allowed = (np.sqrt(np.square(each - value).mean()) for each in (ours[name], theirs[name]))
        assert error <= tol.LOW_PRECISION_RATIO * allowed, (name, error, allowed)
