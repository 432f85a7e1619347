"""Generation by the engine's C interface, called by ctypes."""

import ctypes
from dataclasses import dataclass

import numpy as np

from engine_case import set_threads
from rf_engine import Engine, Handle, Struct, fields, make_tokens

SEARCHES = {"greedy": 0, "sample": 1, "beams": 2}


class Options(Struct):
    _fields_ = fields(
        "int search; int64 max_new_tokens min_new_tokens; void_p stop_ids; int64 stop_count; "
        "double repetition_penalty; int64 return_sequences; double temperature; int64 top_k; double top_p; "
        "uint64 seed; int64 beams; double* length_penalty; int32 stop_when_full; int64 batch; "
        "double presence_penalty frequency_penalty"
    )


class Generated(Struct):
    _fields_ = fields("void_p ids counts log_probability score stopped")


@dataclass
class Result:
    ids: list
    log_probability: float
    score: float
    stopped: bool


def make_options(search="greedy", stop_ids=(), length_penalty=1.0, **values):
    """The struct, and what it points to."""
    stops = np.asarray(stop_ids, np.int32)
    penalty = ctypes.c_double(length_penalty)
    options = Options(SEARCHES[search], **values)
    options.stop_ids, options.stop_count = stops.ctypes.data, len(stops)
    options.length_penalty = ctypes.pointer(penalty)
    return options, (stops, penalty)


class CausalEngine(Engine):
    def generate(self, prompts, search="greedy", max_new_tokens=20, return_sequences=1, **values):
        """[prompt][sequence]"""
        values |= dict(max_new_tokens=max_new_tokens, return_sequences=return_sequences)
        options, _kept = make_options(search, **values)
        tokens, _kept_too = make_tokens(prompts)
        shape = (len(prompts), return_sequences)
        arrays = {"ids": np.full((*shape, max_new_tokens), -1, np.int32), "counts": np.zeros(shape, np.int64)}
        arrays |= {"log_probability": np.zeros(shape), "score": np.zeros(shape), "stopped": np.zeros(shape, np.int32)}
        out = Generated(**{name: array.ctypes.data for name, array in arrays.items()})
        self.call("generate", self.handle, ctypes.byref(tokens), ctypes.byref(options), ctypes.byref(out))

        def result(at):
            ids = arrays["ids"][at][: arrays["counts"][at]].tolist()
            return Result(ids, arrays["log_probability"][at], arrays["score"][at], bool(arrays["stopped"][at]))

        return [[result((i, j)) for j in range(return_sequences)] for i in range(len(prompts))]

    def next_probabilities(self, prompt, **values):
        options, _kept = make_options("sample", **values)
        ids = np.asarray(prompt, np.int32)
        out = np.full(self.info.vocab_size, np.nan, np.float32)
        prompt_data = (ctypes.c_void_p(ids.ctypes.data), ctypes.c_int64(len(ids)))
        out_data = ctypes.c_void_p(out.ctypes.data)
        self.call("next_probabilities", self.handle, *prompt_data, ctypes.byref(options), out_data)
        return out


def check_batches_and_threads(engine, prompts, search):
    """The result of a prompt is the same alone and among others, in any batch, with any number of threads."""
    many = 1 if search == "greedy" else 3
    options = dict(return_sequences=many, temperature=1.5, seed=3, beams=3, stop_ids=[5, 9])
    set_threads(1)
    alone = [engine.generate([prompt], search, **options)[0] for prompt in prompts]
    for batch, threads in ((1, 2), (4, 3), (100, 2)):
        set_threads(threads)
        order = np.random.default_rng(batch).permutation(len(prompts))
        together = engine.generate([prompts[i] for i in order], search, batch=batch, **options)
        assert together == [alone[i] for i in order]


class Decoder(Handle):
    kind = "decoder_"

    def __init__(self, engine, sequences, max_tokens):
        self.engine, self.lib, self.handle = engine, engine.lib, ctypes.c_void_p()
        counts = (ctypes.c_int64(sequences), ctypes.c_int64(max_tokens))
        engine.call("decoder_open", engine.handle, *counts, ctypes.byref(self.handle))

    def append(self, sequences, added):
        """[sequences, vocab_size]"""
        tokens, _kept = make_tokens(added)
        which = np.asarray(sequences, np.int64)
        logits = np.full((len(added), self.engine.info.vocab_size), np.nan, np.float32)
        data = (ctypes.c_void_p(which.ctypes.data), ctypes.byref(tokens), ctypes.c_void_p(logits.ctypes.data))
        self.call("decoder_append", self.handle, *data)
        return logits

    def copy(self, source, target):
        self.call("decoder_copy", self.handle, ctypes.c_int64(source), ctypes.c_int64(target))

    def truncate(self, sequence, tokens):
        self.call("decoder_truncate", self.handle, ctypes.c_int64(sequence), ctypes.c_int64(tokens))


def check_grown(engine, rows, longest_step, expected, seed=0):
    """The logits of rows that grow in random steps have the bits of expected(row's index, length)."""
    decoder = Decoder(engine, len(rows), max(map(len, rows)))
    for (i, length), logits in grow(decoder, rows, np.random.default_rng(seed), longest_step).items():
        assert np.array_equal(logits, expected(i, length)), (i, length)


def grow(decoder, rows, random, longest_step):
    """Appends all rows in random steps, some rows at a time; logits of the last of each step, by (row, length)."""
    done = [0] * len(rows)
    logits = {}
    while left := [i for i, row in enumerate(rows) if done[i] < len(row)]:
        some = [i for i in left if random.random() < 0.7] or left[:1]
        counts = [min(len(rows[i]) - done[i], int(random.integers(1, longest_step + 1))) for i in some]
        added = [rows[i][done[i] : done[i] + n] for i, n in zip(some, counts, strict=True)]
        for i, n, row in zip(some, counts, decoder.append(some, added), strict=True):
            done[i] += n
            logits[i, done[i]] = row
    return logits
