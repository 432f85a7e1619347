"""Encoders of other libraries beside transformers: in the engine, and in a module for training."""

import copy
import json
import re

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import roformer_cpp
import tolerances as tol
from cli_support import refused
from engine_case import assert_close, assert_refused, change_config
from foreign_encoders import CASES, FAMILIES, SIZES, TRAINED, UNREAD, UNTRAINED, WITHOUT_GRAPH, make_encoder, rows_of
from onnx_case import padded, run
from rf_engine import Engine, EngineError
from roformer_cpp._model_pass import Dropout
from saved_model_makers import with_word_pieces

TRAINED_CASES = [case for case in CASES if case[0] in TRAINED]


def theirs_of(oracle, row):
    ids = torch.tensor(row)[None].long()
    if type(oracle).__name__.endswith("ForMultipleChoice"):
        ids = ids[None]
    with torch.no_grad():
        out = oracle(ids)
    if "start_logits" in out:
        return torch.stack((out.start_logits[0], out.end_logits[0]), -1).numpy()
    return (out.logits if "logits" in out else out.last_hidden_state)[0].numpy()


# Each family's body in both shapes, and each head in one.
SHAPES = {"4 heads of 12": {}, "6 heads of 10": {"hidden_size": 60, "num_attention_heads": 6, "intermediate_size": 44}}
SHAPED = [(*case, list(SHAPES)[i % 2]) for i, case in enumerate(CASES) if case[1] != "Model"]
SHAPED += [(*case, shape) for case in CASES if case[1] == "Model" for shape in SHAPES]


@pytest.mark.parametrize(("family", "head", "shape"), SHAPED)
def test_engine(family, head, shape, tmp_path):
    oracle = make_encoder(family, head, tmp_path, **SHAPES[shape])
    engine = Engine(tmp_path)
    rows = rows_of()
    theirs = np.concatenate([theirs_of(oracle, row).ravel() for row in rows])
    for batches in ([rows], [[row] for row in rows]):
        ours = [engine.hidden(batch) if head == "Model" else engine.logits(batch) for batch in batches]
        assert_close(np.concatenate([each.ravel() for each in ours]), theirs)


def read_names(path):
    """The tensors of a file under the names of modules, without those that no head computes with."""
    renamed = ((re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name), x) for name, x in load_file(path).items())
    renamed = ((re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name), x) for name, x in renamed)
    return {name: x for name, x in renamed if not name.endswith(UNREAD)}


@pytest.mark.parametrize(("family", "head"), TRAINED_CASES)
def test_module_and_what_it_saves(family, head, tmp_path):
    oracle = make_encoder(family, head, tmp_path / "given")
    model = roformer_cpp.load_model(tmp_path / "given")
    row, ours = rows_of()[-1], []
    for each in rows_of():
        out = model(torch.tensor(each)[None].long())
        if head == "ForQuestionAnswering":
            out["logits"] = torch.stack((out["start_logits"], out["end_logits"]), -1)
        ours.append(out["hidden" if head == "Model" else "logits"][0].detach().numpy().ravel())
    assert_close(np.concatenate(ours), np.concatenate([theirs_of(oracle, each).ravel() for each in rows_of()]))
    model.save(tmp_path / "saved")
    given, saved = (read_names(tmp_path / folder / "model.safetensors") for folder in ("given", "saved"))
    assert given.keys() == saved.keys() and all(np.array_equal(given[name], saved[name]) for name in given)
    assert_reopens(oracle, tmp_path / "saved", row)


def assert_reopens(oracle, folder, row):
    again, report = type(oracle).from_pretrained(folder, output_loading_info=True)
    assert not {name for names in report.values() for name in names if not name.endswith(UNREAD)}, report
    assert_close(theirs_of(again.eval(), row), theirs_of(oracle, row))


