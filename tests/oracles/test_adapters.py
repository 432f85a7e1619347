"""Adapters that PEFT saves, added to the weights of a model: beside the formula, and beside PEFT if it is installed."""

import json
import math
import re

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import rf_engine
import roformer_cpp
from cli_support import refused, results
from encoding_case import TINY_MODEL
from engine_case import assert_close
from sentence_model import TEXTS, WORDS, save_classifier, save_encoder, save_modules, save_tokenizer

CONFIG = dict(peft_type="LORA", r=4, lora_alpha=10, bias="none", init_lora_weights=True, target_modules=["query"])
QUERY = "bert.encoder.layer.0.attention.self.query"
EMBEDDINGS = "bert.embeddings.word_embeddings"


def save_adapter(folder, tensors, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    named = {f"base_model.model.{name}": value.contiguous() for name, value in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    return folder


def factors(weights, name, rank=4, embedding=False):
    """Random ones of a module, by the names of PEFT."""
    generator = torch.Generator().manual_seed(len(name))
    out, wide = weights[name + ".weight"].shape
    if embedding:
        out, wide = wide, out
    down, up = (0.5 * torch.randn(shape, generator=generator) for shape in ((rank, wide), (out, rank)))
    kinds = ("lora_embedding_A", "lora_embedding_B") if embedding else ("lora_A.weight", "lora_B.weight")
    return {f"{name}.{kind}": value for kind, value in zip(kinds, (down, up), strict=True)}


def merged(weights, tensors, alpha=10, root=False):
    """The weights of the model that has the adapter's tensors added."""
    out = dict(weights)
    for name, down in tensors.items():
        if name.endswith(("lora_A.weight", "lora_embedding_A")):
            up = tensors[name.replace("_A", "_B")]
            scale = alpha / (math.sqrt(len(down)) if root else len(down))
            change = scale * (up.double() @ down.double())
            module = name.rpartition(".lora_")[0] + ".weight"
            out[module] = (out[module].double() + (change.T if "embedding_A" in name else change)).float()
        elif "lora_" not in name:
            out[name.replace(".base_layer", "")] = tensors[name]
    return out


def with_weights(model, folder, weights):
    """Another directory of the model, with these weights."""
    folder.mkdir()
    model.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return type(model).from_pretrained(folder).eval()


def classifier(folder, labels=3):
    """A classifier, an adapter of every kind of tensor, and the classifier with the adapter in its weights."""
    folder.mkdir()
    model, tokenizer = save_classifier(folder, labels)
    weights = load_file(folder / "model.safetensors")
    tensors = factors(weights, QUERY) | factors(weights, "bert.encoder.layer.1.output.dense", 2)
    tensors |= factors(weights, EMBEDDINGS, 3, embedding=True)
    tensors["classifier.weight"] = torch.randn(weights["classifier.weight"].shape)
    tensors[QUERY + ".base_layer.bias"] = torch.randn(weights[QUERY + ".bias"].shape)
    return model, tokenizer, weights, tensors


def assert_probabilities(lines, theirs, tokenizer):
    with torch.no_grad():
        given = [tokenizer(text, truncation=True, max_length=32, return_tensors="pt") for text in TEXTS]
        wanted = torch.cat([theirs(**each).logits.softmax(-1) for each in given])
    assert_close(np.array([list(line["probabilities"].values()) for line in lines]), wanted.numpy())


@pytest.mark.parametrize("root", [False, True])
def test_predict(root, tmp_path):
    base = tmp_path / "base"
    model, tokenizer, weights, tensors = classifier(base)
    adapter = save_adapter(tmp_path / "adapter", tensors, use_rslora=root, rank_pattern={"output.dense": 2})
    theirs = with_weights(model, tmp_path / "merged", merged(weights, tensors, root=root))
    lines = results("predict", "--model", base, "--adapter", adapter, "--text", *TEXTS)
    assert_probabilities(lines, theirs, tokenizer)
    ours = roformer_cpp.Engine(base, adapter=adapter).predict(TEXTS)
    assert [line["probabilities"] for line in ours] == [line["probabilities"] for line in lines]
    plain = results("predict", "--model", base, "--text", *TEXTS)
    assert [line["probabilities"] for line in plain] != [line["probabilities"] for line in lines]


def test_rerank(tmp_path):
    base = tmp_path / "base"
    model, tokenizer, weights, tensors = classifier(base, labels=1)
    adapter = save_adapter(tmp_path / "adapter", tensors)
    theirs = with_weights(model, tmp_path / "merged", merged(weights, tensors))
    texts = ["abc de", "a", "e d c", "bcd", "a b c d", "cab", "dead", "abc"]
    pairs = [("a query", text) for text in texts]
    with torch.no_grad():
        logits = [theirs(**tokenizer(*pair, return_tensors="pt")).logits[0, 0] for pair in pairs]
    wanted = torch.stack(logits).sigmoid().numpy()
    assert_close(roformer_cpp.CrossEncoder(base, adapter=adapter).predict(pairs), wanted)
    lines = results("rerank", "--model", base, "--adapter", adapter, "--query", "a query", "--text", *texts)
    assert_close(np.array([line["score"] for line in sorted(lines, key=lambda line: line["index"])]), wanted)


def sentence_model(folder):
    """A bare encoder, and an adapter under the names of a classifier, with its head."""
    folder.mkdir()
    model = save_encoder(folder)
    save_modules(folder, normalize=True)
    weights = load_file(folder / "model.safetensors")
    tensors = factors(weights, "embeddings.word_embeddings", embedding=True)
    for name in ("encoder.layer.1.attention.self.value", "encoder.layer.0.output.dense"):
        tensors |= factors(weights, name)
    return model, weights, tensors


def test_embed(tmp_path):
    base = tmp_path / "base"
    model, weights, tensors = sentence_model(base)
    head = {"classifier.weight": torch.zeros(3, 4)}
    adapter = save_adapter(tmp_path / "adapter", {f"bert.{name}": value for name, value in tensors.items()} | head)
    save_adapter(tmp_path / "bare", tensors)
    theirs = with_weights(model, tmp_path / "merged", merged(weights, tensors))
    tokenizer = transformers.BertTokenizer(str(base / "vocab.txt"))
    with torch.no_grad():
        inputs = [tokenizer(text, truncation=True, max_length=24, return_tensors="pt") for text in TEXTS]
        means = torch.stack([theirs(**each).last_hidden_state[0].mean(0) for each in inputs])
    wanted = torch.nn.functional.normalize(means).numpy()
    for folder in (adapter, tmp_path / "bare"):
        assert_close(roformer_cpp.Engine(base, adapter=folder).embed(TEXTS), wanted)
        lines = results("embed", "--model", base, "--adapter", folder, "--text", *TEXTS)
        assert_close(np.array([line["embedding"] for line in lines]), wanted)
    ids = inputs[0]["input_ids"]
    with torch.no_grad():
        states = theirs(ids).last_hidden_state[0].numpy()
    assert_close(rf_engine.Engine(base, adapter=adapter).hidden([ids[0].numpy().astype(np.int32)]), states)


def test_refused(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    *_, tensors = classifier(base)
    command = ("predict", "--model", base, "--adapter", adapter, "--text", "a")
    for changes, message in (
        ({"use_dora": True}, "use_dora must be absent or off for plain LoRA, got true"),
        ({"alpha_pattern": {"query": 3}}, "alpha_pattern must be absent or off"),
        ({"peft_type": "IA3"}, 'peft_type must be "LORA", got "IA3"'),
        ({"init_lora_weights": "pissa"}, 'init_lora_weights must be one that leaves .*, got "pissa"'),
        ({"lora_alpha": None}, "lora_alpha must be a number up to 1e6, got null"),
        ({"lora_alpha": 1e300}, "lora_alpha must be a number up to 1e6, got 1e"),
        ({"some_new_key": [1]}, r"some_new_key must be absent or off for plain LoRA, got \[1\]"),
    ):
        save_adapter(adapter, tensors, **changes)
        assert re.search(message, refused(*command))
    down, up = f"{QUERY}.lora_A.weight", f"{QUERY}.lora_B.weight"
    for bad, message in (
        ({down: tensors[down][:3]}, "query\" must have two factors of one rank, got others"),
        ({down: tensors[down][:, :5]}, r"query.weight\" must have the shape \[.*\] of the model, got \["),
        ({up: None}, "must have two factors of one rank, got others"),
        ({down: None}, "must have two factors of one rank, got one"),
        ({"bert.encoder.layer.9.x.lora_A.weight": torch.zeros(2, 4), "bert.encoder.layer.9.x.lora_B.weight":
            torch.zeros(4, 2)}, "an adapter must change tensors of the model, got \"bert.encoder.layer.9.x.weight"),
        ({"score.weight": torch.zeros(3, 4)}, 'must change tensors of the model, got "score.weight"'),
        ({"classifier.weight": torch.zeros(3, 4)}, r"classifier.weight. must have the shape \[3"),
        ({f"{QUERY}.lora_magnitude_vector": torch.zeros(4)}, "an adapter must be plain LoRA, got"),
        ({down: tensors[down] * float("nan")}, "adapters must be finite, got"),
        ({down: tensors[down].long()}, "adapters must be F16, BF16, F32 or F64, got I64"),
    ):  # fmt: skip
        save_adapter(adapter, {name: value for name, value in (tensors | bad).items() if value is not None})
        assert re.search(message, refused(*command))
    (adapter / "adapter_model.safetensors").unlink()
    assert "adapter_model.safetensors" in refused(*command)
    with pytest.raises(FileNotFoundError):
        roformer_cpp.Engine(base, adapter=adapter).predict("a")


def test_tied_embeddings(tmp_path):
    """A masked language model uses its embeddings twice, of which PEFT changes one; fill-mask has no adapters."""
    *_, tensors = sentence_model(tmp_path / "model")
    adapter = save_adapter(tmp_path / "adapter", tensors)
    with pytest.raises(ValueError, match=r"an adapter goes with embed and predict, got .* for fill-mask"):
        roformer_cpp.Engine(tmp_path / "model", adapter=adapter).fill_mask("a [MASK]")


def test_adapters_of_a_masked_language_model(tmp_path):
    """Only the C interface adds them. Embeddings that are also the output matrix must be left as they are."""
    torch.manual_seed(1)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**TINY_MODEL)).eval()
    model.save_pretrained(tmp_path / "base")
    weights = model.state_dict()
    query = factors(weights, QUERY)
    save_adapter(tmp_path / "tied", query | factors(weights, EMBEDDINGS, embedding=True))
    with pytest.raises(rf_engine.EngineError, match="embeddings that are also the output matrix must be left as they"):
        rf_engine.Engine(tmp_path / "base", adapter=tmp_path / "tied")
    adapted = rf_engine.Engine(tmp_path / "base", adapter=save_adapter(tmp_path / "adapter", query))
    model.load_state_dict(merged(weights, query))
    with torch.no_grad():
        wanted = model(torch.tensor([[5, 6, 7]])).logits[0].numpy()
    assert_close(adapted.vocabulary_logits([[5, 6, 7]], [0, 1, 2]), wanted)


@pytest.mark.parametrize("settings", [{"use_rslora": True}, {"bias": "all"}, {"rank_pattern": {"value": 2}}])
def test_peft(settings, tmp_path):
    """What PEFT saves, beside what PEFT computes."""
    peft = pytest.importorskip("peft", reason="needs peft (pip)")
    base = tmp_path / "base"
    base.mkdir()
    model, tokenizer = save_classifier(base, 3)
    settings |= {"target_modules": ["query", "value", "word_embeddings"], "modules_to_save": ["classifier"]}
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=9, **settings)).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                assert "lora_" in name or "classifier" in name or "bias" in name
                parameter.add_(0.3 * torch.randn(parameter.shape))
        adapted.save_pretrained(tmp_path / "adapter")
    assert_probabilities(roformer_cpp.Engine(base, adapter=tmp_path / "adapter").predict(TEXTS), adapted, tokenizer)


