"""RoFormer against transformers 5: outputs, losses and gradients of every head on random, perturbed models.

Weights are moved by N(0, 0.3), because the usual N(0, 0.02) makes attention nearly uniform and hides errors of the
rotation. The float64 oracle gets its sin|cos table in float64, since transformers keeps it in float32.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional

import roformer_cpp
import tolerances as tol

VOCAB, TYPES, LABELS = 53, 3, 5
MAX_POSITIONS = 40
HEADS = (
    "RoFormerModel",
    "RoFormerForMaskedLM",
    "RoFormerForCausalLM",
    "RoFormerForSequenceClassification",
    "RoFormerForMultipleChoice",
    "RoFormerForTokenClassification",
    "RoFormerForQuestionAnswering",
)
OUTPUTS = ("last_hidden_state", "logits", "start_logits", "end_logits")
# Head sizes 2, 6, 16 and 70; one to four heads; embedding_size above, below and equal to hidden_size; an odd length.
SHAPES = {
    "pairs-of-two": {"hidden_size": 8, "num_attention_heads": 4, "embedding_size": 8, "hidden_act": "gelu"},
    "narrow-embedding": {"hidden_size": 18, "num_attention_heads": 3, "embedding_size": 10, "rotary_value": True},
    "wide-embedding": {"hidden_size": 32, "num_attention_heads": 2, "embedding_size": 40, "hidden_act": "gelu_new"},
    "one-head": {
        "hidden_size": 70,
        "num_attention_heads": 1,
        "embedding_size": 70,
        "hidden_act": "relu",
        "rotary_value": True,
    },
}


def make_config(head, **changes):
    settings = {
        "vocab_size": VOCAB,
        "num_hidden_layers": 2,
        "intermediate_size": 37,
        "type_vocab_size": TYPES,
        "max_position_embeddings": MAX_POSITIONS,
        "num_labels": LABELS,
        "hidden_size": 24,
        "num_attention_heads": 2,
        "embedding_size": 24,
        "is_decoder": head == "RoFormerForCausalLM",
    }
    return transformers.RoFormerConfig(**(settings | changes))


def make_oracle(head, seed=0, **changes):
    """A perturbed transformers model in evaluation mode."""
    torch.manual_seed(seed)
    model = getattr(transformers, head)(make_config(head, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


def sinusoid_table(rows, dim):
    """[rows, dim] float64: sin of p * 10000^(-2i/dim) for i < dim/2, then cos (R-ABS-04)."""
    angles = np.arange(rows)[:, None] * 10000.0 ** (-2.0 * np.arange(dim // 2) / dim)
    return torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))


def set_table(oracle, table):
    embedding = oracle.base_model.encoder.embed_positions
    embedding.weight = torch.nn.Parameter(table.to(embedding.weight.dtype), requires_grad=False)


def to_double(oracle):
    oracle = oracle.double()
    embedding = oracle.base_model.encoder.embed_positions
    set_table(oracle, sinusoid_table(*embedding.weight.shape))
    return oracle


@dataclasses.dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor
    types: torch.Tensor
    num_choices: int = 1


def make_batch(head, padding="right", tokens=13, seed=1):
    """Four sequences with 0, 1, 4 and 7 tokens of padding."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCAB, (4, tokens), generator=generator)
    types = torch.randint(0, TYPES, (4, tokens), generator=generator)
    mask = torch.ones(4, tokens, dtype=torch.int64)
    for row, count in enumerate((0, 1, 4, 7)):
        if padding == "right" and count:
            mask[row, -count:] = 0
        elif padding == "left":
            mask[row, :count] = 0
    return Batch(ids * mask, mask, types, 2 if head == "RoFormerForMultipleChoice" else 1)


def oracle_outputs(oracle, batch):
    tensors = [batch.ids, batch.mask, batch.types]
    if batch.num_choices > 1:
        tensors = [t.reshape(-1, batch.num_choices, t.shape[1]) for t in tensors]
    out = oracle(input_ids=tensors[0], attention_mask=tensors[1], token_type_ids=tensors[2])
    names = {
        "last_hidden_state": "hidden",
        "logits": "logits",
        "start_logits": "start_logits",
        "end_logits": "end_logits",
    }
    return {ours: out[theirs] for theirs, ours in names.items() if theirs in out}


def our_outputs(model, batch):
    return model(batch.ids, batch.mask, token_type_ids=batch.types, num_choices=batch.num_choices)


def compared(value, batch, head):
    """Rows with a key to attend to: under a causal mask, left padding leaves some without (R-CONV-11)."""
    if head == "RoFormerForCausalLM":
        return value[batch.mask.bool()]
    return value