@pytest.mark.parametrize("family", TRAINED)
def test_gradients(family, tmp_path):
    """Theirs are saved as weights are, which gives them the names and the parts of ours."""
    oracle = make_encoder(family, "ForMaskedLM", tmp_path).double()
    oracle.save_pretrained(tmp_path)
    model = roformer_cpp.load_model(tmp_path, dtype="float64")
    ids = torch.tensor(np.stack(rows_of((9, 9)))).long()
    weights = torch.randn(2, 9, SIZES["vocab_size"], generator=torch.Generator().manual_seed(1)).double()
    for each in (model, oracle):
        (each(ids)["logits"] * weights).sum().backward()
    with torch.no_grad():
        for parameter in (each for each in oracle.parameters() if each.grad is not None):
            parameter.copy_(parameter.grad)
    oracle.save_pretrained(tmp_path)
    theirs = dict(roformer_cpp.load_model(tmp_path, dtype="float64").named_parameters())
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert ours.keys() == theirs.keys()
    largest = max(gradient.abs().max() for gradient in ours.values())
    for name, gradient in ours.items():
        if name.endswith(("key.bias", "pos_key_proj_bias")) and gradient.abs().max() <= tol.T4_MAX * largest:
            assert theirs[name].abs().max() <= tol.T4_MAX * largest  # 0 without roundings, unless keys are rotated
        else:
            assert_close(gradient.numpy(), theirs[name].detach().numpy())


def test_what_the_engine_alone_computes(tmp_path):
    parts = [(family, {}, part, WITHOUT_GRAPH.get(family)) for family, part in UNTRAINED.items()]
    own = {"embedding_size": 20}, "a projection of its embeddings before their norm", "embedding_norm_last"
    for family, changes, part, mechanism in (*parts, ("deberta", *own)):
        make_encoder(family, "Model", tmp_path, **changes)
        with pytest.raises((RuntimeError, ValueError), match=f"got {family.split()[0]}, which has {part}"):
            roformer_cpp.load_model(tmp_path)
        if mechanism:
            with pytest.raises(ValueError, match=f"the model must be without {mechanism}, which has no graph"):
                roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")


ODD_OPTIONS = [
    ("esm", "ForMaskedLM", {"tie_word_embeddings": False}),
    ("albert", "ForMaskedLM", {"embedding_size": 48}),  # a projection nevertheless
    ("gte", "ForMaskedLM", {"hidden_act": "silu"}),  # not that of the head
    ("nomic_bert", "ForMaskedLM", {"hidden_act": "gelu"}),
    ("deberta", "ForMaskedLM", {"legacy": False, "tie_word_embeddings": False}),  # tied nevertheless
    ("deberta-v2", "ForMaskedLM", {"legacy": False, "tie_word_embeddings": False}),
    ("deberta-v2", "Model", {"relative_attention": False}),  # whose file has the norm of distances
    ("deberta-v2 convolution", "Model", {"conv_kernel_size": 5, "conv_groups": 3, "conv_act": "tanh"}),
    ("deberta", "Model", {"embedding_size": 60, "type_vocab_size": 2, "position_biased_input": True}),
]


@pytest.mark.parametrize(("family", "head", "options"), ODD_OPTIONS)
def test_odd_options(family, head, options, tmp_path):
    oracle = make_encoder(family, head, tmp_path, **options)
    row, engine = rows_of()[-1], Engine(tmp_path)
    assert_close((engine.hidden if head == "Model" else engine.logits)([row]), theirs_of(oracle, row))
    if head != "Model":
        roformer_cpp.load_model(tmp_path).save(tmp_path / "saved")
        assert_reopens(oracle, tmp_path / "saved", row)


