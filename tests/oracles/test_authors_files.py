"""Files of encoders as their authors publish them: nomic-embed-text-v2-moe, JinaBERT, and jina's XLM-RoBERTa with
adapters for tasks."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import roformer_cpp
from authors_encoders import FOR_CODE, JINA, NOMIC, jina_hidden, jina_shapes, nomic_hidden, nomic_shapes, save_random
from cli_support import refused, results
from decoder_embedders import theirs_of
from engine_case import assert_close, assert_refused
from foreign_encoders import make_encoder, rows_of
from rf_engine import Engine, EngineError
from sentence_model import TEXTS, WORDS, save_modules, save_tokenizer, write_json

# ---- nomic-embed-text-v2-moe


@pytest.mark.parametrize("changes", [{}, {"moe_top_k": 1}, {"moe_every_n_layers": 3, "num_experts": 2}])
def test_nomics_experts(changes, tmp_path):
    config = NOMIC | changes
    tensors = save_random(tmp_path, config, nomic_shapes(config))
    rows, engine = rows_of(), Engine(tmp_path)
    hidden = engine.hidden(rows)
    assert_close(hidden, np.concatenate([nomic_hidden(tensors, config, row) for row in rows]))
    assert np.array_equal(np.concatenate([engine.hidden([row]) for row in rows]), hidden)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_precisions_of_experts(precision, tmp_path):
    save_random(tmp_path, NOMIC, nomic_shapes(NOMIC))
    exact, ours = (Engine(tmp_path, precision=each).hidden(rows_of()).ravel() for each in ("float32", precision))
    assert exact @ ours / np.linalg.norm(exact) / np.linalg.norm(ours) > 0.97


def test_nomic_without_experts(tmp_path):
    config = NOMIC | {"moe_every_n_layers": 0}
    tensors = save_random(tmp_path, config, nomic_shapes(config), "bert.")
    row = rows_of()[-1]
    assert_close(Engine(tmp_path, head="none").hidden([row]), nomic_hidden(tensors, config, row))


def test_bad_experts(tmp_path):
    save_random(tmp_path, NOMIC, nomic_shapes(NOMIC))
    for changes, message in (
        ({"moe_normalize_expert_weights": True}, "moe_normalize_expert_weights must be absent.*got true"),
        ({"num_shared_experts": 1}, "num_shared_experts must be absent.*got 1"),
        ({"expert_choice_router": True}, "expert_choice_router must be absent.*got true"),
        ({"ffn_div": 2}, "ffn_div must be absent or 1, got 2"),
        ({"moe_top_k": 6}, "moe_top_k must be"),
        ({"num_experts": None}, "num_experts and moe_top_k must be given|moe_top_k must be"),
        ({"num_experts": 4}, r"w1. must have the shape \[80, 48\] by the config, got \[100, 48\]"),
        ({"mlp_fc2_bias": False}, "mlp_fc2_bias must be true where mlp_fc1_bias is"),
        ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved must be"),
        ({"activation_function": "geglu"}, "activation_function must be swiglu or gelu, got .geglu"),
    ):
        assert_refused(tmp_path, message, **changes)


# ---- JinaBERT


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("config", [JINA, FOR_CODE], ids=["text", "code"])
def test_jina_bert(config, prefix, tmp_path):
    for_code = config is FOR_CODE
    tensors = save_random(tmp_path, config, jina_shapes(for_code), prefix)
    rows = rows_of((1, 13, 200))
    theirs = np.concatenate([jina_hidden(tensors, for_code, row) for row in rows])
    assert_close(Engine(tmp_path, head="none").hidden(rows), theirs)
    with pytest.raises(EngineError, match="at most the 200 positions"):
        Engine(tmp_path, head="none").hidden(rows_of((201,)))
    if for_code:
        with pytest.raises(RuntimeError, match="which has layers of another form"):
            roformer_cpp.load_model(tmp_path, "JinaBertModel")
        return
    model = roformer_cpp.load_model(tmp_path, "JinaBertModel", allow_fresh_head=True)  # the pooler
    hidden = [model(torch.tensor(row)[None].long())["hidden"][0].detach().numpy() for row in rows]
    assert_close(np.concatenate(hidden), theirs)
    model.save(tmp_path / "saved")
    assert_close(Engine(tmp_path / "saved", head="none").hidden(rows), theirs)


def test_head_of_jina_bert(tmp_path):
    """As jina-reranker-v1: BERT's pooler and a layer."""
    shapes = {f"bert.{name}": shape for name, shape in jina_shapes(False).items()}
    shapes |= {"bert.pooler.dense.weight": (48, 48), "bert.pooler.dense.bias": (48,)}
    shapes |= {"classifier.weight": (1, 48), "classifier.bias": (1,)}
    config = JINA | {"architectures": ["JinaBertForSequenceClassification"], "num_labels": 1}
    tensors = {name.removeprefix("bert."): x for name, x in save_random(tmp_path, config, shapes).items()}
    row = rows_of()[1]
    first = torch.tensor(jina_hidden(tensors, False, row)[0])
    pooled = torch.tanh(tensors["pooler.dense.weight"] @ first + tensors["pooler.dense.bias"])
    theirs = tensors["classifier.weight"] @ pooled + tensors["classifier.bias"]
    assert_close(Engine(tmp_path).logits([row])[0], theirs.numpy())