@pytest.mark.parametrize("target", ["query", "intermediate.dense"])
@pytest.mark.parametrize("encoding", ["kerple-log", "shaw-literal", "deberta-literal", "transformer-xl-literal"])
def test_adapters_of_projections_that_encodings_read(encoding, target, tmp_path, registered):
    """Stored terms are those of the weights without the adapter, so they are not used with it."""
    peft = pytest.importorskip("peft", reason="needs peft (pip)")
    config = {**TINY_MODEL, "model_type": "rf_encoder", "position_encoding": encoding, "vocab_size": len(WORDS)}
    roformer_cpp.build_model(config, "RfEncoderModel").save(tmp_path)
    save_tokenizer(tmp_path, model_max_length=24)
    lora = peft.LoraConfig(r=2, lora_alpha=9, target_modules=[target], init_lora_weights=False)
    adapted = peft.get_peft_model(transformers.AutoModel.from_pretrained(tmp_path), lora).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    arguments = {"adapter": tmp_path / "adapter", "task": "embed"}
    if target == "query" and encoding != "kerple-log":
        with pytest.raises(ValueError, match=r"an adapter of projections must be merged into a model whose position"):
            roformer_cpp.Engine(tmp_path, **arguments)
        return
    with torch.no_grad():
        rows = roformer_cpp.Tokenizer(tmp_path)(["abc de fgh"], return_tensors="pt")
        wanted = adapted(**rows).last_hidden_state.mean(1).numpy()
    assert_close(roformer_cpp.Engine(tmp_path, **arguments).embed(["abc de fgh"]), wanted)