def loss_of(outputs, head, batch):
    """The loss that transformers computes for this head, with labels made from the inputs (R-HF-10 to R-HF-13)."""
    logits = outputs.get("logits")
    if head == "RoFormerModel":
        hidden = outputs["hidden"]
        return (hidden * torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).reshape(hidden.shape)).mean()
    if head == "RoFormerForMaskedLM":
        labels = torch.where((batch.ids % 3 == 1) & batch.mask.bool(), (batch.ids * 7) % VOCAB, -100)
        return functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))
    if head == "RoFormerForCausalLM":
        keep = (batch.mask[:, 1:] * batch.mask[:, :-1]).bool()
        labels = torch.where(keep, batch.ids[:, 1:], -100)
        return functional.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), labels.reshape(-1))
    if head == "RoFormerForQuestionAnswering":
        tokens = batch.ids.shape[1]
        start, end = batch.ids[:, 0] % tokens, torch.tensor([tokens, 3, tokens - 1, 0])
        ends = functional.cross_entropy(outputs["end_logits"], end, ignore_index=tokens)
        return (functional.cross_entropy(outputs["start_logits"], start, ignore_index=tokens) + ends) / 2
    if head == "RoFormerForTokenClassification":
        labels = torch.where(batch.mask.bool(), batch.ids % LABELS, -100)
        return functional.cross_entropy(logits.reshape(-1, LABELS), labels.reshape(-1))
    return functional.cross_entropy(logits, torch.arange(logits.shape[0]) % logits.shape[1])


def assert_close_model(ours, theirs):
    """T4: relative to the largest reference value."""
    difference, scale = (ours - theirs).abs(), theirs.abs().max()
    assert ours.shape == theirs.shape
    assert difference.max() <= tol.T4_MAX * scale
    assert difference.mean() <= tol.T4_MEAN * scale


def assert_close_double(ours, theirs):
    assert ours.dtype == torch.float64 and ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tol.MODEL_F64 * max(1.0, theirs.abs().max().item())


def oracle_gradients(oracle):
    """By the names of the checkpoint, in which a tied decoder is not listed."""
    return {name: p.grad for name, p in oracle.named_parameters() if p.requires_grad and p.grad is not None}


def assert_close_gradients(model, oracle, rtol):
    theirs = oracle_gradients(oracle)
    ours = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert ours.keys() == theirs.keys()
    largest = max(g.abs().max().item() for g in theirs.values())
    for name, gradient in theirs.items():
        scale = max(gradient.abs().max().item(), tol.GRADIENT_FLOOR * largest)
        assert (ours[name] - gradient).abs().max().item() <= rtol * scale, name


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_and_gradients(head, shape, tmp_path):
    oracle = make_oracle(head, **SHAPES[shape])
    oracle.save_pretrained(tmp_path)
    for dtype, padding in itertools.product(("float32", "float64"), ("right", "left")):
        oracle = to_double(oracle) if dtype == "float64" else oracle
        oracle.zero_grad()
        batch = make_batch(head, padding)
        model = roformer_cpp.load_model(tmp_path, dtype=dtype)
        assert model.head == head
        ours, theirs = our_outputs(model, batch), oracle_outputs(oracle, batch)
        assert theirs.keys() <= ours.keys()
        for name, value in theirs.items():
            close = assert_close_double if dtype == "float64" else assert_close_model
            close(compared(ours[name], batch, head), compared(value, batch, head))
        our_loss, their_loss = loss_of(ours, head, batch), loss_of(theirs, head, batch)
        assert abs(our_loss - their_loss) <= (tol.T1_ATOL if dtype == "float64" else tol.T4_MAX) * 10 * abs(their_loss)
        our_loss.backward()
        their_loss.backward()
        assert_close_gradients(model, oracle, tol.GRADIENT_F64 if dtype == "float64" else tol.GRADIENT_F32)


@pytest.mark.parametrize("head", ("RoFormerForMaskedLM", "RoFormerForCausalLM"))
def test_explicit_attention(head, tmp_path):
    """The path with dropout of probabilities, at a p that rounds to 0 of 65536: nothing is dropped."""
    oracle = to_double(make_oracle(head, attention_probs_dropout_prob=1e-6, hidden_dropout_prob=0.0, rotary_value=True))
    oracle.save_pretrained(tmp_path)
    batch = make_batch(head)
    model = roformer_cpp.load_model(tmp_path, dtype="float64").train()
    ours, theirs = our_outputs(model, batch), oracle_outputs(oracle, batch)
    assert_close_double(compared(ours["logits"], batch, head), compared(theirs["logits"], batch, head))
    loss_of(ours, head, batch).backward()
    loss_of(theirs, head, batch).backward()
    assert_close_gradients(model, oracle, tol.GRADIENT_F64)


