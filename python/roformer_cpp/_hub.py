"""Ids of the Hugging Face Hub in place of model directories."""

import importlib.util
import os
import re

from . import _native

# The files of a model directory; other formats of the weights are not read.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.dict", "*.jinja", "*.tiktoken", "artifact.metadata"]


def located(given: str) -> str:
    """An existing path unchanged; for an id, its directory in the cache of huggingface_hub, which downloads
    "owner/name" if it is installed.

    Raises:
        FileNotFoundError: for another name; for an id it says what to type.
    """
    if os.path.lexists(given):
        return given
    native = _native.load()
    is_id = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", given, re.ASCII) is not None
    if not is_id or importlib.util.find_spec("huggingface_hub") is None:
        return native.located_model(given)
    cached = native.cached_model(given)
    if cached is not None:
        return cached
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(given, allow_patterns=_FILES)
    except Exception as error:
        raise FileNotFoundError(
            f"[model] a model must be a directory or an id of the Hugging Face Hub, got {given}, which does not exist "
            f"here and could not be downloaded ({type(error).__name__}); try: hf download {given}"
        ) from error
