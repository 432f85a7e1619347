"""What the sweeps over the table of encodings take from the test file of each, which the table names.

``SWEEP_KEYS``: keys with which an encoding shows at the small sizes of tests, where its defaults do not, and values of
keys that have no default: ``{name: keys}``, or a function of head_dim that returns the keys.

``STARTS``: how the parameters of a new encoding are distributed: ``{name: {parameter: check}}``, parameters by their
names without ``layer.<i>.``, checks as in initial_values.py. An encoding without parameters needs none.

``REFUSED``: keys that an encoding refuses, and what the message says: ``{name: [(keys, words), ..]}``.
"""

import importlib
from functools import cache
from pathlib import PurePosixPath

import roformer_cpp

INFOS = {info["name"]: info for info in roformer_cpp.encodings()}


@cache
def _file_of(name):
    """The module, as other tests import it, with tests/ on the path."""
    parts = PurePosixPath(INFOS[name]["test"]).with_suffix("").parts
    return importlib.import_module(".".join(parts[1:]))


def needs_keys(name):
    """Whether a key of the encoding has no default."""
    return any(" (required" in key for key in INFOS[name]["keys"])


def sweep_keys(name, head_dim):
    keys = getattr(_file_of(name), "SWEEP_KEYS", {}).get(name, {})
    return keys(head_dim) if callable(keys) else keys


def starts_of(name):
    return getattr(_file_of(name), "STARTS", {}).get(name, {})


def refused_of(name):
    return getattr(_file_of(name), "REFUSED", {}).get(name, [])
