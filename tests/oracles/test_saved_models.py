"""The table of tests/saved_models.py: a directory that transformers or sentence-transformers saved opens and gives what
the library that saved it computes, or is refused with the reason first."""

import numpy as np
import pytest
import torch
import transformers

import roformer_cpp
import saved_models
from cli_support import refused
from engine_case import assert_close
from rf_engine import Engine as RawEngine
from rotary_decoders import SAMPLES
from saved_models import CASES
from sentence_model import TEXTS
from tolerances import T4_MAX

MASKED = ["the [MASK] sat", "[MASK]", "a [MASK] of [MASK] words"]
PAIRS = [("abc de", "the cat"), ("a", "words and words"), ("", "x")]
NEW_TOKENS = 8


def encoded(folder, *texts):
    """Ids of texts by transformers' tokenizer of the directory."""
    if not (folder / "tokenizer.json").exists():
        tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))
    else:  # as the file says: AutoTokenizer takes Qwen2's expression for every qwen2
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return tokenizer, tokenizer(*map(list, texts), return_token_type_ids=True)


def outputs(model, encoding):
    """The model's output for each text alone, so that nothing is padded."""
    names = [name for name in ("input_ids", "token_type_ids") if name in encoding]
    with torch.no_grad():
        for row in zip(*(encoding[name] for name in names), strict=True):
            yield model(**{name: torch.tensor([values]) for name, values in zip(names, row, strict=True)})


def check_hidden(folder, model):
    _, encoding = encoded(folder, TEXTS)
    theirs = [output.last_hidden_state[0].numpy() for output in outputs(model, encoding)]
    engine = roformer_cpp.Engine(folder)
    for ours, states in zip(engine.encode(TEXTS), theirs, strict=True):
        assert_close(ours, states)
    assert_close(engine.embed(TEXTS), np.stack([states.mean(0) for states in theirs]))


def check_body(folder, model):
    """The vectors of the encoder below a head."""
    check_hidden(folder, model.base_model)


def check_fill_mask(folder, model):
    check_body(folder, model)
    tokenizer, encoding = encoded(folder, MASKED)
    mask = tokenizer.convert_tokens_to_ids("[MASK]")
    engine = roformer_cpp.Engine(folder, task="fill-mask")
    results = engine.fill_mask(MASKED, top_k=5)
    for ids, output, masks in zip(encoding["input_ids"], outputs(model, encoding), results, strict=True):
        logits = output.logits if "logits" in output else output.prediction_logits
        rows = logits[0][torch.tensor(ids) == mask].softmax(-1)
        assert len(rows) == len(masks) > 0
        for row, candidates in zip(rows, masks, strict=True):
            values, indices = row.topk(5)
            assert [candidate["id"] for candidate in candidates] == indices.tolist()
            assert [candidate["token"] for candidate in candidates] == tokenizer.convert_ids_to_tokens(indices.tolist())
            got = np.array([candidate["probability"] for candidate in candidates])
            assert np.abs(got - values.numpy()).max() <= T4_MAX


def check_generate(folder, model):
    is_bert = model.config.model_type in ("bert", "roformer")
    prompts = ["the cat", "a"] if is_bert else SAMPLES[:2]
    engine = roformer_cpp.Engine(folder, task="generate")
    tokenizer, encoding = encoded(folder, prompts)
    raw = RawEngine(folder)
    for ids, (result,) in zip(encoding["input_ids"], engine.generate(prompts, max_new_tokens=NEW_TOKENS), strict=True):
        ids = ids[:-1] if is_bert else ids  # without [SEP]
        theirs = greedy(
            model, ids, {tokenizer.convert_tokens_to_ids("[SEP]") if is_bert else model.config.eos_token_id}
        )
        assert result["ids"] == theirs
        with torch.no_grad():
            assert_close(raw.logits([ids + theirs]), model(torch.tensor([ids + theirs])).logits[0].numpy())


def greedy(model, ids, ends):
    new = []
    while len(new) < NEW_TOKENS and not (new and new[-1] in ends):
        with torch.no_grad():
            new.append(model(torch.tensor([ids + new])).logits[0, -1].argmax().item())
    return new