@pytest.mark.parametrize("family", [family for family, (_, heads, _) in FAMILIES.items() if "ForMaskedLM" in heads])
def test_bare_names(family, tmp_path):
    """A file of the bare model, and one whose names lack the prefix. Missing tensors: tests/engine/damaged_test.cpp."""
    oracle = make_encoder(family, "ForMaskedLM", tmp_path)
    path, prefix = tmp_path / "model.safetensors", oracle.base_model_prefix + "."
    weights = load_file(path)
    row = rows_of()[-1]
    hidden = Engine(tmp_path, head="none").hidden([row])
    save_file({name.removeprefix(prefix): value for name, value in weights.items()}, path)
    assert np.array_equal(Engine(tmp_path, head="none").hidden([row]), hidden)
    save_file(weights | {prefix + "encoder.layers.0.more": np.zeros(1, np.float32)}, path)
    assert_refused(tmp_path, r'encoder\.layers\.0\.more" of shape \[1\]$')
    if family in ("nomic_bert", "gte", "jina_embeddings_v3"):
        oracle.save_pretrained(tmp_path, save_original_format=False)
        assert_refused(tmp_path, "save_original_format=False must be saved without it")


@pytest.mark.parametrize("family", ["roberta", "esm"])
def test_stored_head_of_a_tied_model(family, tmp_path):
    """It is used, and the model is saved without the tie, as in transformers 5."""
    oracle = make_encoder(family, "ForMaskedLM", tmp_path, tie_word_embeddings=True)
    path = tmp_path / "model.safetensors"
    stored = torch.randn(oracle.get_output_embeddings().weight.shape).numpy()
    save_file(load_file(path) | {"lm_head.decoder.weight": stored}, path, metadata={"format": "pt"})
    oracle, row = type(oracle).from_pretrained(tmp_path).eval(), rows_of()[-1]
    with pytest.warns(UserWarning, match="tie_word_embeddings"):
        roformer_cpp.load_model(tmp_path).save(tmp_path / "saved")
    for folder in (tmp_path, tmp_path / "saved"):
        assert_close(Engine(folder).logits([row]), theirs_of(oracle, row))
    assert_reopens(oracle, tmp_path / "saved", row)


@pytest.mark.parametrize("family", TRAINED)
def test_dropout(family, tmp_path, monkeypatch):
    """Where theirs drops, with the probabilities of theirs where the file has none."""
    streams = []
    counted = Dropout.stream
    monkeypatch.setattr(Dropout, "stream", lambda self: streams.append(0) or counted(self))

    def drops(head):
        folder = tmp_path / head
        has_own = family in ("distilbert", "eurobert")  # keys
        oracle = make_encoder(family, head, folder, **({} if has_own else {"classifier_dropout": 0.1}))
        calls, rows = [], torch.tensor(np.stack(rows_of((9, 9)))).long()
        for module in oracle.modules():
            if type(module).__name__.endswith("Dropout") and getattr(module, "p", getattr(module, "drop_prob", 0)):
                module.register_forward_hook(lambda *_: calls.append(0))
        oracle.train()(rows[None] if head == "ForMultipleChoice" else rows)
        model = roformer_cpp.load_model(folder).train()
        streams.clear()
        model(rows, num_choices=2 if head == "ForMultipleChoice" else 1)
        return np.array([len(calls), len(streams)])

    of_body = drops("Model")
    for head in FAMILIES[family][1][1:]:
        if (family, head) != ("distilbert", "ForQuestionAnswering"):  # whose probability has a key of its own
            theirs, ours = drops(head) - of_body
            assert theirs == ours, head
    config = json.loads((tmp_path / "Model" / "config.json").read_text())
    without = {key: value for key, value in config.items() if "dropout" not in key}
    (tmp_path / "Model" / "config.json").write_text(json.dumps(without))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path / "Model")
    ours = roformer_cpp.load_model(tmp_path / "Model")
    hidden = "dropout" if family == "distilbert" else "hidden_dropout_prob"
    attention = "attention_probs_dropout_prob"
    attention = attention if hasattr(theirs, attention) else "attention_dropout"
    found = [module.dropout for module in ours.modules() if isinstance(getattr(module, "dropout", None), float)]
    assert set(found) == {getattr(theirs, hidden, 0.0)}
    assert ours._layout["attention_dropout"] == getattr(theirs, attention, 0.0)


