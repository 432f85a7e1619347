"""Modules of sentence-transformers 6 between and after the usual ones, beside its own classes."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cli_support import refused, results
from engine_case import assert_close
from roformer_cpp import Engine, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_model import TEXTS, save_encoder

theirs_module = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
METHODS = ("encode", "encode_query", "encode_document")
LONG = [text for text in TEXTS if text] + ["the quick brown fox jumps over the lazy dog and sat there"]


def write(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def assert_all_close(ours, theirs):
    """Arrays of one class, and tensors of the other."""
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b.numpy())


# ---- WeightedLayerPooling

MODERN = {"intermediate_size": 36, "pad_token_id": 0, "global_attn_every_n_layers": 2, "local_attention": 6}
MODERN |= {"reference_compile": False}


def layered(folder, family, weights, start, states=True, **changes):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, WeightedLayerPooling
    from transformers import BertTokenizerFast

    save_encoder(folder / "encoder", family, num_hidden_layers=3, **changes)
    BertTokenizerFast(str(folder / "encoder/vocab.txt"), model_max_length=24).save_pretrained(folder / "encoder")
    encoder = Transformer(str(folder / "encoder"), config_kwargs={"output_hidden_states": True} if states else {})
    layers = WeightedLayerPooling(24, 3, start, torch.nn.Parameter(torch.tensor(weights)))
    theirs = theirs_module.SentenceTransformer(modules=[encoder, layers, Pooling(24), Normalize()], device="cpu")
    theirs.save(str(folder / "saved"))
    return folder / "saved", theirs


LAYERS = [("Bert", {}, [0.4, 2.0, -0.5], 1), ("Bert", {}, [2.0], 3), ("RoFormer", {}, [0.4, 2.0, -0.5], 1)]
LAYERS += [("ModernBert", MODERN, [1.0, 0.3, 0.7, 0.1], 0)]
LAYERS += [("Electra", {"embedding_size": 12}, [1.0, 0.3, 0.7, 0.1], 0)]


@pytest.mark.parametrize("family, changes, weights, start", LAYERS)
def test_weighted_layers(tmp_path, family, changes, weights, start):
    folder, theirs = layered(tmp_path, family, weights, start, **changes)
    assert_close(SentenceTransformer(folder).encode(TEXTS), theirs.encode(TEXTS))


def test_weighted_layers_without_states(tmp_path):
    folder, theirs = layered(tmp_path, "Bert", [1.0, 2.0, 3.0], 1, states=False)
    with pytest.warns(UserWarning, match="WeightedLayerPooling needs output_hidden_states"):
        ours = SentenceTransformer(folder)
    assert_close(ours.encode(TEXTS), theirs.encode(TEXTS))


def test_bad_weighted_layers(tmp_path):
    folder, _ = layered(tmp_path, "Bert", [1.0, 2.0, 3.0], 1)
    place = next(folder.glob("*_WeightedLayerPooling"))
    embed = ["embed", "--model", folder, "--text", "a"]
    write(place / "config.json", layer_start=2)
    assert "layer_weights must have the shape (2), got (3)" in refused(*embed)
    write(place / "config.json", layer_start=2, num_hidden_layers=4)
    assert "layer weights must be those of 4 hidden states, got 5" in refused(*embed)
    write(place / "config.json", layer_start=1, num_hidden_layers=3)
    save_file({"layer_weights": torch.tensor([1.0, -1.0, 0.0])}, place / "model.safetensors")
    assert "a sum other than 0" in refused(*embed)


# ---- SparseAutoEncoder


def encoded(folder, normalize=False, **options):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    save_encoder(folder / "encoder")
    torch.manual_seed(2)
    coder = SparseAutoEncoder(24, hidden_dim=50, k=6, k_aux=8, normalize=normalize)
    with torch.no_grad():
        for parameter in coder.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape))
    modules = [Transformer(str(folder / "encoder")), Pooling(24), coder]
    theirs = theirs_module.SparseEncoder(modules=modules, device="cpu", **options)
    theirs.save(str(folder / "saved"))
    return folder / "saved", theirs


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("active", [None, 3])
def test_auto_encoder(tmp_path, normalize, active):
    options = {} if active is None else {"max_active_dims": active}
    folder, theirs = encoded(tmp_path, normalize, **options)
    ours = SparseEncoder(folder)
    vectors = ours.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 50) and 0 < np.diff(vectors.indptr).max() <= (active or 6)
    assert_close(vectors.toarray(), theirs.encode(TEXTS).to_dense().numpy())
    for most in (2, 20):
        ours = SparseEncoder(folder, max_active_dims=most).encode(TEXTS)
        assert_close(ours.toarray(), theirs.encode(TEXTS, max_active_dims=most).to_dense().numpy())


def test_refused_auto_encoder(tmp_path):
    folder, _ = encoded(tmp_path)
    embed = ["embed", "--model", folder, "--sparse", "--text", "a"]
    assert "need weights of the vocabulary, got those of a SparseAutoEncoder" in refused(*embed, "--token-names")
    place = next(folder.glob("*_SparseAutoEncoder"))
    write(place / "config.json", k=51)
    assert "k must be an integer from 1 to 50, got 51" in refused(*embed)
    write(place / "config.json", k=6, input_dim=23)
    assert "pre_bias must have the shape (23), got (24)" in refused(*embed)
    write(place / "config.json", input_dim=24, hidden_dim=51)
    assert "latent_bias must have the shape (51), got (50)" in refused(*embed)


# ---- HierarchicalTokenPooling


def pooled(folder, **options):
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    save_encoder(folder / "encoder")
    torch.manual_seed(3)
    level = dict(module_input_name="token_embeddings")
    dense = Dense(24, 8, bias=False, activation_function=torch.nn.Identity(), **level)
    modules = [Transformer(str(folder / "encoder")), dense, Normalize(**level), HierarchicalTokenPooling(**options)]
    theirs = theirs_module.MultiVectorEncoder(modules=modules, device="cpu")
    theirs.save(str(folder / "saved"))
    return folder / "saved", theirs


@pytest.mark.parametrize(
    "factor, protected, normalizes",
    [(1.0, 0, False), (1.3, 3, True), (2.0, 1, True), (3.0, 0, False), (50.0, 1, True), (2.0, 100, False)],
)
def test_token_pooling(tmp_path, factor, protected, normalizes):
    options = dict(pool_factor=factor, num_protected_tokens=protected, normalize_embeddings=normalizes)
    folder, theirs = pooled(tmp_path, tasks=["query", "document"] if protected == 3 else None, **options)
    ours = MultiVectorEncoder(folder)
    for name in METHODS:
        assert_all_close(getattr(ours, name)(LONG), getattr(theirs, name)(LONG))


def test_token_pooling_of_a_call(tmp_path):
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling as Pooling

    folder, theirs = pooled(tmp_path)
    write(next(folder.glob("*_HierarchicalTokenPooling")) / "config.json", pool_factor=1.0)
    ours = MultiVectorEncoder(folder)
    of_queries = Pooling(3.0, num_protected_tokens=2, normalize_embeddings=False, tasks=["query"])
    for given, pooling in ((2, Pooling(2.0)), (1.5, Pooling(1.5)), (of_queries, of_queries)):
        for name in METHODS:
            expected = getattr(theirs, name)(LONG, token_pooling=pooling)
            assert_all_close(getattr(ours, name)(LONG, token_pooling=given), expected)
    assert len(ours.encode(LONG[-1], token_pooling=2)) < len(ours.encode(LONG[-1]))
    for bad, error in ((0.5, ValueError), ("2", TypeError), (Pooling(2.0).pool, TypeError)):
        with pytest.raises(error, match="token_pooling must be"):
            ours.encode(LONG, token_pooling=bad)


def test_refused_token_pooling(tmp_path):
    folder, _ = pooled(tmp_path, pool_factor=2.0)
    embed = ["embed", "--model", folder, "--multi", "--text", "a"]
    place = next(folder.glob("*_HierarchicalTokenPooling"))
    before = (place / "config.json").read_text()
    for key, value in (("pool_factor", 0.5), ("pool_factor", "x"), ("num_protected_tokens", -1)):
        write(place / "config.json", **{key: value})
        assert f"{key} must be" in refused(*embed)
        (place / "config.json").write_text(before)
    entries = json.loads((folder / "modules.json").read_text())
    last = dict(idx=4, name="4", path=entries[2]["path"], type=entries[2]["type"])
    (folder / "modules.json").write_text(json.dumps([*entries, last]))
    assert 'HierarchicalTokenPooling must be the last module, got "Normalize" after it' in refused(*embed)
    other = entries[3]["type"].replace("Hierarchical", "Lambda")
    (folder / "modules.json").write_text(json.dumps([*entries[:3], entries[3] | {"type": other}]))
    assert 'or Normalize, got "LambdaTokenPooling"' in refused(*embed)


# ---- Router without a default, prompts of roles


def routed(folder, **parameters):
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    save_encoder(folder / "encoder")
    ways = (("query", "cls"), ("document", "mean"))
    of = {way: [Transformer(str(folder / "encoder"), max_seq_length=12), Pooling(24, mode)] for way, mode in ways}
    theirs = theirs_module.SentenceTransformer(modules=[Router(of, **parameters)], device="cpu")
    theirs.save(str(folder / "saved"))
    return folder / "saved", theirs


def test_router_without_a_default(tmp_path):
    """As there: refused without a role, computed with one."""
    folder, theirs = routed(tmp_path, default_route=None, allow_empty_key=False)
    with pytest.raises(ValueError, match="Could not determine route"):
        theirs.encode(TEXTS)
    words = "texts need a role (--role query or document), because parameters.default_route is null, got none"
    assert words in refused("embed", "--model", folder, "--text", "a")
    ours = SentenceTransformer(folder)
    with pytest.raises(RuntimeError, match="texts need a role"):
        ours.encode(TEXTS)
    assert_close(ours.encode_query(TEXTS), theirs.encode_query(TEXTS))
    assert_close(ours.encode_document(TEXTS), theirs.encode_document(TEXTS))
    assert_close(Engine(folder, role="query").embed(TEXTS), theirs.encode_query(TEXTS))


@pytest.mark.parametrize("first", ["query", "document"])
def test_router_with_its_first_way(tmp_path, first):
    """The first way in the file is the default, if the file may leave it out."""
    folder, _ = routed(tmp_path)
    path = folder / "router_config.json"
    file = json.loads(path.read_text())
    file["parameters"]["default_route"] = None
    file["structure"] = dict(sorted(file["structure"].items(), key=lambda way: way[0] != first))
    path.write_text(json.dumps(file))
    theirs = theirs_module.SentenceTransformer(str(folder), device="cpu")
    assert_close(SentenceTransformer(folder).encode(TEXTS), theirs.encode(TEXTS))


def test_the_default_prompt_is_not_that_of_roles(tmp_path):
    """encode_query and encode_document have prompts of their own, which are empty where the files have none."""
    from sentence_transformers.base.modules import Normalize, Transformer

    save_encoder(tmp_path / "encoder")
    level = dict(module_input_name="token_embeddings")
    modules = [Transformer(str(tmp_path / "encoder")), Normalize(**level)]
    options = dict(prompts={"own": "x "}, default_prompt_name="own", device="cpu")
    theirs = theirs_module.MultiVectorEncoder(modules=modules, **options)
    theirs.save(str(tmp_path / "saved"))
    ours = MultiVectorEncoder(tmp_path / "saved")
    for name in METHODS:
        assert_all_close(getattr(ours, name)(TEXTS), getattr(theirs, name)(TEXTS))
    scores = theirs.similarity(theirs.encode_query(["the cat"]), theirs.encode_document(TEXTS))[0].numpy()
    ranked = results("rerank", "--model", tmp_path / "saved", "--query", "the cat", "--text", *TEXTS)
    found = {line["index"]: line["score"] for line in ranked}
    assert_close(np.array([found[i] for i in range(len(TEXTS))]), scores)
