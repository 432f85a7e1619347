"""RoFormer against transformers 5: outputs and gradients of every head on random, perturbed models.

The float64 oracle gets its sin|cos table in float64, since transformers keeps it in float32.
"""

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import engine_case
import roformer_cpp
import tolerances as tol
from engine_case import LABELS
from parity_case import assert_close, assert_close_gradients, exact_table, gradients_of, make_batch, weighted_mean

MAX_POSITIONS = 40
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForCausalLM",
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
OUTPUTS = {"last_hidden_state": "hidden", **{name: name for name in ("logits", "start_logits", "end_logits")}}
# Head sizes 2, 6, 16 and 70; one to four heads; embedding_size above, below and equal to hidden_size; an odd length.
SHAPES = {
    "pairs-of-two": dict(hidden_size=8, num_attention_heads=4, embedding_size=8, hidden_act="gelu"),
    "narrow-embedding": dict(hidden_size=18, num_attention_heads=3, embedding_size=10, rotary_value=True),
    "wide-embedding": dict(hidden_size=32, num_attention_heads=2, embedding_size=40, hidden_act="gelu_new"),
    "one-head": dict(hidden_size=70, num_attention_heads=1, embedding_size=70, hidden_act="relu", rotary_value=True),
}
# Every head, and every shape both with and without a causal mask.
PAIRS = [(head, list(SHAPES)[i % 4]) for i, head in enumerate(HEADS)]
PAIRS += [(head, shape) for head in ("ForMaskedLM", "ForCausalLM") for shape in SHAPES if (head, shape) not in PAIRS]


def make_oracle(head, **changes):
    sizes = dict(num_hidden_layers=2, max_position_embeddings=MAX_POSITIONS, is_decoder=head == "ForCausalLM")
    return engine_case.make_oracle("RoFormer", head, **(sizes | changes))


def saved_oracle(folder, head="ForMaskedLM", **changes):
    oracle = make_oracle(head, **changes)
    oracle.save_pretrained(folder)
    return oracle


def both_outputs(model, oracle, batch, compared=None):
    """Ours and theirs, as lists, where `compared` is true [B,T]."""
    choices = 2 if type(oracle).__name__.endswith("ForMultipleChoice") else 1
    theirs = [x.reshape(-1, choices, x.shape[1]) if choices > 1 else x for x in batch]
    theirs = oracle(input_ids=theirs[0], attention_mask=theirs[1], token_type_ids=theirs[2])
    ours = model(*batch[:2], token_type_ids=batch[2], num_choices=choices)
    pairs = [(ours[OUTPUTS[name]], theirs[name]) for name in OUTPUTS if name in theirs]
    assert pairs
    return zip(*([x if compared is None else x[compared] for x in pair] for pair in pairs), strict=True)


def check(model, oracle, batch, gradients=True, compared=None):
    oracle.zero_grad()
    ours, theirs = both_outputs(model, oracle, batch, compared)
    for pair in zip(ours, theirs, strict=True):
        assert_close(*pair)
    if gradients:
        weighted_mean(ours).backward()
        weighted_mean(theirs).backward()
        assert_close_gradients(gradients_of(model), gradients_of(oracle))


@pytest.mark.parametrize(("head", "shape"), PAIRS)
def test_forward_and_gradients(head, shape, tmp_path):
    oracle = saved_oracle(tmp_path, head, **SHAPES[shape])
    for dtype, padding in (("float32", "left"), ("float64", "right"), ("float64", "left")):
        oracle = exact_table(oracle.double()) if dtype == "float64" else oracle
        batch = make_batch(padding)
        model = roformer_cpp.load_model(tmp_path, dtype=dtype)
        assert model.head == f"RoFormer{head}"
        # Under a causal mask, left padding leaves rows without a key (R-CONV-11).
        check(model, oracle, batch, compared=batch[1].bool() if head == "ForCausalLM" else None)


@pytest.mark.parametrize("head", ("ForMaskedLM", "ForCausalLM"))
def test_explicit_attention(head, tmp_path):
    """The path with dropout of probabilities, at a p that rounds to 0 of 65536: nothing is dropped."""
    changes = dict(attention_probs_dropout_prob=1e-6, hidden_dropout_prob=0.0, rotary_value=True)
    oracle = exact_table(saved_oracle(tmp_path, head, **changes).double())
    check(roformer_cpp.load_model(tmp_path, dtype="float64").train(), oracle, make_batch())


def test_activations(tmp_path):
    """R-HF-06, the names that SHAPES leaves out."""
    for act in ("gelu_pytorch_tanh", "silu", "swish", "tanh"):
        oracle = saved_oracle(tmp_path, "ForSequenceClassification", hidden_act=act)
        check(roformer_cpp.load_model(tmp_path), oracle, make_batch(), gradients=False)


@pytest.mark.parametrize("head", HEADS)
def test_unusual_settings(head, tmp_path):
    """What transformers permits and few models use: causal attention under any head and none under CausalLM, one token
    type, one label, another padding token, an untied decoder; one token, and right padding."""
    oracle = saved_oracle(
        tmp_path,
        head,
        is_decoder=head != "ForCausalLM",
        type_vocab_size=1,
        num_labels=1,
        problem_type="regression",
        summary_type="first",
        pad_token_id=7,
        tie_word_embeddings=False,
        layer_norm_eps=1e-5,
    )
    oracle = exact_table(oracle.double())
    for padding, tokens in (("none", 1), ("right", 13)):
        ids, mask, types = make_batch(padding, tokens)
        check(roformer_cpp.load_model(tmp_path, dtype="float64"), oracle, (ids, mask, torch.zeros_like(types)))


