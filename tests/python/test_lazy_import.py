"""`import roformer_cpp` without torch, and how names that need torch are loaded when they are used."""

import inspect
import sys

import pytest

import roformer_cpp
from training_case import printed, refuse_torch

LIMIT = 0.3  # seconds of the processor


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """What makes the package load its libraries at once."""
    for name in ("ROFORMER_LIB_DIR", "OMP_DYNAMIC"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("given", [str, refuse_torch], ids=["torch", "no torch"])
def test_import_is_fast_and_loads_neither_torch_nor_numpy(given):
    code = given(
        "import sys, time; start = time.process_time(); import roformer_cpp; "
        "print(time.process_time() - start, any(sys.modules.get(name) for name in ('torch', 'numpy')))"
    )
    found = [printed("-c", code).split() for _ in range(2)]
    assert all(loaded == "False" for _, loaded in found)
    assert min(float(seconds) for seconds, _ in found) < LIMIT


def test_without_torch_names_say_what_they_need():
    uses = ["roformer_cpp.attention", "from roformer_cpp import rope", "roformer_cpp.ShardDataset"]
    code = f"import roformer_cpp\nfor use in {uses!r}:\n  try: exec(use)\n  except ImportError as error: print(error)"
    *operators, dataset = printed("-c", refuse_torch(code)).splitlines()
    for said in operators:
        assert said.startswith("[roformer_cpp] the operators and models need PyTorch 2.11 to 2.15, got: ")
        assert "a wheel that was built with it" in said
    assert len(operators) == 2 and dataset.startswith("[roformer_cpp] ShardDataset needs PyTorch, got: ")


def test_without_torch_the_rest_works():
    code = refuse_torch(
        "import pydoc, roformer_cpp; from roformer_cpp import *; print(roformer_cpp.__all__, Engine.__name__); "
        "assert 'rope' not in dir(roformer_cpp); assert 'Engine' in dir(roformer_cpp); "
        "assert 'fill_mask' in pydoc.plain(pydoc.render_doc(roformer_cpp)); "
        "import roformer_cpp.plot, roformer_cpp.tensorboard, roformer_cpp.theory"
    )
    names = ["CrossEncoder", "Engine", "SentenceTransformer", "TensorBoard", "Tokenizer", "convert", "export_onnx"]
    names += ["BGEM3FlagModel", "MultiVectorEncoder", "SparseEncoder", "SparseVectors", "quantize_embeddings"]
    names += ["Finetuning", "Pretraining", "finetune", "merge", "prepare", "pretrain", "scalars", "vocab"]
    assert printed("-c", code) == f"{names} Engine"


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match="module 'roformer_cpp' has no attribute 'ropes'"):
        roformer_cpp.ropes  # noqa: B018


def needs_operators(test):
    return pytest.mark.skipif("rope" not in roformer_cpp.__all__, reason="needs a build with torch")(test)


@needs_operators
def test_all_names_are_there():
    names = set(roformer_cpp.__all__)
    assert names == set(roformer_cpp._MODULE_OF) and names <= set(dir(roformer_cpp))
    for name in names:
        value = getattr(roformer_cpp, name)
        assert inspect.getdoc(value) and (inspect.isclass(value) or inspect.isfunction(value)), name


FIRST = ["", "import roformer_cpp.attention", "from roformer_cpp.encoding import Encoding"]
FIRST += ["from roformer_cpp import attention", "from roformer_cpp import *"]


@needs_operators
def test_functions_keep_their_names():
    """Four of them have the name of their module, whatever is imported first; in a child each, of one with torch."""
    names = ("attention", "convert", "encoding", "linear_attention")
    code = f"""
import os, torch._dynamo
for first in {FIRST!r}:
    if (child := os.fork()) == 0:
        exec(first)
        import roformer_cpp
        values = [getattr(roformer_cpp, name) for name in {names!r}]
        print(*(word for value in values for word in (type(value).__name__, value.__name__)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    expected = " ".join(word for name in names for word in ("function", name))
    assert printed("-c", code).splitlines() == [expected] * len(FIRST)


def test_without_ray_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    rule = r"^\[.*the packages of the extra ray must be installed, got: .*Hint: pip install 'roformer-cpp\[ray\]'$"
    for call in (
        lambda: roformer_cpp.ray.embed(None, "model"),
        lambda: roformer_cpp.ray.prepare(None, "model", "data"),
        lambda: roformer_cpp.ray.train("run.json", "data", "run", workers=2),
    ):
        with pytest.raises(ImportError, match=rule):
            call()
