"""Files of models as other programs write them: which keys are ignored, warned of and refused, in every family; ids of
the Hugging Face Hub; links that lead nowhere. Which keys exist, and their defaults, is read from transformers."""

import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, MarianConfig, MarianMTModel, PreTrainedConfig

import roformer_cpp
from cli_support import refused, results, run
from engine_case import CAUSAL_HEADS, assert_close, make_oracle
from rf_engine import Engine, EngineError
from roformer_cpp.translation import load_translation_model
from rotary_decoders import make_decoder
from saved_model_makers import decoder as save_decoder
from sentence_model import save_classifier, save_encoder, save_modules

# Attributes of PretrainedConfig in transformers 4.57, and keys that older versions and other programs write.
OLD_KEYS = {
    **dict.fromkeys(["bad_words_ids", "begin_suppress_tokens", "cross_attention_hidden_size", "finetuning_task"]),
    **dict.fromkeys(["forced_bos_token_id", "forced_eos_token_id", "prefix", "sep_token_id", "suppress_tokens"]),
    **{"pruned_heads": {}, "tie_encoder_decoder": False, "torchscript": False, "use_bfloat16": False, "top_k": 50},
    **{"diversity_penalty": 0.0, "do_sample": False, "remove_invalid_values": False, "tf_legacy_loss": False},
    **dict.fromkeys(["decoder_start_token_id", "exponential_decay_length_penalty", "task_specific_params"]),
    **dict.fromkeys(["min_length", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"], 0),
    **dict.fromkeys(["num_beams", "num_beam_groups", "num_return_sequences"], 1),
    **dict.fromkeys(["temperature", "top_p", "typical_p", "repetition_penalty", "length_penalty"], 1.0),
    **dict.fromkeys(["early_stopping", "output_scores", "return_dict_in_generate", "gradient_checkpointing"], False),
    **{"max_length": 20, "torch_dtype": "float32", "tokenizer_class": None},
}
HARMLESS = {"output_past": [True, None, {"a": [1]}], "xla_device": [None, True], "eos_token_ids": [None, [1, 2]]}
HARMLESS |= {"language": ["english", {"deep": {"er": None}}], "name": ["Bert", None], "is_composition": [False]}
HARMLESS |= {"unsloth_version": ["2025.1", 3], "adapters": [{"adapters": {}}, None], "_num_labels": [2]}
HARMLESS |= {"transformers.js_config": [{"dtype": "q8"}], "model_max_length": [512], "attention_bias": [False, None]}
HARMLESS |= {"auto_map": [None, {}, {"AutoTokenizer": ["a.B", None]}], "layer_types": [None, ["full_attention"] * 3]}
HARMLESS |= {"sliding_window": [None], "num_experts": [None, 0], "final_logit_softcapping": [None]}
CHANGING = {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 7}
CHANGING |= {"embedding_multiplier": 12.0, "residual_multiplier": 0.2, "logits_scaling": 8.0}
CHANGING |= {"attention_multiplier": 0.5, "num_experts": 8, "num_local_experts": 4, "no_rope_layers": [1, 1, 0]}
CHANGING |= {"attention_sinks": True, "use_qk_norm": True, "alibi": True, "quantization_config": {"bits": 4}}
CHANGING |= {"auto_map": {"AutoModel": "modeling.Own"}, "pruned_heads": {"0": [1]}}
TOKENIZER_HARMLESS = {"vocab_size": 30522, "model_type": "bert", "padding": True, "vocab_file": {"a": None}}
TOKENIZER_HARMLESS |= {"legacy": False}
CLASSES = ["bert", "roformer", "llama", "mistral", "qwen2", "gpt_neox", "marian"]
# Attributes of a class that other families do not read, whose default is that of another model or of other sizes there.
OTHER_SIZES = {"embedding_size", "num_key_value_heads", "head_dim", "sliding_window", "d_model"}
OTHER_MODELS = {"use_parallel_residual", "attention_bias", "is_encoder_decoder", "hidden_act", "activation_function"}
# Of other classes and versions, without an effect.
WITHOUT_EFFECT = {"position_embedding_type": "absolute", "rope_theta": 10000.0, "summary_type": "cls_index"}
WITHOUT_EFFECT |= {"summary_use_proj": True, "summary_activation": "tanh", "summary_first_dropout": 0.1}
WITHOUT_EFFECT |= {"summary_last_dropout": 0.1}
MARIAN = dict(vocab_size=61, d_model=24, encoder_layers=1, decoder_layers=1, pad_token_id=0, eos_token_id=1)
MARIAN |= dict(encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=37, decoder_ffn_dim=37)
MARIAN |= dict(decoder_start_token_id=2, activation_function="relu", scale_embedding=True)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    save_encoder(folder)
    save_modules(folder)
    return folder


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    make_decoder("llama", folder)
    np.save(folder / "ids.npy", np.array([[3, 4, 5]]))
    return folder


def changed(source, target, file="config.json", **keys):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    path = target / file
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    return target


def opened(folder, *options):
    """stderr, after success."""
    done = run(*command(folder), *options)
    assert done.returncode == 0, done.stderr
    return done.stderr


def command(folder):
    if (folder / "ids.npy").exists():
        return ["forward", "--model", folder, "--ids", folder / "ids.npy", "--output", folder / "out.npy"]
    return ["embed", "--model", folder, "--text", "hello"]


def error_of(folder, *options):
    return refused(*command(folder), *options)


@pytest.fixture(params=["encoder", "decoder"])
def model(request):
    return request.getfixturevalue(request.param)


def test_harmless_keys(model, tmp_path):
    """Also every attribute that transformers gives a configuration, and all values of a key at once."""
    attributes = PreTrainedConfig().to_dict() | OLD_KEYS
    own = json.loads((model / "config.json").read_text())
    attributes = {key: value for key, value in attributes.items() if key not in own}
    for i in range(3):
        some = {key: values[i % len(values)] for key, values in HARMLESS.items()}
        assert opened(changed(model, tmp_path / "m", **(attributes | some)), "--strict") == ""


def test_keys_that_change_the_result(model, tmp_path):
    for key, value in CHANGING.items():
        error = error_of(changed(model, tmp_path / "m", **{key: value}))
        assert key in error and " must " in error, error


def test_unknown_keys(model, tmp_path):
    folder = changed(model, tmp_path / "m", frobnicate={"a": 1})
    said = opened(folder)
    assert said.count("frobnicate") == 1 and said.startswith("warning: ["), said
    error = error_of(folder, "--strict")
    assert "[strict] " in error and "frobnicate" in error
    assert "did you mean hidden_size?" in opened(changed(model, tmp_path / "m", hiden_size=4))


def test_values_that_say_what_is_so(decoder, tmp_path):
    own = json.loads((decoder / "config.json").read_text())
    size = own["head_dim"]
    same = {"query_pre_attn_scalar": size, "attention_multiplier": size**-0.5, "embedding_size": own["hidden_size"]}
    assert opened(changed(decoder, tmp_path / "m", hidden_activation="silu", **same), "--strict") == ""


def test_tokenizer_config(encoder, tmp_path):
    file = "tokenizer_config.json"
    assert opened(changed(encoder, tmp_path / "m", file, **TOKENIZER_HARMLESS), "--strict") == ""
    assert '"frobnicate": 3' in opened(changed(encoder, tmp_path / "m", file, frobnicate=3))
    assert "did you mean do_lower_case?" in opened(changed(encoder, tmp_path / "m", file, do_lowercase=True))
    assert "wordpieces_prefix" in error_of(changed(encoder, tmp_path / "m", file, wordpieces_prefix="@@"))


def test_strict_keys_of_tokenizers(encoder, tmp_path, monkeypatch):
    """A warning, and with --strict an error, of commands of each library."""
    monkeypatch.chdir(tmp_path)
    file = "tokenizer_config.json"
    changed(encoder, tmp_path / "m", file, frobnicate=3)
    (tmp_path / "m" / "modules.json").unlink()
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "b"}\n{"text": "a", "label": "c"}\n')
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "config.json").write_text(json.dumps(MarianConfig(**MARIAN).to_dict()))
    for name in ("vocab.txt", file):
        shutil.copy(tmp_path / "m" / name, tmp_path / "t" / name)
    commands = [each for kind in ("encoder", "decoder") for each in OPENING[kind]]
    commands = [each for each in commands if each[0] in ("embed", "similar", "train-similar")]
    commands += [["prepare", "--input", "a.jsonl", "--output", "data"]]
    for command, folder in [*((each, "m") for each in commands), (OPENING["translation"][0], "t")]:
        said = run(*command, "--model", folder).stderr
        assert said.count("warning: [") >= 1 and '"frobnicate": 3' in said, command
        strict = refused(*command, "--model", folder, "--strict")
        assert "[strict] " in strict and '"frobnicate": 3' in strict, command