@pytest.mark.parametrize("family", ("roberta", "electra", "distilbert", "mpnet", "deberta-v2", "albert", "ernie"))
def test_files_of_older_programs(family, tmp_path):
    """Indices that were stored, and older names of norms."""
    oracle = make_encoder(family, "ForSequenceClassification", tmp_path)
    path = tmp_path / "model.safetensors"
    older = {name.replace("Norm.weight", "Norm.gamma"): value for name, value in load_file(path).items()}
    older = {name.replace("Norm.bias", "Norm.beta"): value for name, value in older.items()}
    save_file(older | {f"{oracle.base_model_prefix}.embeddings.position_ids": np.arange(64)[None]}, path)
    row = rows_of()[-1]
    assert_close(Engine(tmp_path).logits([row])[0], theirs_of(oracle, row))


MORE = [("deberta-v2", "ForMaskedLM"), *((family, "ForPreTraining") for family in ("electra", "albert", "ernie"))]


@pytest.mark.parametrize(("family", "head"), MORE)
def test_files_with_more(family, head, tmp_path):
    """Heads that are not computed, and what DeBERTa's class does not read."""
    oracle = make_encoder(family, head, tmp_path)
    more = {}
    if family == "deberta-v2":
        more["mask_predictions.dense.weight"] = np.ones((48, 48), np.float32)
        more["deberta.embeddings.position_embeddings.weight"] = np.ones((64, 48), np.float32)
    save_file(load_file(tmp_path / "model.safetensors") | more, tmp_path / "model.safetensors")
    row = rows_of()[-1]
    assert_close(Engine(tmp_path, head="none").hidden([row]), theirs_of(oracle.base_model, row))
    if family != "electra":
        with torch.no_grad():
            out = oracle(torch.tensor(row)[None].long())
        theirs = out.logits if head == "ForMaskedLM" else out.prediction_logits
        assert_close(Engine(tmp_path).logits([row]), theirs[0].numpy())


@pytest.mark.parametrize("family", ("roberta", "xlm-roberta", "mpnet", "distilbert", "electra"))
def test_padding_inside(family, tmp_path):
    """Tokens of the padding's id have a row of their own where transformers gives them one."""
    oracle = make_encoder(family, "Model", tmp_path)
    for pad in (0, 1, 3):
        row = np.array([5, 7, pad, 9, pad, pad, 11, 4], np.int32)
        ids = torch.tensor(row)[None].long()
        theirs = oracle(ids, attention_mask=torch.ones(1, len(row))).last_hidden_state[0].detach().numpy()
        assert_close(Engine(tmp_path).hidden([row]), theirs)
        assert_close(roformer_cpp.load_model(tmp_path)(ids)["hidden"][0].detach().numpy(), theirs)


@pytest.mark.parametrize(("family", "length"), (("roberta", 62), ("xlm-roberta", 60), ("mpnet", 158), ("electra", 64)))
def test_longest(family, length, tmp_path):
    """A token more than the table has rows is refused."""
    oracle = make_encoder(family, "Model", tmp_path)
    row = np.arange(length, dtype=np.int32) % 50 + 5
    engine = Engine(tmp_path)
    assert_close(engine.hidden([row]), theirs_of(oracle, row))
    with pytest.raises(EngineError, match=f"positions must be below the {length} of the trained table"):
        engine.hidden([np.resize(row, length + 1)])


@pytest.mark.parametrize("buckets", (-1, 6, 32))
@pytest.mark.parametrize("terms", (["c2p"], ["p2c"], "C2P | p2c", []))
def test_distances(terms, buckets, tmp_path):
    """DeBERTa's rows, beyond the farthest distance too."""
    changes = {"pos_att_type": terms, "position_buckets": buckets, "max_relative_positions": 40}
    row = rows_of((150,))[0]
    theirs = theirs_of(make_encoder("deberta-v2", "Model", tmp_path, **changes, max_position_embeddings=200), row)
    assert_close(Engine(tmp_path).hidden([row]), theirs)
    if terms:
        hidden = roformer_cpp.load_model(tmp_path)(torch.tensor(row)[None].long())["hidden"]
        assert_close(hidden[0].detach().numpy(), theirs)
    else:
        with pytest.raises(RuntimeError, match="pos_att_type must name c2p, p2c or both for training"):
            roformer_cpp.load_model(tmp_path)


