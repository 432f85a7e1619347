"""Loads torch and the libraries for it: what uses the operators or the models imports this module first."""

from . import _library

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"[roformer_cpp] the operators and models need PyTorch 2.11 to 2.15, got: {error}. "
        "Hint: install torch, then a wheel that was built with it (docs/python.md); Engine, Tokenizer and "
        "SentenceTransformer work without PyTorch"
    ) from None

has_models = _library.load()