@pytest.fixture(scope="module", params=CLASSES)
def family(request, tmp_path_factory):
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    if name in ("bert", "roformer"):
        make_oracle({"bert": "Bert", "roformer": "RoFormer"}[name], "Model").save_pretrained(folder)
    elif name == "marian":
        MarianMTModel(MarianConfig(**MARIAN)).save_pretrained(folder)
    else:
        make_decoder(name, folder)
    np.save(folder / "ids.npy", np.array([[3, 4, 5]]))
    return name, folder


def warning_or_error(name, folder):
    if name != "marian":
        return run(*command(folder), "--strict").stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            load_translation_model(folder)
        except (RuntimeError, ValueError, UserWarning) as error:
            return str(error)
    return ""


def test_default_attributes_of_every_class(family, tmp_path):
    """Those of transformers' configurations that a file does not have are accepted in every family without a warning,
    where they say no other model; in their own family all are."""
    name, source = family
    own = json.loads((source / "config.json").read_text())
    for other in CLASSES:
        attributes = AutoConfig.for_model(other).to_dict()
        if other != name:
            attributes = {key: attributes[key] for key in attributes.keys() - OTHER_SIZES - OTHER_MODELS}
            partial = (attributes.get("rope_parameters") or {}).get("partial_rotary_factor")
            attributes.pop("rope_parameters" if partial else "", None)
        added = {key: value for key, value in attributes.items() if key not in own}
        assert warning_or_error(name, changed(source, tmp_path / "m", **added)) == "", other