def test_no_mask_no_types(tmp_path):
    oracle = saved_oracle(tmp_path)
    ids, _, _ = make_batch("none")
    model = roformer_cpp.load_model(tmp_path)
    out = model(ids)
    assert_close(out["logits"], oracle(ids).logits)
    assert_close(model.masked_lm_logits(out["hidden"][1, 2:5]), out["logits"][1, 2:5])


def test_rotary_value_depends_on_absolute_position(tmp_path):
    """R-ROPE-11: left padding changes the outputs of the real tokens only when values are rotated."""
    ids, mask, _ = make_batch("none")
    padded, padded_mask = (torch.nn.functional.pad(x, (3, 0)) for x in (ids, mask))
    for rotary_value in (False, True):
        saved_oracle(tmp_path, "Model", rotary_value=rotary_value)
        model = roformer_cpp.load_model(tmp_path, dtype="float64")
        shift = (model(padded, padded_mask)["hidden"][:, 3:] - model(ids)["hidden"]).abs().max()
        assert (shift > tol.ROTARY_VALUE_SHIFT) == rotary_value


@pytest.mark.parametrize(("head", "tied"), [*((head, True) for head in HEADS), ("ForMaskedLM", False)])
def test_saved_directory_reopens(head, tied, tmp_path):
    """Every tensor survives load and save bit by bit, and transformers finds no key missing or too many."""
    cross = {"add_cross_attention": True} if head == "ForCausalLM" else {}
    oracle = saved_oracle(tmp_path / "theirs", head, tie_word_embeddings=tied, embedding_size=16, **cross)
    roformer_cpp.load_model(tmp_path / "theirs").save(tmp_path / "ours")
    theirs = load_file(tmp_path / "theirs" / "model.safetensors")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    again, info = getattr(transformers, f"RoFormer{head}").from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.architectures == [f"RoFormer{head}"]
    if not cross:  # test_decoder_parity.py runs these
        check(roformer_cpp.load_model(tmp_path / "ours"), oracle, make_batch(), gradients=False)


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
    saved_oracle(tmp_path)
    ids, mask, _ = make_batch()
    expected = roformer_cpp.load_model(tmp_path)(ids, mask)["logits"]
    rewrite(tmp_path, VARIANTS[variant])
    assert torch.equal(roformer_cpp.load_model(tmp_path)(ids, mask)["logits"], expected)


def test_bare_model_into_head_and_back(tmp_path):
    """A RoFormerModel's names lack the prefix; its weights fit a task model with a fresh head, and back."""
    bare, head = saved_oracle(tmp_path / "bare", "Model"), "RoFormerForTokenClassification"
    ids, mask, types = make_batch()
    model = roformer_cpp.load_model(tmp_path / "bare", head, allow_fresh_head=True)
    out = model(ids, mask, token_type_ids=types)
    assert out["logits"].shape == (4, 13, LABELS)
    assert_close(out["hidden"], bare(ids, mask, types).last_hidden_state)
    with pytest.raises(RuntimeError, match="classifier"):
        roformer_cpp.load_model(tmp_path / "bare", head)
    model.save(tmp_path / "task")
    again = roformer_cpp.load_model(tmp_path / "task", "RoFormerModel")
    assert torch.equal(again(ids, mask, token_type_ids=types)["hidden"], out["hidden"])


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_files(dtype, tmp_path):
    """R-HF-01. Their position table is rounded too: it is used as stored, with a warning, as transformers does."""
    make_oracle("ForMaskedLM").to(dtype).save_pretrained(tmp_path)
    oracle = transformers.RoFormerForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with pytest.warns(
        UserWarning, match="embed_positions.* the stored one is used, and limits sequences to its 40 rows"
    ):
        model = roformer_cpp.load_model(tmp_path)
    check(model, oracle, make_batch(), gradients=False)
    with pytest.raises(ValueError, match="40 rows"):
        model(torch.ones(1, MAX_POSITIONS + 1, dtype=torch.int64))
    model.save(tmp_path / "again")
    stored = load_file(tmp_path / "again" / "model.safetensors")["roformer.encoder.embed_positions.weight"]
    assert torch.equal(stored, oracle.base_model.encoder.embed_positions.weight)


def test_sharded_checkpoint(tmp_path):
    oracle = make_oracle("ForMaskedLM")
    oracle.save_pretrained(tmp_path, max_shard_size="8KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    check(roformer_cpp.load_model(tmp_path), oracle, make_batch(), gradients=False)


@pytest.mark.parametrize("rotary_value", (False, True))
def test_longer_than_the_table(rotary_value, tmp_path):
    """R-HF-08: transformers stops at max_position_embeddings; ours continues as it would with a longer table."""
    oracle = saved_oracle(tmp_path, rotary_value=rotary_value)
    batch = make_batch(tokens=3 * MAX_POSITIONS + 1)
    for dtype in ("float32", "float64"):
        oracle = exact_table(oracle.to(getattr(torch, dtype)), rows=batch[0].shape[1])
        check(roformer_cpp.load_model(tmp_path, dtype=dtype), oracle, batch, gradients=False)