def test_activations(tmp_path):
    """R-HF-06, the names that SHAPES leaves out."""
    for act in ("gelu_pytorch_tanh", "silu", "swish", "tanh"):
        oracle = make_oracle("RoFormerForSequenceClassification", hidden_act=act)
        oracle.save_pretrained(tmp_path)
        batch = make_batch("RoFormerForSequenceClassification")
        ours = our_outputs(roformer_cpp.load_model(tmp_path), batch)["logits"]
        assert_close_model(ours, oracle_outputs(oracle, batch)["logits"])


def weighted_mean(outputs, names):
    """A number that depends on every element of these outputs."""
    flat = torch.cat([outputs[name].flatten() for name in names])
    return (flat * torch.linspace(-1, 2, flat.numel(), dtype=flat.dtype)).mean()


@pytest.mark.parametrize("head", HEADS)
def test_unusual_settings(head, tmp_path):
    """What transformers permits and few models use: causal attention under any head and none under CausalLM, one token
    type, one label, another padding token, an untied decoder; one token, and right padding."""
    oracle = to_double(
        make_oracle(
            head,
            is_decoder=head != "RoFormerForCausalLM",
            type_vocab_size=1,
            num_labels=1,
            problem_type="regression",
            summary_type="first",
            pad_token_id=7,
            tie_word_embeddings=False,
            layer_norm_eps=1e-5,
        )
    )
    oracle.save_pretrained(tmp_path)
    for padding, tokens in (("none", 1), ("right", 13)):
        oracle.zero_grad()
        batch = make_batch(head, padding, tokens)
        batch = dataclasses.replace(batch, types=torch.zeros_like(batch.types))
        model = roformer_cpp.load_model(tmp_path, dtype="float64")
        ours, theirs = our_outputs(model, batch), oracle_outputs(oracle, batch)
        for name, value in theirs.items():
            assert_close_double(ours[name], value)
        weighted_mean(ours, theirs).backward()
        weighted_mean(theirs, theirs).backward()
        assert_close_gradients(model, oracle, tol.GRADIENT_F64)


def test_no_mask_no_types(tmp_path):
    oracle = make_oracle("RoFormerForMaskedLM")
    oracle.save_pretrained(tmp_path)
    ids = make_batch("RoFormerForMaskedLM", "none").ids
    model = roformer_cpp.load_model(tmp_path)
    logits = model(ids)["logits"]
    assert_close_model(logits, oracle(ids).logits)
    rows = model(ids)["hidden"][1, 2:5]
    assert_close_model(model.masked_lm_logits(rows), logits[1, 2:5])


def test_rotary_value_depends_on_absolute_position(tmp_path):
    """R-ROPE-11: left padding changes the outputs of the real tokens only when values are rotated."""
    ids = make_batch("RoFormerModel", "none").ids
    padded = torch.cat([torch.zeros(4, 3, dtype=torch.int64), ids], dim=1)
    mask = torch.cat([torch.zeros(4, 3, dtype=torch.int64), torch.ones_like(ids)], dim=1)
    for rotary_value in (False, True):
        make_oracle("RoFormerModel", rotary_value=rotary_value).save_pretrained(tmp_path)
        model = roformer_cpp.load_model(tmp_path, dtype="float64")
        shift = (model(padded, mask)["hidden"][:, 3:] - model(ids)["hidden"]).abs().max()
        assert (shift > tol.ROTARY_VALUE_SHIFT) == rotary_value


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("tied", (True, False))
def test_saved_directory_reopens(head, tied, tmp_path):
    """Every tensor survives load and save bit by bit, and transformers finds no key missing or too many."""
    changes = {"tie_word_embeddings": tied, "embedding_size": 16}
    if head == "RoFormerForCausalLM":
        changes |= {"add_cross_attention": True}
    oracle = make_oracle(head, **changes)
    oracle.save_pretrained(tmp_path / "theirs")
    roformer_cpp.load_model(tmp_path / "theirs").save(tmp_path / "ours")
    theirs = load_file(tmp_path / "theirs" / "model.safetensors")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    again, info = getattr(transformers, head).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.architectures == [head]
    if "add_cross_attention" in changes:
        return  # test_decoder_parity.py runs these
    batch = make_batch(head)
    ours, theirs = our_outputs(roformer_cpp.load_model(tmp_path / "ours"), batch), oracle_outputs(again.eval(), batch)
    for name, value in theirs.items():
        assert torch.equal(value, oracle_outputs(oracle, batch)[name])
        assert_close_model(compared(ours[name], batch, head), compared(value, batch, head))