def test_attributes_of_another_model(family, tmp_path):
    name, source = family
    own = json.loads((source / "config.json").read_text())
    values = {"use_parallel_residual": True, "attention_bias": True, "num_key_value_heads": 3, "rope_theta": 5e5}
    values |= {"position_embedding_type": "relative_key", "partial_rotary_factor": 0.5}
    if name == "marian":
        values |= {"hidden_act": "silu"}
    if name in ("bert", "roformer"):
        values |= {"is_encoder_decoder": True}
    read = {"llama": {"attention_bias", "num_key_value_heads", "rope_theta", "partial_rotary_factor"}}
    read |= {"mistral": read["llama"] - {"attention_bias"}, "qwen2": read["llama"]}
    read |= {"gpt_neox": {"use_parallel_residual", "attention_bias", "rope_theta", "partial_rotary_factor"}}
    for key in values.keys() - read.get(name, set()) - own.keys():
        assert key in warning_or_error(name, changed(source, tmp_path / "m", **{key: values[key]})), key


def test_keys_without_effect(family, tmp_path):
    name, source = family
    own = json.loads((source / "config.json").read_text())
    keys = WITHOUT_EFFECT | ({} if name == "gpt_neox" else {"partial_rotary_factor": 1.0})
    if "num_key_value_heads" not in own:
        keys |= {"num_key_value_heads": own.get("num_attention_heads") or own["encoder_attention_heads"]}
    keys |= {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0}}
    assert warning_or_error(name, changed(source, tmp_path / "m", **keys)) == ""


def test_a_summary_counts_in_multiple_choice_of_a_roformer(tmp_path):
    make_oracle("RoFormer", "ForMultipleChoice").save_pretrained(tmp_path / "source")
    np.save(tmp_path / "source" / "ids.npy", np.array([[[3, 4, 5], [3, 4, 6]]]))
    assert opened(tmp_path / "source", "--strict") == ""
    without = dict(summary_use_proj=False, summary_activation=None, summary_first_dropout=0, summary_last_dropout=0.0)
    assert opened(changed(tmp_path / "source", tmp_path / "m", **without), "--strict") == ""
    for key in WITHOUT_EFFECT.keys() & without.keys() | {"summary_type"}:
        assert key in error_of(changed(tmp_path / "source", tmp_path / "m", **{key: WITHOUT_EFFECT[key]}))


def test_the_architecture_comes_first(encoder, tmp_path):
    """Before a tokenizer that is of another kind too."""
    folder = changed(encoder, tmp_path / "m", model_type="squeezebert", architectures=["SqueezeBertModel"])
    (folder / "tokenizer.json").write_text("{")
    assert 'model_type "squeezebert" is not supported, because it needs convolutions' in error_of(folder)


