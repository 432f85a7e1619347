"""Rotary encoders as their authors saved them: older keys, other prefixes, and classes that transformers lacks."""

import json
import math

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import roformer_cpp
from decoder_embedders import theirs_of
from engine_case import assert_close, assert_refused, change_config
from foreign_encoders import FAMILIES, make_encoder, rows_of
from onnx_case import padded, run
from rf_engine import Engine


def assert_as_transformers(folder):
    oracle = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    for row in rows_of():
        assert_close(Engine(folder).hidden([row]), theirs_of(oracle, row))


def test_token_types_of_models_without_them(tmp_path):
    """Tokenizers number the texts of a pair, and transformers does not pass the numbers to such a model."""
    make_encoder("modernbert", "Model", tmp_path)
    engine, rows = Engine(tmp_path), rows_of((5, 9))
    assert np.array_equal(engine.hidden(rows, types=[np.ones_like(row) for row in rows]), engine.hidden(rows))


MODERN_KEYS = {
    "bases at the top": {"global_rope_theta": 5000.0, "local_rope_theta": 300.0},
    "an interval": {"global_attn_every_n_layers": 2},
    "an old scaling": {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "biases": {"norm_bias": True, "attention_bias": True, "mlp_bias": True},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keys", MODERN_KEYS)
def test_older_keys_of_modernbert(keys, tmp_path):
    changes = MODERN_KEYS[keys]
    make_encoder("modernbert", "Model", tmp_path, **(changes if keys == "biases" else {}))
    change_config(tmp_path, rope_parameters=None, layer_types=None, **changes)
    assert_as_transformers(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_windows_of_modernbert_without_a_base(tmp_path):
    """In files of transformers 4 null is the base of the other layers."""
    make_encoder("modernbert", "Model", tmp_path)
    change_config(tmp_path, rope_parameters=None, global_rope_theta=5000.0, local_rope_theta=5000.0)
    same, path = Engine(tmp_path).hidden(rows_of()), tmp_path / "config.json"
    path.write_text(path.read_text().replace('"local_rope_theta": 5000.0', '"local_rope_theta": null'))
    assert "null" in path.read_text() and np.array_equal(Engine(tmp_path).hidden(rows_of()), same)


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification"])
def test_options_of_modernberts_heads(head, tmp_path):
    options = {"classifier_bias": True, "decoder_bias": False, "classifier_activation": "silu"}
    oracle = make_encoder("modernbert", head, tmp_path, classifier_pooling="mean", **options)
    for row in rows_of():
        with torch.no_grad():
            theirs = oracle(torch.tensor(row)[None].long()).logits[0].numpy()
        assert_close(Engine(tmp_path).logits([row]).reshape(theirs.shape), theirs)


@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
def test_poolings_of_eurobert(pooling, tmp_path):
    oracle = make_encoder("eurobert", "ForSequenceClassification", tmp_path, classifier_pooling=pooling)
    rows = rows_of()
    with torch.no_grad():
        theirs = np.stack([oracle(torch.tensor(row)[None].long()).logits[0].numpy() for row in rows])
    assert_close(Engine(tmp_path).logits(rows), theirs)
    change_config(tmp_path, classifier_pooling=None, clf_pooling=pooling)  # the authors' key
    assert_close(Engine(tmp_path).logits(rows), theirs)


def test_lists_of_ultrabert(tmp_path):
    make_encoder("ultrabert", "Model", tmp_path)
    change_config(tmp_path, rope_parameters=None, layer_types=None, sliding_window=None)
    change_config(tmp_path, attention_windows=[None, 5, 5, None], rope_theta=[7000.0, 300.0, 300.0, 7000.0])
    assert_as_transformers(tmp_path)
    assert_refused(tmp_path, "attention_windows must have one width", attention_windows=[None, 5, 6, None])


def test_layers_without_rotation(tmp_path):
    both = make_encoder("ultrabert", "Model", tmp_path).config.rope_parameters
    for left in ("full_attention", "sliding_attention"):
        message = f"rope_parameters must have a rotation for each of .*, got .{left}"
        assert_refused(tmp_path, message, rope_parameters={left: both[left]})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("factor", [None, 2.0])
def test_nomics_own_files(factor, tmp_path):
    """Of NomicBertForPreTraining: names of GPT-2's keys, and tensors below "bert."."""
    oracle = make_encoder("nomic_bert", "ForMaskedLM", tmp_path)
    row = rows_of()[-1]
    hidden = Engine(tmp_path, head="none").hidden([row])
    config = {
        "model_type": "nomic_bert", "auto_map": {"AutoModel": "modeling_hf_nomic_bert.NomicBertModel"},
        "architectures": ["NomicBertForPreTraining"], "activation_function": "swiglu", "n_embd": 48, "n_layer": 2,
        "n_head": 4, "n_inner": 72, "n_positions": 64, "max_trained_positions": 16, "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
        "rotary_scaling_factor": factor, "layer_norm_epsilon": 1e-12, "qkv_proj_bias": False, "mlp_fc1_bias": False,
        "mlp_fc2_bias": False, "prenorm": False, "causal": False, "type_vocab_size": 2, "vocab_size": 60,
        "pad_token_id": 0,
    }  # fmt: skip
    path = tmp_path / "model.safetensors"
    save_file({name.replace("nomic_bert.", "bert."): value for name, value in load_file(path).items()}, path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = Engine(tmp_path, head="none").hidden([row])
    if factor is None:
        assert np.array_equal(ours, hidden)
    else:
        oracle.config.max_position_embeddings = 16
        oracle.config.rope_parameters = {"rope_type": "dynamic", "factor": factor, "rope_theta": 1000.0}
        again = type(oracle)(oracle.config).eval()
        again.load_state_dict(oracle.state_dict())
        assert_close(ours, theirs_of(again.nomic_bert, row))
    for changes, message in (
        ({"prenorm": True}, "prenorm must be"),
        ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved must be"),
        ({"activation_function": "relu"}, "activation_function must be"),
        ({"hidden_size": 24}, "n_embd and hidden_size must be equal, got 48 and 24"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        assert_refused(tmp_path, message, options={"head": "none"})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("head", FAMILIES["gte"][1])
def test_the_authors_gte(head, tmp_path):
    """Their class is called New; its scaling "ntk" is written here from the formula."""
    base, factor, dim = 500.0, 2.5, 12
    oracle = make_encoder("gte", head, tmp_path, type_vocab_size=1)
    pairs = torch.arange(0, dim, 2).double()
    frequencies = (base * factor) ** (-pairs / dim) / factor ** (2 / dim)
    getattr(oracle, "gte", oracle).rotary_emb.inv_freq.copy_(frequencies)
    path = tmp_path / "model.safetensors"
    save_file({name.replace("gte.", "new."): value for name, value in load_file(path).items()}, path)
    own = {"model_type": "new", "architectures": ["New" + head], "auto_map": {"AutoModel": "modeling.NewModel"}}
    own |= {"rope_parameters": None, "rope_theta": base, "rope_scaling": {"type": "ntk", "factor": factor}}
    own |= {"position_embedding_type": "rope", "layer_norm_type": "layer_norm", "pack_qkv": True}
    change_config(tmp_path, logn_attention_scale=False, **own)
    for row in rows_of():
        with torch.no_grad():
            out = oracle(torch.tensor(row)[None].long())
        theirs = (out.logits if "logits" in out else out.last_hidden_state)[0].numpy()
        engine = Engine(tmp_path)
        ours = engine.hidden([row]) if head == "Model" else engine.logits([row])
        assert_close(ours.reshape(theirs.shape), theirs)
    assert_refused(tmp_path, "logn_attention_scale must be", logn_attention_scale=True)


class NeoBlock(torch.nn.Module):
    """NeoBERT's layer, from its paper: RMS norms, complex rotation, SwiGLU."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.wo = torch.nn.Linear(width, width, bias=False)
        shapes = {"w12": (width, 2 * inner), "w3": (inner, width)}
        self.ffn = torch.nn.ModuleDict({name: torch.nn.Linear(*each, bias=False) for name, each in shapes.items()})
        self.attention_norm = torch.nn.RMSNorm(width, 1e-6)
        self.ffn_norm = torch.nn.RMSNorm(width, 1e-6)

    def forward(self, x):
        tokens, width = x.shape
        heads = self.qkv(self.attention_norm(x)).view(tokens, self.heads, 3, -1).unbind(2)
        q, k, v = (each.transpose(0, 1) for each in heads)
        dim = q.shape[-1]
        angles = torch.outer(torch.arange(tokens).double(), 10000.0 ** (-torch.arange(0, dim, 2).double() / dim))
        turn = torch.polar(torch.ones_like(angles), angles)
        pairs = (torch.view_as_complex(each.unflatten(-1, (-1, 2)).double()) for each in (q, k))
        q, k = (torch.view_as_real(each * turn).flatten(-2).float() for each in pairs)
        scores = (q @ k.transpose(1, 2) / math.sqrt(dim)).softmax(-1)
        x = x + self.wo((scores @ v).transpose(0, 1).reshape(tokens, width))
        gate, up = self.ffn["w12"](self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn["w3"](torch.nn.functional.silu(gate) * up)


class Neo(torch.nn.Module):
    def __init__(self, width=24, heads=2, inner=40):
        super().__init__()
        self.encoder = torch.nn.Embedding(60, width)
        self.transformer_encoder = torch.nn.ModuleList(NeoBlock(width, heads, inner) for _ in range(3))
        self.layer_norm = torch.nn.RMSNorm(width, 1e-6)

    def forward(self, row):
        x = self.encoder(torch.tensor(row).long())
        for layer in self.transformer_encoder:
            x = layer(x)
        return self.layer_norm(x)


def save_neobert(folder, tensors, architecture):
    config = {"model_type": "neobert", "architectures": [architecture], "auto_map": {"AutoModel": "model.NeoBERT"}}
    config |= {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
    config |= {"intermediate_size": 60, "max_length": 64, "norm_eps": 1e-6, "pad_token_id": 0, "num_labels": 3}
    config |= {"embedding_init_range": 0.02, "decoder_init_range": 0.02}  # of intermediate_size, two thirds are 40
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: value.detach().numpy() for name, value in tensors.items()}, folder / "model.safetensors")


def test_neobert(tmp_path):
    torch.manual_seed(3)
    body, decoder, dense, last = Neo(), torch.nn.Linear(24, 60), torch.nn.Linear(24, 24), torch.nn.Linear(24, 3)
    with torch.no_grad():
        for each in body.parameters():
            each.add_(0.2 * torch.randn(each.shape))
    bare = dict(body.named_parameters())
    prefixed = {f"model.{name}": value for name, value in bare.items()}
    save_neobert(tmp_path / "bare", bare, "NeoBERT")
    head = {"decoder.weight": decoder.weight, "decoder.bias": decoder.bias}
    save_neobert(tmp_path / "words", prefixed | head, "NeoBERTLMHead")
    head = {"dense.weight": dense.weight, "dense.bias": dense.bias}
    head |= {"classifier.weight": last.weight, "classifier.bias": last.bias}
    save_neobert(tmp_path / "labels", prefixed | head, "NeoBERTForSequenceClassification")
    rows = rows_of()
    with torch.no_grad():
        hidden = [body(row) for row in rows]
        labels = torch.stack([last(torch.tanh(dense(each[0]))) for each in hidden])
        assert_close(Engine(tmp_path / "bare").hidden(rows), torch.cat(hidden).numpy())
        assert_close(Engine(tmp_path / "words").logits(rows), decoder(torch.cat(hidden)).numpy())
        assert_close(Engine(tmp_path / "labels").logits(rows), labels.numpy())
    for name, theirs in (("words", decoder(hidden[1])), ("labels", labels[1])):
        roformer_cpp.export_onnx(tmp_path / name, tmp_path / "model.onnx")
        logits = run(tmp_path / "model.onnx", *padded([rows[1]], [[0] * len(rows[1])]))["logits"]
        assert_close(logits[0], theirs.detach().numpy())
    for name, theirs in (("bare", hidden[1]), ("words", decoder(hidden[1])), ("labels", labels[1])):
        model = roformer_cpp.load_model(tmp_path / name)
        ours = model(torch.tensor(rows[1])[None].long())["hidden" if name == "bare" else "logits"]
        assert_close(ours[0].detach().numpy(), theirs.detach().numpy())
        model.save(tmp_path / "saved")
        given, saved = (load_file(folder / "model.safetensors") for folder in (tmp_path / name, tmp_path / "saved"))
        assert given.keys() == saved.keys() and all(np.array_equal(given[key], saved[key]) for key in given)


@pytest.mark.parametrize(("part", "rows"), [("0.qkv", 72), ("1.ffn.w12", 80)])
def test_joined_matrices_of_training(part, rows, tmp_path):
    """Messages name the matrix in the file, not the parts that a module has."""
    name, shape = f"transformer_encoder.{part}.weight", rf"\[{rows}, 24\]"
    tensors = dict(Neo().named_parameters())
    whole = tensors.pop(name)
    for folder, more, message in (
        ("missing", {}, f'got 1 missing, the first "{name}" of shape {shape}'),
        ("narrow", {name: whole[:, 1:].contiguous()}, f'"{name}" must have the shape {shape} by the config, got'),
        ("short", {name: whole[1:]}, f'"{name}" must have the shape {shape} by the config, got'),
    ):
        save_neobert(tmp_path / folder, tensors | more, "NeoBERT")
        with pytest.raises(RuntimeError, match=message):
            roformer_cpp.load_model(tmp_path / folder)
