"""SparseEncoder of the package against sentence-transformers' class: one import changes."""

import numpy as np
import pytest
import torch

from cli_support import results
from engine_case import assert_close
from roformer_cpp import SparseEncoder, SparseVectors
from sentence_model import TEXTS, WORDS, save_encoder, save_masked

theirs_module = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    return save_masked(tmp_path_factory.mktemp("masked"))


def splade(folder, strategy="max", activation="relu", **options):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    encoder = Transformer(str(folder), transformer_task="fill-mask")
    return theirs_module.SparseEncoder(modules=[encoder, SpladePooling(strategy, activation)], **options)


def check(ours, theirs):
    """The same values, and the same places but for values that rounding decides."""
    assert_close(ours.toarray(), theirs.to_dense().numpy())


@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_splade(language_model, tmp_path, strategy, activation):
    theirs = splade(language_model, strategy, activation, prompts={"query": "find: ", "document": "d "})
    theirs.save(str(tmp_path))
    ours = SparseEncoder(tmp_path)
    vectors = ours.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), len(WORDS)) and 0 < len(vectors.values) < len(TEXTS) * len(WORDS)
    check(vectors, theirs.encode(TEXTS))
    check(ours.encode_query(TEXTS), theirs.encode_query(TEXTS))
    check(ours.encode_document(TEXTS), theirs.encode_document(TEXTS))
    expected = theirs.similarity(theirs.encode(TEXTS), theirs.encode(TEXTS)).numpy()
    assert_close(ours.similarity(vectors, vectors), expected)
    for begin, end in zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True):
        assert np.all(np.diff(vectors.indices[begin:end]) > 0)


def test_a_plain_masked_language_model(language_model):
    ours, theirs = SparseEncoder(language_model), theirs_module.SparseEncoder(str(language_model), device="cpu")
    check(ours.encode(TEXTS), theirs.encode(TEXTS))
    check(ours.encode("abc"), theirs.encode(["abc"]))
    assert ours.encode([]).shape == (0, len(WORDS))
    assert ours.get_embedding_dimension() == len(WORDS) and ours.max_seq_length == 24


def test_batches_give_the_same_bits(language_model):
    texts = [text * n for n in (1, 3, 7) for text in TEXTS] * 3
    whole = SparseEncoder(language_model).encode(texts)
    small = SparseEncoder(language_model, token_budget=9).encode(texts)
    for a, b in ((whole.indptr, small.indptr), (whole.indices, small.indices), (whole.values, small.values)):
        assert np.array_equal(a, b)


def test_largest_and_decode(language_model, tmp_path):
    theirs = splade(language_model, max_active_dims=4)
    theirs.save(str(tmp_path))
    ours = SparseEncoder(tmp_path)
    vectors = ours.encode(TEXTS)
    assert np.all(np.diff(vectors.indptr) <= 4)
    check(vectors, theirs.encode(TEXTS))
    for most in (2, 9, 6, None):
        check(ours.encode(TEXTS, max_active_dims=most), theirs.encode(TEXTS, max_active_dims=most))
    check(SparseEncoder(tmp_path, max_active_dims=3).encode(TEXTS), theirs.encode(TEXTS, max_active_dims=3))
    decoded = ours.decode(vectors, top_k=3), theirs.decode(theirs.encode(TEXTS), top_k=3)
    for mine, other in zip(*decoded, strict=True):
        assert [token for token, _ in mine] == [token for token, _ in other]
        assert_close(np.array([v for _, v in mine]), np.array([v for _, v in other]))
    sparsity = theirs.sparsity(theirs.encode(TEXTS))
    assert ours.sparsity(vectors) == pytest.approx({key: sparsity[key] for key in ("active_dims", "sparsity_ratio")})


def test_queries_of_a_table(language_model, tmp_path):
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    encoder = Transformer(str(language_model), transformer_task="fill-mask")
    table = SparseStaticEmbedding(tokenizer=encoder.tokenizer, weight=torch.rand(len(WORDS)))
    theirs = theirs_module.SparseEncoder(modules=[Router.for_query_document([table], [encoder, SpladePooling()])])
    theirs.save(str(tmp_path))
    ours = SparseEncoder(tmp_path)
    texts = [text for text in TEXTS if text]
    check(ours.encode_query(texts), theirs.encode_query(texts))
    check(ours.encode_document(texts), theirs.encode_document(texts))
    check(ours.encode(texts), theirs.encode(texts))


def test_rows_without_a_token(tmp_path):
    """A model may have more rows than its tokenizer has tokens; the ways of a Router then differ in size."""
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    model, router = save_masked(tmp_path / "model", vocab_size=len(WORDS) + 9), tmp_path / "router"
    theirs, ours = splade(model), SparseEncoder(model)
    decoded = (each.decode(each.encode(TEXTS), top_k=20) for each in (ours, theirs))
    ours_decoded, theirs_decoded = ([[token for token, _ in text] for text in each] for each in decoded)
    assert ours_decoded == theirs_decoded and any(None in tokens for tokens in ours_decoded)
    (line,) = results("embed", "--model", model, "--sparse", "--token-names", "--text", "a")
    assert None in line["tokens"]
    encoder = Transformer(str(model), transformer_task="fill-mask")
    table = SparseStaticEmbedding(tokenizer=encoder.tokenizer, weight=torch.rand(len(WORDS)))
    ways = Router.for_query_document([table], [encoder, SpladePooling()], default_route="query")
    theirs = theirs_module.SparseEncoder(modules=[ways])
    theirs.save(str(router))
    check(SparseEncoder(router).encode_document(["a"]), theirs.encode_document(["a"]))


def test_vectors(language_model):
    vectors = SparseEncoder(language_model).encode(TEXTS)
    assert isinstance(vectors[2], SparseVectors) and vectors[2].shape == (1, len(WORDS))
    assert np.array_equal(vectors[1:3].toarray(), vectors.toarray()[1:3])
    assert np.array_equal(vectors[-1].toarray(), vectors.toarray()[-1:])
    assert np.array_equal(vectors.to_torch().to_dense().numpy(), vectors.toarray())
    with pytest.raises(IndexError):
        vectors[len(TEXTS)]


def test_refused(language_model, tmp_path):
    save_encoder(tmp_path)
    with pytest.raises(RuntimeError, match="sparse vectors need a masked language model, got BertModel"):
        SparseEncoder(tmp_path)
    with pytest.raises(ValueError, match="max_active_dims must be at least 1, got 0"):
        SparseEncoder(language_model, max_active_dims=0)
    with pytest.raises(TypeError, match="embeddings must be SparseVectors"):
        SparseEncoder(language_model).decode(np.zeros(3))
    with pytest.raises(ValueError, match="task must be"):
        SparseEncoder(language_model).encode("a", task="passage")