# One reader reads these keys of all families.
BAD = [
    ({"hidden_size": None}, "hidden_size must be given, got none"),
    ({"num_attention_heads": 5}, "48, is not a multiple|must be a multiple|must have the shape"),
    ({"hidden_act": "spiral"}, 'hidden_act must be .*, got "?spiral'),
    ({"sliding_window": "wide"}, "sliding_window must be"),
    ({"architectures": [3]}, "architectures must be a list of class names"),
    ({"problem_type": "nope"}, "problem_type must be"),
    ({"id2label": None, "label2id": None, "num_labels": 1 << 40}, "num_labels must be"),
    ({"classifier_dropout": 7.0}, "classifier_dropout must be"),
    ({"is_decoder": True}, "is_decoder must be"),
]
TWO_ROTATIONS = {kind: {"rope_theta": 1e4} for kind in ("full_attention", "sliding_attention")}
LINEAR = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
CHOICES = {"architectures": ["ElectraForMultipleChoice"]}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        *(("modernbert", *row) for row in BAD),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings must be more than 2"),
        ("roberta", {"position_embedding_type": "relative_key"}, "position_embedding_type must be"),
        ("xlm-roberta", {"rope_theta": 100.0}, "rope_theta must be"),
        ("distilbert", {"hidden_size": 40}, "dim and hidden_size must be equal, got 48 and 40"),
        ("distilbert", {"hidden_dim": 0}, "hidden_dim must be an integer from 1 to .*, got 0"),
        ("distilbert", {"dim": 49}, "dim must be a multiple of n_heads, got 49 and 4"),
        ("mpnet", {"relative_attention_num_buckets": 31}, "relative_attention_num_buckets must be at least 32, got 31"),
        ("deberta-v2", {"conv_kernel_size": 4}, "conv_kernel_size must be odd and at most 127, got 4"),
        ("deberta-v2", {"conv_kernel_size": 129}, "conv_kernel_size must be odd and at most 127, got 129"),
        ("deberta-v2", {"conv_kernel_size": 3, "conv_groups": 5}, "conv_groups must divide hidden_size, 48, got 5"),
        ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "spiral"}, "conv_act must be .*, got .spiral"),
        ("deberta-v2", {"pooler_hidden_act": "spiral"}, "pooler_hidden_act must be .*, got .spiral"),
        ("deberta-v2", {"pooler_hidden_size": 7}, "pooler_hidden_size must be hidden_size, 48, got 7"),
        ("deberta-v2", {"max_relative_positions": 9}, "max_relative_positions must be more than 9"),
        ("deberta-v2", {"position_buckets": 3}, "position_buckets must be even and at least 4, got 3"),
        ("deberta-v2", {"embedding_size": 20, "legacy": False}, "embedding_size must be hidden_size, 48, where legacy"),
        ("deberta-v2", {"attention_head_size": 20}, "attention_head_size must be"),
        ("deberta", {"talking_head": True}, "talking_head must be false"),
        ("deberta", {"pos_att_type": ["c2p", "p2p"]}, "pos_att_type must be of c2p and p2c"),
        ("deberta-v2", {"pos_att_type": "x"}, "pos_att_type must be of c2p and p2c, each once, got .x"),
        ("ultrabert", {"attention_windows": [5, 5, 5, 5]}, "attention_windows and layer_types must be equal, got"),
        ("ultrabert", {"rope_theta": [1.0] * 4}, "rope_theta and rope_parameters must be equal, got"),
        ("ultrabert", {"layer_types": "x", "rope_theta": [1.0]}, "layer_types must be a list, got"),
        ("gte", {"hidden_act": ""}, 'hidden_act must be null or a name, got ""'),
        ("nomic_bert", {"rotary_scaling_factor": 2.0}, "rotary_scaling_factor must be absent or null without n_embd"),
        ("albert", {"num_hidden_groups": 2}, "num_hidden_groups must be .* all layers have the same weights, got 2"),
        ("modernbert", {"classifier_pooling": "last"}, "classifier_pooling must be cls or mean, got .last"),
        ("ultrabert", {"classifier_pooling": "late"}, "classifier_pooling must be cls or mean, got .late"),
        ("eurobert", {"classifier_pooling": "cls"}, "classifier_pooling must be late or bos or mean, got .cls"),
        ("albert", {"inner_group_num": 0}, "inner_group_num must be .* since all layers have the same weights, got 0"),
        ("modernbert", {"sliding_window": 1 << 31}, "sliding_window must be absent or null in a modernbert, got 2147"),
        ("modernbert", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling of a modernbert must have a"),
        # It ignores the share without a scaling.
        ("gte", {"partial_rotary_factor": 0.75} | LINEAR, r"at least 2: 12 \* 0.75 comes to 9"),
        ("gte", {"rope_parameters": TWO_ROTATIONS}, "all layers must have one rotation that is known, got 2 of"),
        ("electra", {"architectures": ["ElectraForPreTraining"]}, "head that is computed, .* ElectraForPreTraining"),
        ("electra", {"summary_type": "mean"} | CHOICES, "summary_type must be first"),
    ],
)
def test_refused(family, changes, message, tmp_path):
    make_encoder(family, "Model", tmp_path)
    assert_refused(tmp_path, message, **changes)


