"""A researcher's notebook, cell by cell: Auto classes, hooks, attention to look at, the Trainer with LoRA, a graft, an
encoding of one's own, compiled and exported models, and two processes.
"""

import copy

import peft
import pytest
import torch
import transformers
from torch import nn

import roformer_cpp
import tolerances as tol
from compiled_modules import assert_compiled_equals, result_and_gradients, same
from encoding_case import TINY_MODEL
from encoding_files import INFOS, needs_keys, sweep_keys
from graft_models import IDS as WORDS
from graft_models import assert_t4, make
from job_case import free_port
from roformer_cpp._script_module import kept_script

IDS = torch.randint(1, 37, (8, 9), generator=torch.Generator().manual_seed(0))
LABELS = IDS % 2
pytestmark = pytest.mark.usefixtures("registered")


@pytest.fixture
def model(registered):
    """Of transformers, by the configuration alone."""
    torch.manual_seed(0)
    keys = {"position_encoding": ["kerple-log", "rope"], "initializer_range": 0.3, "num_labels": 2}
    config = transformers.AutoConfig.for_model("rf_encoder", **TINY_MODEL, **keys)
    return transformers.AutoModelForTokenClassification.from_config(config).eval()


def test_hooks_and_attention(model):
    """What a hook sees is what the outputs and `inspect` say."""
    layer, seen = model.roformer.encoder.layer[1].attention, []
    layer.self.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    out = model(IDS[:1], output_hidden_states=True, output_attentions=True)
    assert torch.equal(seen[0], out.hidden_states[1])
    found = roformer_cpp.inspect(model, IDS[0]).layers[1]
    assert (found.weights - out.attentions[1][0]).abs().max() <= tol.SCORE_PARTS_F32["atol"]
    torch.testing.assert_close((found.content + found.encoding).softmax(-1), found.weights, **tol.SCORE_PARTS)


@pytest.mark.parametrize("kind", ["whole", "LoRA"])
def test_trainer(model, kind, tmp_path):
    """With LoRA on the AutoModel, and of our own class as a whole."""
    model.save_pretrained(tmp_path)
    before = copy.deepcopy(model.state_dict())
    if kind == "LoRA":
        task = peft.LoraConfig(r=4, task_type="TOKEN_CLS", target_modules=["query", "value", "dense"])
        tuned = peft.get_peft_model(model, task)
    else:
        tuned = roformer_cpp.load_model(tmp_path)
    options = dict(max_steps=8, learning_rate=0.05, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True)
    rows = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row % 2} for row in IDS]
    arguments = transformers.TrainingArguments(str(tmp_path), **options)
    trainer = transformers.Trainer(tuned, arguments, train_dataset=rows, eval_dataset=rows)
    at_first = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.8 * at_first
    expected = tuned.eval()(IDS, labels=LABELS)
    assert abs(trainer.evaluate()["eval_loss"] - expected["loss"]) <= tol.T4_MAX * expected["loss"]
    merged = tuned.merge_and_unload() if kind == "LoRA" else tuned
    changed = {name for name, x in merged.state_dict().items() if not torch.equal(x, before[name])}
    assert changed and (kind == "whole" or not any("key" in name or "embeddings" in name for name in changed))
    (merged.save_pretrained if kind == "LoRA" else merged.save)(tmp_path / "tuned")
    for load in (roformer_cpp.load_model, transformers.AutoModelForTokenClassification.from_pretrained):
        assert_t4(load(tmp_path / "tuned")(IDS)["logits"], expected["logits"])


def test_graft_an_encoding_of_ones_own(model):
    """It reads the input of each layer: a score for every key, as in our model so in a Llama."""

    class Salience(roformer_cpp.CustomEncoding):
        def __init__(self, shape):
            super().__init__()
            self.numbers_per_token = 1
            self.weight = nn.Parameter(torch.full((shape.hidden_size,), 0.5))

        def token_numbers(self, layer, hidden_states):
            return (hidden_states @ self.weight).unsqueeze(-1)

        def layer_terms(self, layer, shared, projections, token_numbers):
            return roformer_cpp.Terms(key_score=token_numbers.transpose(1, 2))

    roformer_cpp.register_encoding("salience", Salience)
    config = model.config.to_dict() | {"position_encoding": ["rope", "salience"]}
    own = transformers.AutoModelForTokenClassification.from_config(type(model.config)(**config))
    own(IDS, labels=LABELS).loss.backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in own.position_encoding.parameters())
    llama = roformer_cpp.graft(make("Llama"), "salience", keep=True)
    llama(WORDS, labels=WORDS, use_cache=False).loss.backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in llama.position_encoding.parameters())
    with torch.no_grad():
        for parameter in llama.position_encoding.parameters():
            parameter.zero_()
        assert_t4(llama(WORDS, use_cache=False).logits, make("Llama")(WORDS).logits)


def kind(info):
    """What the Python code of a model asks about an encoding, which is one operator in a graph."""
    return info["engine_lacks"], info["needs_causal"], info["parameters"][0] == "0", info["position_terms"]


COMPILED = {kind(info): name for name, info in INFOS.items()}.values()


@pytest.mark.parametrize("info", INFOS.values(), ids=INFOS)
def test_models_of_every_encoding_compile_and_export(info):
    """In a process that has not met the encoding: what its C++ object keeps must not come from a trace."""
    encoding = {"type": info["name"]} | (sweep_keys(info["name"], 8) if needs_keys(info["name"]) else {})
    config = {"model_type": "rf_encoder", "position_encoding": encoding, "is_decoder": info["needs_causal"]}
    sizes = {"hidden_dropout_prob": 0.2, "num_hidden_layers": 1, "max_position_embeddings": 16}
    config |= {"initializer_range": 0.3}  # so that queries and keys have gradients
    model = roformer_cpp.build_model(TINY_MODEL | config | sizes)
    ids = torch.randint(1, 37, (2, 6), generator=torch.Generator().manual_seed(1))
    if info["name"] in COMPILED:
        kept_script.cache_clear()
        assert_compiled_equals(model.train(), model, [ids])
    kept_script.cache_clear()
    exported = torch.export.export(model.eval(), (ids,), strict=False).module()
    (found, gradients), (out, expected) = (result_and_gradients(module, module, ids) for module in (exported, model))
    assert torch.allclose(found, out, **tol.COMPILED_F32) and same(gradients, expected, tol.COMPILED_GRADIENT_F32)


def train(rank, port, folder):
    """One of two processes: FSDP2, layer by layer, which share one encoding."""
    torch.set_num_threads(1)  # those of the test's process are not in its fork
    roformer_cpp.register()
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder)
    for layer in model.roformer.encoder.layer:
        torch.distributed.fsdp.fully_shard(layer)
    torch.distributed.fsdp.fully_shard(model)
    own = slice(4 * rank, 4 * rank + 4)
    model(IDS[own], labels=LABELS[own]).loss.backward()
    grads = {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}
    if rank == 0:
        torch.save(grads, folder / "grads")
    torch.distributed.destroy_process_group()


def test_two_processes(model, tmp_path):
    model.save_pretrained(tmp_path)
    method = "spawn" if torch.cuda.is_available() else "fork"  # torch's threads for a GPU do not fork
    torch.multiprocessing.start_processes(train, (free_port(), tmp_path), nprocs=2, start_method=method)
    model(IDS, labels=LABELS).loss.backward()
    for name, grad in torch.load(tmp_path / "grads").items():
        assert_t4(grad, model.get_parameter(name).grad, name)
