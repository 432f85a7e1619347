import pytest

import roformer_cpp


@pytest.fixture
def set_target():
    """roformer_cpp.set_target for one test."""
    yield roformer_cpp.set_target
    roformer_cpp.set_target("")