def test_bad_jina_bert(tmp_path):
    save_random(tmp_path, JINA, jina_shapes(False))
    for changes, message in (
        ({"feed_forward_type": "reglu"}, "feed_forward_type must be geglu, got .reglu"),
        ({"feed_forward_type": None}, "feed_forward_type must be geglu, got null"),
        ({"position_embedding_type": "relative", "auto_map": None}, "position_embedding_type must be"),
        (FOR_CODE, r"layer_norm_1|mlp.gated_layers"),
    ):
        assert_refused(tmp_path, message, **changes)


# ---- jina-embeddings-v3, jina-reranker-v2


TASKS = ("retrieval.query", "retrieval.passage", "text-matching")
RANK, ALPHA = 3, 0.6
PROMPT = "ab cd: "
CLASSES = "jinaai/xlm-roberta-flash-implementation--"


def rewrite(folder, changes, drop=("rope_parameters",)):
    path = folder / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in drop}
    path.write_text(json.dumps(config | changes))


OWN_KEYS = {
    "model_type": "xlm-roberta", "architectures": ["XLMRobertaLoRA"], "position_embedding_type": "rotary",
    "auto_map": {"AutoModel": CLASSES + "modeling_lora.XLMRobertaLoRA"}, "rotary_emb_base": 20000.0,
    "use_flash_attn": True, "emb_pooler": None, "truncate_dim": None, "matryoshka_dimensions": [8, 16],
    "load_trained_adapters": True, "lora_adaptations": list(TASKS), "lora_alpha": ALPHA, "lora_rank": RANK,
    "lora_dropout_p": 0.0, "lora_main_params_trainable": False,
    "task_instructions": dict.fromkeys(TASKS, "") | {TASKS[0]: PROMPT},
}  # fmt: skip


def make_adapted(folder):
    """The authors' files, and for each task a model of transformers with merged weights."""
    oracle = make_encoder("jina_embeddings_v3", "Model", folder, vocab_size=len(WORDS))
    path = folder / "model.safetensors"
    weights = load_file(path)
    merged, stored = {task: {} for task in TASKS}, {}
    torch.manual_seed(9)
    for name, value in weights.items():
        if value.ndim != 2:
            stored["roberta." + name] = value
            continue
        rows, columns = value.shape
        left, right = 0.3 * torch.randn(len(TASKS), rows, RANK), torch.randn(len(TASKS), RANK, columns)
        module = "roberta." + name.removesuffix("weight") + "parametrizations.weight."
        first, second = (left, right) if "embeddings" in name else (right, left)
        stored |= {module + "original": value, module + "0.lora_A": first, module + "0.lora_B": second}
        for task, a, b in zip(TASKS, left.double(), right.double(), strict=True):
            merged[task][name] = (value.double() + ALPHA / RANK * (a @ b)).float()
    save_file(stored, path)
    rewrite(folder, OWN_KEYS)
    oracles = {None: oracle}
    for task, values in merged.items():
        make_encoder("jina_embeddings_v3", "Model", folder / task, vocab_size=len(WORDS))
        save_file(weights | values, folder / task / "model.safetensors", {"format": "pt"})
        oracles[task] = transformers.AutoModel.from_pretrained(folder / task).eval()
    return oracles


def test_adapters(tmp_path):
    rows = rows_of()
    for task, oracle in make_adapted(tmp_path).items():
        engine = Engine(tmp_path, **({} if task is None else {"task": task}))
        assert_close(engine.hidden(rows), np.concatenate([theirs_of(oracle, row) for row in rows]))


def make_sentences(folder):
    """The modules of jina-embeddings-v3, whose first is a class of its own."""
    oracles = make_adapted(folder)
    save_tokenizer(folder, model_max_length=40)
    save_modules(folder, normalize=True)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= {"type": "custom_st.Transformer", "kwargs": ["task"]}
    write_json(folder / "modules.json", modules)
    return oracles


def vectors_of(folder, oracle, texts):
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))
    rows = tokenizer(texts, truncation=True, max_length=40)["input_ids"]
    means = np.stack([theirs_of(oracle, ids).mean(0) for ids in rows])
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def test_tasks_of_texts(tmp_path):
    oracles = make_sentences(tmp_path)
    prompted = vectors_of(tmp_path, oracles[TASKS[0]], [PROMPT + text for text in TEXTS])
    plain = vectors_of(tmp_path, oracles[TASKS[0]], TEXTS)
    none = vectors_of(tmp_path, oracles[None], TEXTS)
    assert_close(roformer_cpp.Engine(tmp_path, adapter=TASKS[0]).embed(TEXTS), prompted)
    assert_close(roformer_cpp.Engine(tmp_path, adapter=TASKS[0], prompt="").embed(TEXTS), plain)
    assert_close(roformer_cpp.Engine(tmp_path).embed(TEXTS), none)
    model = roformer_cpp.SentenceTransformer(tmp_path)
    assert_close(model.encode(TEXTS, task=TASKS[0]), plain)
    assert_close(model.encode(TEXTS, task=TASKS[0], prompt=PROMPT), prompted)
    assert_close(model.encode(TEXTS), none)
    assert_close(model.encode_query(TEXTS), none)
    with pytest.raises(ValueError, match=r"task must be one of .*, got .*separation"):
        model.encode(TEXTS, task="separation")
    command = ("embed", "--model", tmp_path, "--text", *TEXTS, "--task")
    assert_close(np.array([row["embedding"] for row in results(*command, TASKS[0])]), prompted)
    assert f'task must be {", ".join(TASKS)}, got "separation"' in refused(*command, "separation")