# Commands that open a model, and which: of encoders, of decoders too, or of translation.
OPENING = {
    "encoder": [
        ["fill-mask", "--text", "a"],
        ["evaluate", "--data", "data"],
        ["bake"],
        ["train-similar", "--pairs", "a.jsonl", "--output", "run"],
        ["finetune", "--train", "a.jsonl", "--valid-fraction", 0.5, "--task", "classification", "--output", "run"],
    ],
    "decoder": [
        ["predict", "--text", "a"],
        ["rerank", "--query", "a", "--text", "b"],
        ["embed", "--text", "a"],
        ["similar", "--query", "a", "--input", "a.jsonl"],
        ["generate", "--prompt", "a"],
        ["forward", "--ids", "ids.npy", "--output", "out.npy"],
    ],
    "translation": [["translate", "--input", "a.jsonl"]],
}
# Files of models without a vocabulary and weights, which kinds of commands refuse them, and by which words.
REFUSED_FILES = {
    "bart": (AutoConfig.for_model("bart").to_dict(), "all", '"bart" is not supported, because it needs a decoder that'),
    "unknown": (
        {"model_type": "roberto"},
        "encoder decoder",
        'not supported; the page docs/engine.md lists the supported types (did you mean "roberta"?)',
    ),
    "llama": (AutoConfig.for_model("llama").to_dict(), "encoder translation", "Engine and roformer generate open"),
    "bert": (AutoConfig.for_model("bert").to_dict(), "translation", "Engine and roformer embed open"),
    "marian": (MarianConfig().to_dict(), "encoder decoder", "load_translation_model and roformer translate open"),
    "empty": ({}, "all", "must be a JSON object with the keys of a model, got {}"),
    "null": (None, "all", "must be a JSON object with the keys of a model, got null"),
    "list": ([1], "all", "must be a JSON object with the keys of a model, got [1]"),
    "number": ({"model_type": 3}, "all", "model_type must be a string or null, got 3"),
    "object": ({"model_type": {"a": 1}}, "all", "model_type must be a string or null"),
}


@pytest.mark.parametrize("file", REFUSED_FILES)
def test_the_first_error_of_each_command(file, tmp_path, monkeypatch):
    """Of one command of each kind, and of a BART and the other kinds of models of every command."""
    monkeypatch.chdir(tmp_path)
    content, kinds, words = REFUSED_FILES[file]
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(content))
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "b"}\n{"text": "a", "label": "c"}\n')
    np.save(tmp_path / "ids.npy", np.array([[3, 4]]))
    for kind in OPENING if kinds == "all" else kinds.split():
        for command in OPENING[kind] if file in ("bart", "llama", "marian") else OPENING[kind][:1]:
            error = refused(*command, "--model", "m")
            assert error.startswith("[m/config.json] ") and words in error, command


def test_models_that_do_not_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    for command in [*(each for kind in OPENING.values() for each in kind), ["tokenize"], ["doctor"]]:
        error = refused(*command, *(["--model"] if command != ["doctor"] else []), "owner/name")
        assert error.startswith("[model] a model must be a directory"), command
        assert "got owner/name, which does not exist" in error and "hf download" in error
    for name, is_id in (("gpt2", True), ("https://huggingface.co/owner/name", False), ("/no/such/place", False)):
        assert ("hf download" in refused("tokenize", "--model", name)) == is_id


LOST = "] a link must lead to a file"