LENGTH = {"original_max_position_embeddings": 16}
SCALED = {"rope_theta": 1000.0, "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]}
LONGROPE["long_factor"] = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
ROTATIONS = {
    "both dictionaries": {"rope_scaling": {"rope_type": "linear"} | SCALED},
    "the training length at the top": {"rope_parameters": {"rope_type": "yarn"} | SCALED} | LENGTH,
    "llama3": {"rope_parameters": LLAMA3 | SCALED | LENGTH},
    "longrope": {"rope_parameters": LONGROPE | SCALED | LENGTH},
    "wide heads": {"head_dim": 16},
}
ROTATED = [(family, rotation) for family in ("nomic_bert", "jina_embeddings_v3") for rotation in ROTATIONS]
ROTATIONS["defaults"] = {"rope_parameters": None}
ROTATED.append(("ultrabert", "defaults"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "rotation"), ROTATED)
def test_rotations(family, rotation, tmp_path):
    """As transformers reads the file, in the engine, in a module and in ONNX."""
    changes = ROTATIONS[rotation]
    make_encoder(family, "Model", tmp_path, **{key: value for key, value in changes.items() if key == "head_dim"})
    change_config(tmp_path, **changes)
    row = rows_of()[-1]
    theirs = theirs_of(transformers.AutoModel.from_pretrained(tmp_path).eval(), row)
    assert_close(Engine(tmp_path).hidden([row]), theirs)
    model = roformer_cpp.load_model(tmp_path)
    for each in (model, copy.deepcopy(model)):
        assert_close(each(torch.tensor(row)[None].long())["hidden"][0].detach().numpy(), theirs)
    if rotation == "longrope":  # frequencies that depend on the length
        with pytest.raises(ValueError, match="length"):
            roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
        return
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    assert_close(run(tmp_path / "model.onnx", *padded([row], [[0] * len(row)]))["last_hidden_state"][0], theirs)


def test_changes_that_the_file_cannot_hold(tmp_path):
    make_encoder("nomic_bert", "ForMaskedLM", tmp_path / "given", vocab_size=64)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n')
    options = ["--task", "classification", "--train", rows, "--valid", rows, "--classifier-pooling", "mean"]
    with_word_pieces(tmp_path / "given", None)
    error = refused("finetune", "--model", tmp_path / "given", *options, "--output", tmp_path / "out")
    assert "which its config.json cannot hold" in error
