"""MultiVectorEncoder of the package against sentence-transformers' class: directories of its own, of PyLate and of
Stanford's ColBERT."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_case import assert_close
from roformer_cpp import MultiVectorEncoder
from sentence_model import LETTERS, TEXTS, save_encoder, save_modules, write_modules

theirs_module = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
DOCUMENTS = [*TEXTS, "a! b? c", "!?", "abc, de. fg!"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", *LETTERS]
    words += [*("##" + c for c in LETTERS[:20]), *".,!?:[]"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder


def check(folder):
    ours, theirs = MultiVectorEncoder(folder), theirs_module.MultiVectorEncoder(str(folder), device="cpu")
    queries, documents = ours.encode_query(TEXTS), ours.encode_document(DOCUMENTS)
    expected = theirs.encode_query(TEXTS), theirs.encode_document(DOCUMENTS)
    for mine, other in ((queries, expected[0]), (documents, expected[1]), (ours.encode(TEXTS), theirs.encode(TEXTS))):
        assert [len(array) for array in mine] == [len(array) for array in other]
        for a, b in zip(mine, other, strict=True):
            assert_close(a, b.numpy())
    assert_close(ours.similarity(queries, documents), theirs.similarity(*expected).numpy())
    pairwise = theirs.similarity_pairwise(expected[0], expected[1][: len(TEXTS)])
    assert_close(ours.similarity_pairwise(queries, documents[: len(TEXTS)]), pairwise.numpy())
    return ours, theirs


FIXED = {"strategy": "fixed", "length": 16}
EXPANSIONS = [None, FIXED, FIXED | {"attend": True}, {"strategy": "min", "length": 8, "token": "a"}]


@pytest.mark.parametrize("expansion", EXPANSIONS)
def test_sentence_transformers(encoder, tmp_path, expansion):
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(3)
    transformer = Transformer(str(encoder), document_length=12, query_expansion=expansion)
    level = dict(module_input_name="token_embeddings")
    dense = Dense(24, 8, bias=False, activation_function=torch.nn.Identity(), **level)
    tasks = ["query", "document"] if expansion is None else ["document"]
    mask = MultiVectorMask(skiplist_words=["!", "?"], skiplist_tasks=tasks)
    options = dict(prompts={"query": "q ", "document": "d "}, similarity_fn_name=expansion and "meanmaxsim")
    modules = [transformer, dense, mask, Normalize(**level)]
    theirs_module.MultiVectorEncoder(modules=modules, **options).save(str(tmp_path))
    ours, _ = check(tmp_path)
    assert ours.get_embedding_dimension() == 8
    (tmp_path / "3_Normalize/config.json").unlink()  # which says that it norms tokens
    with pytest.raises(FileNotFoundError, match="3_Normalize"):
        MultiVectorEncoder(tmp_path)


def save_pylate(folder, encoder, **config):
    shutil.copytree(encoder, folder, dirs_exist_ok=True)
    torch.manual_seed(4)
    dense = torch.nn.Linear(24, 8, bias=False)
    save_modules(folder, dense=[(dense, "torch.nn.modules.linear.Identity")], model_type="ColBERT", **config)
    write_modules(folder, [("", "Transformer"), ("2_Dense", "pylate.models.Dense.Dense")])


@pytest.mark.parametrize(
    "config",
    [
        {"query_prefix": "[unused0] ", "document_prefix": "[unused1] ", "query_length": 12, "document_length": 10},
        {"query_prefix": "[Q] ", "document_prefix": "[D] ", "skiplist_words": [",", "absent"]},
        {"query_prefix": "[unused0]", "document_prefix": "", "do_query_expansion": False, "query_length": 6},
        {"query_length": 20, "attend_to_expansion_tokens": True, "similarity_fn_name": "cosine"},
        {"query_length": 30, "document_length": 28},  # more than the tokenizer's 24
    ],
)
def test_pylate(encoder, tmp_path, config):
    save_pylate(tmp_path, encoder, **{"query_length": 20} | config)
    if "skiplist_words" in config:
        with pytest.warns(UserWarning, match='skipped words must be tokens of the vocabulary, .* got "absent"'):
            check(tmp_path)
    else:
        check(tmp_path)


def test_colbert(encoder, tmp_path):
    shutil.copytree(encoder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    torch.manual_seed(5)
    weights = {"bert." + name: tensor for name, tensor in weights.items()} | {"linear.weight": torch.randn(8, 24)}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    metadata = {"query_maxlen": 14, "doc_maxlen": 11, "attend_to_mask_tokens": False, "mask_punctuation": True}
    metadata |= {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "dim": 8, "lr": 1e-5}
    (tmp_path / "artifact.metadata").write_text(json.dumps(metadata))
    check(tmp_path)


def test_rank_and_batches(encoder, tmp_path):
    save_pylate(tmp_path, encoder, query_prefix="[unused0] ", document_prefix="[unused1] ", query_length=12)
    ours = MultiVectorEncoder(tmp_path)
    ranked = ours.rank("abc", DOCUMENTS, top_k=3, return_documents=True)
    scores = ours.similarity(ours.encode_query("abc"), ours.encode_document(DOCUMENTS))[0]
    assert [each["corpus_id"] for each in ranked] == np.argsort(-scores, kind="stable")[:3].tolist()
    assert [each["text"] for each in ranked] == [DOCUMENTS[each["corpus_id"]] for each in ranked]
    small = MultiVectorEncoder(tmp_path, token_budget=7)
    for texts, name in ((TEXTS, "encode_query"), (DOCUMENTS, "encode_document")):
        for a, b in zip(getattr(ours, name)(texts), getattr(small, name)(texts), strict=True):
            assert np.array_equal(a, b)


def test_refused(encoder, tmp_path):
    with pytest.raises(RuntimeError, match="vectors of tokens need the modules of a MultiVectorEncoder"):
        MultiVectorEncoder(encoder)
    save_pylate(tmp_path, encoder, query_prefix="[unused0] ", query_length=40)
    with pytest.raises(RuntimeError, match="queries must have at most 32 tokens, got 40"):
        MultiVectorEncoder(tmp_path)