def test_ids_of_the_hub(encoder, tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "hf" / "hub" / "models--owner--tiny"
    snapshot = root / "snapshots" / "abc123"
    shutil.copytree(encoder, snapshot)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("abc123")
    (snapshot / "modules.json").rename(root / "blob")
    (snapshot / "modules.json").symlink_to("../../blob")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    found = run("embed", "--model", "owner/tiny", "--text", "hello")
    assert found.returncode == 0, found.stderr
    assert found.stdout == run("embed", "--model", encoder, "--text", "hello").stdout
    assert f"{snapshot}/config.json]" in refused("doctor", "owner/tiny")
    (root / "blob").unlink()
    assert "modules.json" + LOST in refused("embed", "--model", "owner/tiny", "--text", "hello")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    save_classifier(folder, 1)
    return folder


PREDICT, RERANK = ["predict", "--text", "a"], ["rerank", "--query", "a", "--text", "b"]
OF_SENTENCES = ("config_sentence_transformers.json", "modules.json")
OF_TOKENIZERS = ("tokenizer_config.json", "tokenizer.json")


@pytest.mark.parametrize(
    ("model", "file", "commands"),
    [
        # Without the file each would be another model: of other columns, without its prompt.
        ("classifier", "task.json", [PREDICT]),
        *(("classifier", name, [PREDICT, RERANK]) for name in OF_SENTENCES),
        *(("encoder", name, []) for name in (*OF_SENTENCES, "sentence_bert_config.json", *OF_TOKENIZERS)),
        *(("decoder", name, []) for name in ("generation_config.json", "config.json")),
        *((None, name, [["generate", "--prompt", "a"]]) for name in ("config.json", "run.json")),
    ],
)
def test_links_that_lead_nowhere(model, file, commands, request, tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    if model is not None:
        shutil.copytree(request.getfixturevalue(model), folder, dirs_exist_ok=True)
        (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to("gone")
    for command in commands:
        assert file + LOST in refused(*command, "--model", folder)
    if model in ("encoder", "decoder"):
        assert file + LOST in error_of(folder)
    if model == "classifier":
        with pytest.raises(FileNotFoundError, match="a link must lead to a file"):
            roformer_cpp.Engine(folder)
    if file == "config.json":
        assert file + LOST in refused("doctor", folder)


def test_a_link_in_the_place_of_a_manifest(tmp_path):
    (tmp_path / "data.json").symlink_to("gone")
    assert "data.json" + LOST in refused("verify", "--data", tmp_path)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "gpt_neox"])
def test_defaults_of_decoders(family, tmp_path):
    """A file without a key computes what the file with the default of transformers' class says."""
    source = tmp_path / "source"
    # A Mistral has a window of 4096 without the key, which is refused for longer sequences.
    changes = {"sliding_window": None, "max_position_embeddings": 8192} if family == "mistral" else {}
    make_decoder(family, source, **changes)
    own = json.loads((source / "config.json").read_text())
    sizes = {key: own[key] for key in ("num_hidden_layers", "num_attention_heads")}
    defaults = AutoConfig.for_model(family, **sizes).to_dict()
    if family in ("mistral", "qwen2"):
        defaults |= {"sliding_window": 4096}  # that of the class before use_sliding_window counts
    needed = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}
    for key in sorted(set(defaults) & (set(own) | {"sliding_window"})):
        if key in needed | {"model_type", "architectures", "dtype", "rope_parameters", "transformers_version"}:
            continue
        rest = {name: value for name, value in own.items() if name != key}
        # Of head_dim, transformers has hidden_size / heads.
        given = {} if key == "head_dim" else {key: defaults[key]}
        assert outcome_of_file(source, **rest) == outcome_of_file(source, **rest, **given), key


# Scalings by a length that is not given; those of 8 pairs, or of a GPT-NeoX's 2.
LENGTH_SCALINGS = {
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {"short_factor": [1.0, 2.0, 3.0, 4.0], "long_factor": [5.0] * 4, "factor": 4.0},
}


@pytest.mark.parametrize(
    ("family", "scaling"), zip(["llama", "mistral", "qwen2", "gpt_neox"], LENGTH_SCALINGS, strict=True)
)
def test_a_rotation_by_length_without_the_length(family, scaling, tmp_path):
    """As transformers computes it, by the default of its class; with null there, which it cannot compute, refused."""
    rotation = {"rope_type": scaling, "rope_theta": 1e4} | LENGTH_SCALINGS[scaling]
    changes = {"sliding_window": None} if family == "mistral" else {}
    changes |= {"hidden_size": 64} if family == "gpt_neox" else {"head_dim": 8}
    rotation |= {"partial_rotary_factor": 0.5} if family == "gpt_neox" else {}
    make_decoder(family, tmp_path, max_position_embeddings=64, rope_parameters=rotation, **changes)
    ids = np.array([[3, 4, 5, 6] * 20])
    np.save(tmp_path / "ids.npy", ids)
    own = json.loads((tmp_path / "config.json").read_text())
    own["rope_parameters"].pop("original_max_position_embeddings", None)
    del own["max_position_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(own))
    opened(tmp_path)
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert oracle.config.max_position_embeddings == AutoConfig.for_model(family).max_position_embeddings
    with torch.no_grad():
        assert_close(np.load(tmp_path / "out.npy"), oracle(torch.tensor(ids)).logits.numpy())
    (tmp_path / "config.json").write_text(json.dumps(own | {"max_position_embeddings": None}))
    rule = "max_position_embeddings must be a number" if scaling == "dynamic" else "all layers must have one rotation"
    assert rule in error_of(tmp_path)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "gpt_neox"])
