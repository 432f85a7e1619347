"""Every site of dropout against transformers in training mode, whose dropout is replaced by our operator with the
stream of the site: a site that is left out, has another share or the mask of another site changes the result. The
operator itself is tested in tests/ops/test_dropout.py against Philox in NumPy."""

import itertools

import pytest
import torch
import transformers

import roformer_cpp
import tolerances as tol
from parity_case import perturbed

SEED, STEP = 11, 5
LAYERS = 2
HIDDEN, PROBABILITIES, CLASSIFIER = 0.3, 0.2, 0.4  # a share of their own
SIZES = dict(vocab_size=53, hidden_size=24, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=37)
SIZES |= dict(hidden_dropout_prob=HIDDEN, attention_probs_dropout_prob=PROBABILITIES, num_labels=5)
SIZES |= dict(max_position_embeddings=40)
EMBEDDINGS, LAYER = [HIDDEN], [PROBABILITIES, HIDDEN, HIDDEN]
BODY = EMBEDDINGS + LAYER * LAYERS
CROSS = EMBEDDINGS + [PROBABILITIES, HIDDEN, PROBABILITIES, HIDDEN, HIDDEN] * LAYERS
# The sites of each class and what the task adds, in order.
CASES = {f"{family}{head}": BODY for family in ("RoFormer", "Bert") for head in ("Model", "ForMaskedLM")}
CASES |= {"RoFormerForMultipleChoice": BODY, "RoFormerForQuestionAnswering": BODY, "RoFormerForCausalLM": CROSS}
CASES |= {"RoFormerForTokenClassification": [*BODY, HIDDEN]}
CASES |= {"RoFormerForSequenceClassification": [*BODY, HIDDEN, HIDDEN]}
CASES |= {f"BertFor{task}": [*BODY, CLASSIFIER] for task in ("MultipleChoice", "SequenceClassification")}
CASES |= {"BertForTokenClassification": [*BODY, CLASSIFIER]}


def oracle_of(name):
    torch.manual_seed(1)
    causal = name == "RoFormerForCausalLM"
    options = SIZES | {"attn_implementation": "eager", "is_decoder": causal, "add_cross_attention": causal}
    if name.startswith("RoFormer"):  # transformers' has no share of its own for the head
        config = transformers.RoFormerConfig(**options)
    else:
        config = transformers.BertConfig(**options, classifier_dropout=CLASSIFIER)
    return perturbed(getattr(transformers, name)(config))


@pytest.mark.parametrize("name", CASES)
def test_each_site_has_its_share_and_its_own_mask(name, tmp_path, monkeypatch):
    oracle = oracle_of(name)
    oracle.save_pretrained(tmp_path)
    ours = roformer_cpp.load_model(tmp_path, name).train()
    shares, calls = [], itertools.count()

    def dropout(x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        shares.append(p)
        return torch.ops.roformer.dropout(x, p, SEED, STEP << 16 | next(calls))

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    ids = torch.arange(1, 53).view(4, 13)
    choices = 2 if name.endswith("MultipleChoice") else 1
    states = {"encoder_hidden": torch.randn(4, 6, 24)} if CASES[name] is CROSS else {}
    given = {f"{key}_states": value for key, value in states.items()}
    theirs = oracle.train()(ids.view(-1, choices, 13) if choices > 1 else ids, **given)
    out = ours(ids, num_choices=choices, dropout_key=(SEED, STEP), **states)
    pairs = {"last_hidden_state": "hidden", "logits": "logits", "start_logits": "start_logits"}
    compared = [(out[mine], theirs[his]) for his, mine in pairs.items() if his in theirs]
    assert compared and shares == CASES[name]
    for mine, his in compared:
        assert (mine - his.view_as(mine)).abs().max() <= tol.T4_MAX * his.abs().max()
