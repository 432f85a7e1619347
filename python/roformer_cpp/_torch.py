"""Loads torch and the libraries for it. Modules that use the operators or the models import this module first."""

from . import _checks, _library

_checks.needed(
    "torch",
    "[roformer_cpp] the operators and models need PyTorch 2.11 to 2.15",
    ". Hint: install torch, then a wheel that was built with it (docs/python.md); Engine, Tokenizer and "
    "SentenceTransformer work without PyTorch",
)
has_models = _library.load()