def check_logits(folder, model):
    """The numbers of a head: of single texts and of pairs."""
    check_body(folder, model)
    raw = RawEngine(folder)
    firsts, seconds = zip(*PAIRS, strict=True)
    for texts in ((firsts,), (firsts, seconds)):
        _, encoding = encoded(folder, *texts)
        ids, types = encoding["input_ids"], encoding["token_type_ids"]
        if "MultipleChoice" in type(model).__name__:
            theirs = [model(**choice(*row)).logits.detach().numpy() for row in zip(ids, types, strict=True)]
        else:
            theirs = [values(output) for output in outputs(model, encoding)]
        assert_close(raw.logits(ids, types=types), np.concatenate(theirs))


def check_classes(folder, model):
    check_logits(folder, model)
    _, encoding = encoded(folder, *zip(*PAIRS, strict=True))
    logits = [output.logits[0] for output in outputs(model, encoding)]
    results = roformer_cpp.Engine(folder).predict([{"text": a, "pair": b} for a, b in PAIRS])
    for row, result in zip(logits, results, strict=True):
        if model.config.problem_type == "regression":
            assert abs(result["score"] - row.item()) <= T4_MAX * max(abs(row).item(), 1)
            continue
        several = model.config.problem_type == "multi_label_classification"
        theirs = row.sigmoid() if several else row.softmax(-1)
        named = {model.config.id2label[i]: value for i, value in enumerate(theirs.tolist())}
        assert result["probabilities"].keys() == named.keys()
        assert all(abs(result["probabilities"][name] - value) <= T4_MAX for name, value in named.items())
        if several:
            assert set(result["labels"]) == {name for name, value in named.items() if value > 0.5}
        else:
            assert result["label"] == max(named, key=named.get)


def choice(ids, types):
    return {"input_ids": torch.tensor([[ids]]), "token_type_ids": torch.tensor([[types]])}


def values(output):
    if "start_logits" in output:
        return torch.stack([output.start_logits[0], output.end_logits[0]], -1).numpy()
    return output.logits[0].numpy() if output.logits.dim() == 3 else output.logits.numpy()


def check_sentences(folder, model):
    ours = roformer_cpp.SentenceTransformer(folder)
    assert_close(ours.encode(TEXTS), model.encode(TEXTS))
    texts = [text for text in TEXTS if text]
    for name in ours.prompts:
        if name in model.prompts:
            assert_close(ours.encode(texts, prompt_name=name), model.encode(texts, prompt_name=name))
    vectors = model.encode(texts)
    assert ours.similarity_fn_name == model.similarity_fn_name
    assert_close(ours.similarity(vectors, vectors), model.similarity(vectors, vectors).numpy())
    assert_close(roformer_cpp.Engine(folder).embed(TEXTS), model.encode(TEXTS))


CHECKS = {
    "hidden": check_hidden,
    "fill-mask": check_fill_mask,
    "generate": check_generate,
    "classes": check_classes,
    "logits": check_logits,
    "sentences": check_sentences,
}


@pytest.mark.parametrize("case", [c for c in CASES if c.opens], ids=lambda case: case.directory.replace("`", ""))
def test_opens_and_agrees(case, tmp_path):
    if case.group == saved_models.SENTENCES:
        pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
    CHECKS[case.opens](tmp_path / "model", case.make(tmp_path / "model"))


COMMANDS = {"embed": ["--text", "abc"], "generate": ["--prompt", "abc"]}


@pytest.mark.parametrize("case", [c for c in CASES if c.refusal], ids=lambda case: case.directory.replace("`", ""))
def test_is_refused_with_the_reason_first(case, tmp_path):
    case.make(tmp_path / "model")
    path = tmp_path / "model" / case.file
    message = refused(case.command, "--model", path, *COMMANDS[case.command])
    assert case.refusal in message.splitlines()[0]


def test_the_page_has_the_table():
    text = saved_models.PAGE.read_text(encoding="utf-8")
    assert text == saved_models.page(text), "python tests/saved_models.py writes it"


def test_the_table_is_whole():
    names = [case.directory for case in CASES]
    assert len(names) == len(set(names)) >= 40
    assert all((case.opens in CHECKS) != bool(case.refusal) for case in CASES)
