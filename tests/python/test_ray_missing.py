"""roformer_cpp.ray where Ray is not installed."""

import sys

import pytest

import roformer_cpp


@pytest.mark.parametrize(
    "call",
    [
        lambda: roformer_cpp.ray.embed(None, "model"),
        lambda: roformer_cpp.ray.prepare(None, "model", "data"),
        lambda: roformer_cpp.ray.train("run.json", "data", "run", workers=2),
    ],
    ids=["embed", "prepare", "train"],
)
def test_one_sentence_names_the_extra(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError) as caught:
        call()
    message = str(caught.value)
    assert "the packages of the extra ray must be installed, got: " in message
    assert message.startswith("[") and message.endswith("Hint: pip install 'roformer-cpp[ray]'") and "\n" not in message