def test_default_end_of_decoders(family, tmp_path):
    """Where no file names eos_token_id, a text ends at that of transformers' class. The model writes token 2, the
    default of three of them, first."""
    folder = tmp_path / "model"
    save_decoder(family)(folder)
    (folder / "generation_config.json").unlink()
    path, tensors = folder / "model.safetensors", load_file(folder / "model.safetensors")
    output = tensors["embed_out.weight" if family == "gpt_neox" else "lm_head.weight"]

    def generated(**keys):
        own = json.loads((folder / "config.json").read_text())
        own.pop("eos_token_id", None)
        (folder / "config.json").write_text(json.dumps(own | keys))
        return results("generate", "--model", folder, "--prompt", "The quick", "--max-new-tokens", 6)[0]["ids"]

    first = generated(eos_token_id=None)[0]
    output[[2, first]] = output[[first, 2]]
    save_file(tensors, path, metadata={"format": "pt"})
    default = AutoConfig.for_model(family).eos_token_id
    assert default in (2, None)
    assert generated() == generated(eos_token_id=default)
    assert len(generated(eos_token_id=None)) > len(generated(eos_token_id=2)) == 1


def outcome_of_file(folder, **keys):
    """What the engine computes, or what it says up to the value that was given."""
    (folder / "config.json").write_text(json.dumps(keys))
    try:
        return Engine(folder).logits([[3, 4, 5, 6]]).tobytes()
    except EngineError as error:
        return str(error).split("got")[0]


# Of a Nezha, the other model_type of encoders, transformers 5 has no class.
@pytest.mark.parametrize(
    ("family", "head"), [("Bert", "ForMaskedLM"), ("Bert", "causal"), ("RoFormer", "ForSequenceClassification")]
)
def test_defaults_of_encoders(family, head, tmp_path):
    """As of decoders. Values that are not defaults change the result, or the comparison would show nothing."""
    head = CAUSAL_HEADS[family] if head == "causal" else head
    changes = {"hidden_act": "relu", "layer_norm_eps": 0.1, "is_decoder": head == CAUSAL_HEADS[family], "num_labels": 2}
    changes |= {"rotary_value": True} if family == "RoFormer" else {}
    make_oracle(family, head, **changes).save_pretrained(tmp_path)
    own = json.loads((tmp_path / "config.json").read_text())
    defaults = AutoConfig.for_model(family.lower()).to_dict()
    if family == "RoFormer":
        defaults["embedding_size"] = None  # in the class hidden_size
    expected, counted = outcome_of_file(tmp_path, **own), set()
    for key in sorted(set(defaults) - {"model_type", "architectures", "dtype", "transformers_version"}):
        rest = {name: value for name, value in own.items() if name != key}
        absent = outcome_of_file(tmp_path, **rest)
        assert absent == outcome_of_file(tmp_path, **rest, **{key: defaults[key]}), key
        if absent != expected:
            counted.add(key)
    assert counted >= {"hidden_act", "layer_norm_eps", "vocab_size"} | ({"rotary_value"} & set(changes))


def test_defaults_of_translation_models(tmp_path):
    """A Marian without a key is one with the default of transformers' class, or is refused by that key's name."""
    torch.manual_seed(0)
    MarianMTModel(MarianConfig(**MARIAN)).save_pretrained(tmp_path)
    ids = torch.tensor([[3, 4, 5, 1]])
    own = json.loads((tmp_path / "config.json").read_text())

    def outcome(keys):
        (tmp_path / "config.json").write_text(json.dumps(keys))
        model = load_translation_model(tmp_path)
        return model.config, model.logits(ids, None, ids[:, :3]).numpy().tobytes()

    defaults, refused = MarianConfig(vocab_size=61).to_dict(), set()
    for key in sorted(set(defaults) - {"architectures", "dtype", "transformers_version"}):
        rest = {name: value for name, value in own.items() if name != key}
        try:
            absent = outcome(rest)
        except (RuntimeError, ValueError) as error:
            assert key in str(error), key
            refused.add(key)
            continue
        assert absent == outcome(rest | {key: defaults[key]}), key
    assert refused == {*MARIAN, "model_type"}
