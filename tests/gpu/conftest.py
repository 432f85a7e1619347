"""The kernels run on CPU tensors in Triton's interpreter (tests/conftest.py)."""

import warnings
from importlib.util import find_spec

import pytest

if find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]
    warnings.warn("[tests/gpu] triton must be installed, got none. Hint: scripts/setup.sh --tests", stacklevel=1)


@pytest.fixture(params=["kernels", "explicit"])
def implementation(request, monkeypatch):
    """The Triton kernels, and PyTorch's operations, which replace them on devices without support."""
    from roformer_cpp.gpu import launch

    if request.param == "explicit":
        monkeypatch.setattr(launch, "_runs_kernels", lambda device: False)
