"""Ids of the Hugging Face Hub in place of model directories."""

import importlib.util
import os
import re

from . import _native

# What a model directory may consist of; other formats of the weights are not read.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.dict"]


def located(given: str) -> str:
    """A path that exists as it is; an id as its directory in the cache of huggingface_hub, which downloads it where it
    is installed; another name as it is, for the reader of the model to refuse."""
    if os.path.lexists(given):
        return given
    cached = _native.load().cached_model(given)
    if cached is not None:
        return cached
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", given, re.ASCII) is None:
        return given
    if importlib.util.find_spec("huggingface_hub") is None:
        return given
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(given, allow_patterns=_FILES)
    except Exception as error:
        raise FileNotFoundError(
            f"[model] a model must be a directory or an id of the Hugging Face Hub, got {given}, which does not exist "
            f"here and could not be downloaded ({type(error).__name__}); try: hf download {given}"
        ) from error