def rewrite(model_dir, change):
    """Passes a checkpoint's tensors through `change`, as another program might have written them."""
    path = model_dir / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(tensors), path, metadata={"format": "pt"})


TIED = {
    "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
VARIANTS = {
    "without the position table": lambda t: {k: v for k, v in t.items() if "embed_positions" not in k},
    "with tied copies": lambda t: t | {copy: t[source].clone() for copy, source in TIED.items()},
    "with an unused projection": lambda t: t | {"roformer.embeddings_project.weight": torch.ones(24, 24)},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_checkpoint_variants(variant, tmp_path):
    head = "RoFormerForMaskedLM"
    oracle = make_oracle(head)
    oracle.save_pretrained(tmp_path)
    batch = make_batch(head)
    expected = our_outputs(roformer_cpp.load_model(tmp_path), batch)["logits"]
    rewrite(tmp_path, VARIANTS[variant])
    assert torch.equal(our_outputs(roformer_cpp.load_model(tmp_path), batch)["logits"], expected)


def test_bare_model_into_head_and_back(tmp_path):
    """A RoFormerModel's names lack the prefix; its weights fit a task model with a fresh head, and back."""
    bare = make_oracle("RoFormerModel")
    bare.save_pretrained(tmp_path / "bare")
    batch = make_batch("RoFormerForTokenClassification")
    model = roformer_cpp.load_model(tmp_path / "bare", "RoFormerForTokenClassification", allow_fresh_head=True)
    out = our_outputs(model, batch)
    assert out["logits"].shape == (4, 13, LABELS)
    assert_close_model(out["hidden"], oracle_outputs(bare, batch)["hidden"])
    with pytest.raises(RuntimeError, match="classifier"):
        roformer_cpp.load_model(tmp_path / "bare", "RoFormerForTokenClassification")
    model.save(tmp_path / "task")
    again = roformer_cpp.load_model(tmp_path / "task", "RoFormerModel")
    assert torch.equal(our_outputs(again, batch)["hidden"], out["hidden"])


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_files(dtype, tmp_path):
    """R-HF-01. Their position table is rounded too: it is used as stored, with a warning, as transformers does."""
    make_oracle("RoFormerForMaskedLM").to(dtype).save_pretrained(tmp_path)
    oracle = transformers.RoFormerForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with pytest.warns(
        UserWarning, match="embed_positions.* the stored one is used, and limits sequences to its 40 rows"
    ):
        model = roformer_cpp.load_model(tmp_path)
    batch = make_batch("RoFormerForMaskedLM")
    assert_close_model(our_outputs(model, batch)["logits"], oracle(batch.ids, batch.mask, batch.types).logits)
    with pytest.raises(ValueError, match="40 rows"):
        model(torch.ones(1, MAX_POSITIONS + 1, dtype=torch.int64))
    model.save(tmp_path / "again")
    stored = load_file(tmp_path / "again" / "model.safetensors")["roformer.encoder.embed_positions.weight"]
    assert torch.equal(stored, oracle.base_model.encoder.embed_positions.weight)


def test_sharded_checkpoint(tmp_path):
    oracle = make_oracle("RoFormerForMaskedLM")
    oracle.save_pretrained(tmp_path, max_shard_size="8KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    batch = make_batch("RoFormerForMaskedLM")
    assert_close_model(
        our_outputs(roformer_cpp.load_model(tmp_path), batch)["logits"], oracle_outputs(oracle, batch)["logits"]
    )


@pytest.mark.parametrize("rotary_value", (False, True))
def test_longer_than_the_table(rotary_value, tmp_path):
    """R-HF-08: transformers stops at max_position_embeddings; ours goes on as it would with a longer table."""
    oracle = make_oracle("RoFormerForMaskedLM", rotary_value=rotary_value)
    oracle.save_pretrained(tmp_path)
    batch = make_batch("RoFormerForMaskedLM", tokens=3 * MAX_POSITIONS + 1)
    set_table(oracle, sinusoid_table(batch.ids.shape[1], 12))
    ours = our_outputs(roformer_cpp.load_model(tmp_path), batch)["logits"]
    assert_close_model(ours, oracle_outputs(oracle, batch)["logits"])
    ours = our_outputs(roformer_cpp.load_model(tmp_path, dtype="float64"), batch)["logits"]
    oracle = oracle.double()
    set_table(oracle, sinusoid_table(batch.ids.shape[1], 12))
    assert_close_double(ours, oracle_outputs(oracle, batch)["logits"])