def test_tasks_of_other_models(tmp_path):
    make_encoder("xlm-roberta", "Model", tmp_path, vocab_size=len(WORDS))
    save_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"task must be absent for a model without adapters, got .separation"):
        roformer_cpp.Engine(tmp_path, adapter="separation").embed(TEXTS)
    save_modules(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    write_json(tmp_path / "modules.json", [modules[0] | {"type": "custom_st.Transformer"}, *modules[1:]])
    with pytest.raises(RuntimeError, match="classes must be of sentence-transformers for a model without adapters"):
        roformer_cpp.Engine(tmp_path).embed(TEXTS)


def test_bad_adapters(tmp_path):
    make_adapted(tmp_path)
    for changes, message in (
        ({"lora_rank": 4}, r"lora_A. must have the shape \[3, .*4.*\] by the config"),
        ({"lora_rank": None}, "lora_rank must be given with lora_adaptations"),
        ({"lora_adaptations": [TASKS[0]]}, r"lora_A. must have the shape \[1, "),
        ({"lora_adaptations": [TASKS[0]] * 3}, "lora_adaptations must be different names"),
        ({"lora_adaptations": None}, "tensors must be those of XLMRobertaModel, got .*parametrizations"),
        ({"lora_alpha": "two"}, "lora_alpha must be"),
        ({"task_instructions": {TASKS[0]: 3}}, "task_instructions must have a text for each task"),
        ({"truncate_dim": 8}, "truncate_dim must be absent"),
    ):
        rewrite(tmp_path, OWN_KEYS | changes)
        assert_refused(tmp_path, message)


def test_adapters_that_are_missing(tmp_path):
    make_adapted(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    assert_refused(tmp_path, r"task must be retrieval\.query, .*, got .separation", options={"task": "separation"})
    name = "roberta.encoder.layers.0.mlp.fc1.parametrizations.weight."
    rule = "adapters must have .*fc1.*lora_B., got none"
    for gone, message in (("0.lora_B", rule), ("original", "got .*lora_A. alone")):
        save_file({key: value for key, value in weights.items() if key != name + gone}, path)
        assert_refused(tmp_path, message)
    plain = {key.replace("parametrizations.weight.original", "weight"): value for key, value in weights.items()}
    save_file({key: value for key, value in plain.items() if "lora_" not in key}, path)
    Engine(tmp_path)
    absent = r"the file must have the adapters of .text-matching., got none"
    assert_refused(tmp_path, absent, options={"task": "text-matching"})
    weights[name + "0.lora_A"][1, 0, 0] = float("nan")
    save_file(weights, path)
    assert_refused(tmp_path, "adapters must be finite", options={"task": TASKS[1]})


@pytest.mark.filterwarnings("ignore")
def test_jinas_xlm_roberta_with_positions(tmp_path):
    """jina-reranker-v2: XLM-RoBERTa under the names of the authors' class."""
    oracle = make_encoder("xlm-roberta", "ForSequenceClassification", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("roberta.embeddings.LayerNorm", "roberta.emb_ln"): x for name, x in weights.items()}
    stored = {name: x for name, x in renamed.items() if ".layer." not in name}
    names = {"attention.output.dense": "mixer.out_proj", "attention.output.LayerNorm": "norm1"}
    names |= {"intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2", "output.LayerNorm": "norm2"}
    for i in range(oracle.config.num_hidden_layers):
        ours, theirs = f"roberta.encoder.layer.{i}.", f"roberta.encoder.layers.{i}."
        for part in ("weight", "bias"):
            stored |= {f"{theirs}{new}.{part}": weights[f"{ours}{old}.{part}"] for old, new in names.items()}
            parts = [weights[f"{ours}attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            stored[f"{theirs}mixer.Wqkv.{part}"] = torch.cat(parts)
    save_file(stored, tmp_path / "model.safetensors")
    own = CLASSES + "modeling_xlm_roberta.XLMRobertaForSequenceClassification"
    keys = {"auto_map": {"AutoModelForSequenceClassification": own}, "position_embedding_type": "absolute"}
    rewrite(tmp_path, keys | {"use_flash_attn": True})
    for row in rows_of():
        with torch.no_grad():
            theirs = oracle(torch.tensor(row)[None].long()).logits[0].numpy()
        assert_close(Engine(tmp_path).logits([row])[0], theirs)
