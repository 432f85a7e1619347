"""The table of tests/saved_models.py: a directory that transformers or sentence-transformers saved opens and gives what
the library that saved it computes, or is refused with the reason first."""

import json

import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import accuracy_score, f1_score

import roformer_cpp
import saved_models
from cli_support import refused, results
from engine_case import assert_close, assert_near
from rf_engine import Engine as RawEngine
from rotary_decoders import SAMPLES
from saved_model_makers import LABELS, MAX_LENGTH, NUMBER, SEVERAL, classifier, labels
from saved_models import CASES
from sentence_model import LETTERS, TEXTS

LONG = [" ".join(LETTERS[i * i % 26] for i in range(count)) for count in (70, 25)]  # longer than tokenizers take
ALL = [*TEXTS, *LONG]
MASKED = ["the [MASK] sat", "[MASK]", "a [MASK] of [MASK] words"]
PAIRS = [("abc de", "the cat"), ("a", "words and words"), ("", "x"), (LONG[0], "the cat"), ("abc de", LONG[1])]
RECORDS = [{"text": a, "pair": b} for a, b in PAIRS]
NEW_TOKENS = 8


def tokenizer_of(folder):
    """transformers' tokenizer of the directory. AutoTokenizer would take Qwen2's expression for every qwen2."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    options = {"model_max_length": min(settings.get("model_max_length", 64), 64)}
    options |= {"truncation_side": settings.get("truncation_side", "right")}
    if (folder / "tokenizer.json").exists():
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **options)
    return transformers.BertTokenizer(str(folder / "vocab.txt"), **options)


def encoded(folder, *texts, **options):
    """Ids of texts, or of pairs."""
    return tokenizer_of(folder)(*map(list, texts), truncation=True, return_token_type_ids=True, **options)


def outputs(model, encoding):
    """The model's output for each text alone, so that nothing is padded."""
    names = [name for name in ("input_ids", "token_type_ids") if name in encoding]
    with torch.no_grad():
        for row in zip(*(encoding[name] for name in names), strict=True):
            yield model(**{name: torch.tensor([values]) for name, values in zip(names, row, strict=True)})


def check_hidden(folder, model):
    """Also of texts that are cut, and of the encoder below a head."""
    theirs = [output.last_hidden_state[0].numpy() for output in outputs(model.base_model, encoded(folder, ALL))]
    engine = roformer_cpp.Engine(folder, task="embed")
    for ours, states in zip(engine.encode(ALL), theirs, strict=True):
        assert_close(ours, states)
    assert_close(engine.embed(ALL), np.stack([states.mean(0) for states in theirs]))


def check_fill_mask(folder, model):
    check_hidden(folder, model)
    tokenizer, encoding = tokenizer_of(folder), encoded(folder, MASKED)
    mask = tokenizer.convert_tokens_to_ids("[MASK]")
    found = roformer_cpp.Engine(folder, task="fill-mask").fill_mask(MASKED, top_k=5)
    for ids, output, masks in zip(encoding["input_ids"], outputs(model, encoding), found, strict=True):
        logits = output.logits if "logits" in output else output.prediction_logits
        rows = logits[0][torch.tensor(ids) == mask].softmax(-1)
        assert len(rows) == len(masks) > 0
        for row, candidates in zip(rows, masks, strict=True):
            values, indices = row.topk(5)
            assert [candidate["id"] for candidate in candidates] == indices.tolist()
            assert [candidate["token"] for candidate in candidates] == tokenizer.convert_ids_to_tokens(indices.tolist())
            assert_near([candidate["probability"] for candidate in candidates], values)


def check_generate(folder, model):
    is_bert = model.config.model_type in ("bert", "roformer")
    prompts = ["the cat", "a"] if is_bert else SAMPLES[:2]
    engine, raw = roformer_cpp.Engine(folder, task="generate"), RawEngine(folder)
    end = tokenizer_of(folder).convert_tokens_to_ids("[SEP]") if is_bert else model.config.eos_token_id
    rows = encoded(folder, prompts)["input_ids"]
    for ids, (result,) in zip(rows, engine.generate(prompts, max_new_tokens=NEW_TOKENS), strict=True):
        ids = ids[:-1] if is_bert else ids  # without [SEP]
        theirs = greedy(model, ids, end)
        assert result["ids"] == theirs
        with torch.no_grad():
            assert_close(raw.logits([ids + theirs]), model(torch.tensor([ids + theirs])).logits[0].numpy())


def greedy(model, ids, end):
    new = []
    while len(new) < NEW_TOKENS and end not in new:
        with torch.no_grad():
            new.append(model(torch.tensor([ids + new])).logits[0, -1].argmax().item())
    return new


def check_logits(folder, model):
    """The numbers of a head: of single texts and of pairs."""
    check_hidden(folder, model)
    raw = RawEngine(folder)
    for texts in ((ALL,), tuple(zip(*PAIRS, strict=True))):
        encoding = encoded(folder, *texts)
        theirs = [values(output) for output in outputs(model, encoding)]
        assert_close(raw.logits(encoding["input_ids"], types=encoding["token_type_ids"]), np.concatenate(theirs))


def values(output):
    if "start_logits" in output:
        return torch.stack([output.start_logits[0], output.end_logits[0]], -1).numpy()
    return output.logits[0].numpy() if output.logits.dim() == 3 else output.logits.numpy()


def check_classes(folder, model):
    """As transformers' pipeline: softmax, of several labels or one label sigmoid, of a regression nothing."""
    check_logits(folder, model)
    config, engine = model.config, roformer_cpp.Engine(folder)
    for records, texts in ((ALL, (ALL,)), (RECORDS, zip(*PAIRS, strict=True))):
        theirs = [output.logits[0].double() for output in outputs(model, encoded(folder, *texts))]
        for line, x in zip(engine.predict(records), theirs, strict=True):
            if config.num_labels == 1:
                assert_near(line["score"], (x if config.problem_type == NUMBER else x.sigmoid())[0])
                continue
            p = x.sigmoid() if config.problem_type == SEVERAL else x.softmax(-1)
            named = {config.id2label[i]: value for i, value in enumerate(p.tolist())}
            assert line["probabilities"].keys() == named.keys()
            assert_near([line["probabilities"][name] for name in named], p)
            if config.problem_type == SEVERAL:
                assert set(line["labels"]) == {name for name, value in named.items() if value > 0.5}
            else:
                assert line["label"] == max(named, key=named.get)


def check_tokens(folder, model):
    """The label of a word is that of its first piece."""
    check_logits(folder, model)
    words = [text.split() for text in TEXTS if text.strip()]
    encoding = encoded(folder, words, is_split_into_words=True)
    found = roformer_cpp.Engine(folder).predict([{"tokens": row} for row in words])
    for i, (line, output) in enumerate(zip(found, outputs(model, encoding), strict=True)):
        best, of_word = output.logits[0].argmax(-1).tolist(), encoding.word_ids(i)
        seen = sorted({word for word in of_word if word is not None})
        assert line["labels"][: len(seen)] == [model.config.id2label[best[of_word.index(word)]] for word in seen]


def check_answers(folder, model):
    """The best span of the context, whose words have one token each."""
    check_logits(folder, model)
    pairs = [("a b", "c"), ("a b", "c d e f g h"), ("", "a b c d")]
    found = roformer_cpp.Engine(folder).predict([{"question": a, "context": b} for a, b in pairs])
    theirs = outputs(model, encoded(folder, *zip(*pairs, strict=True)))
    for (question, context), line, output in zip(pairs, found, theirs, strict=True):
        words, first = context.split(), len(question.split()) + 2
        start, end = output.start_logits[0][first:], output.end_logits[0][first:]
        spans = [(i, j) for i in range(len(words)) for j in range(i, len(words))]
        i, j = max(spans, key=lambda span: start[span[0]] + end[span[1]])
        assert line["answer"] == " ".join(words[i : j + 1])
        assert_near(line["candidates"][0]["score"], start[i] + end[j])


def choice_logits(model, encoding):
    """[choices, 1]"""
    with torch.no_grad():
        rows = zip(encoding["input_ids"], encoding["token_type_ids"], strict=True)
        return torch.cat([model(torch.tensor([[i]]), token_type_ids=torch.tensor([[t]])).logits for i, t in rows])


def check_choices(folder, model):
    check_hidden(folder, model)
    encoding = encoded(folder, *zip(*[(TEXTS[2], choice) for choice in ALL], strict=True))
    logits = choice_logits(model, encoding)
    assert_close(RawEngine(folder).logits(encoding["input_ids"], types=encoding["token_type_ids"]), logits.numpy())
    (line,) = roformer_cpp.Engine(folder).predict([{"text": TEXTS[2], "choices": ALL}])
    assert_near(line["probabilities"], logits[:, 0].double().softmax(0))


def check_sentences(folder, model):
    ours = roformer_cpp.SentenceTransformer(folder)
    assert_close(ours.encode(ALL), model.encode(ALL))
    texts = [text for text in ALL if text]
    for name in ours.prompts:
        if name in model.prompts:
            assert_close(ours.encode(texts, prompt_name=name), model.encode(texts, prompt_name=name))
    vectors = model.encode(texts)
    assert ours.similarity_fn_name == model.similarity_fn_name
    assert_close(ours.similarity(vectors, vectors), model.similarity(vectors, vectors).numpy())
    assert_close(roformer_cpp.Engine(folder).embed(ALL), model.encode(ALL))


CALLS = [
    {"activation_fn": torch.nn.Tanh(), "show_progress_bar": False, "num_workers": 2},
    {"activation_fn": torch.nn.Identity(), "convert_to_tensor": True},
    {"activation_fn": lambda logits: logits / 7 + 1, "convert_to_numpy": False},
    {"activation_fn": torch.nn.LeakyReLU(0.5), "apply_softmax": True, "device": "cpu"},
]


def check_scores(folder, model):
    ours = roformer_cpp.CrossEncoder(folder)
    assert ours.max_seq_length == model.max_seq_length == MAX_LENGTH
    assert_near(ours.predict(PAIRS), model.predict(PAIRS))
    assert_near(ours.predict(PAIRS[0]), model.predict(PAIRS[0]))
    for options in CALLS:
        mine, theirs = (x.predict(PAIRS, **options) for x in (ours, model))
        assert type(mine) is type(theirs) and type(mine[0]) is type(theirs[0])
        assert_near(torch.stack(mine) if isinstance(mine, list) else mine, np.stack([np.asarray(x) for x in theirs]))
    if model.num_labels > 1:
        softmax = model.predict(PAIRS, apply_softmax=True)
        assert_near(ours.predict(PAIRS, apply_softmax=True), softmax)
        labels = model.config.id2label.values()
        predicted = roformer_cpp.Engine(folder).predict(RECORDS)
        assert_near([[x["probabilities"][label] for label in labels] for x in predicted], softmax)
        return
    mine, theirs = (x.rank(TEXTS[2], ALL, top_k=4, return_documents=True) for x in (ours, model))
    for key in ("corpus_id", "text"):
        assert [x[key] for x in mine] == [x[key] for x in theirs]
    assert_near([x["score"] for x in mine], [x["score"] for x in theirs])
    options = {"activation_fn": torch.nn.Tanh(), "show_progress_bar": False, "device": "cpu"}
    options |= {"num_workers": 2, "convert_to_tensor": True, "convert_to_numpy": False, "apply_softmax": True}
    mine, theirs = (x.rank(TEXTS[2], ALL, **options) for x in (ours, model))
    assert_near([x["score"] for x in mine], [x["score"] for x in theirs])
    assert_near([x["score"] for x in roformer_cpp.Engine(folder).predict(RECORDS)], model.predict(PAIRS))
    path = folder / "sentence_bert_config.json"
    if path.exists():
        path.write_text(json.dumps(json.loads(path.read_text()) | {"max_seq_length": 9}))
        short = type(model)(str(folder), device="cpu")
        assert_near(roformer_cpp.CrossEncoder(folder).predict(PAIRS), short.predict(PAIRS))


CHECKS = {"hidden": check_hidden, "fill-mask": check_fill_mask, "generate": check_generate, "classes": check_classes}
CHECKS |= {"tokens": check_tokens, "answers": check_answers, "choices": check_choices, "sentences": check_sentences}
CHECKS |= {"scores": check_scores}


def name_of(case):
    return case.directory.replace("`", "")


@pytest.mark.parametrize("case", [c for c in CASES if c.opens], ids=name_of)
def test_opens_and_agrees(case, tmp_path):
    if case.opens in ("sentences", "scores"):
        pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
    CHECKS[case.opens](tmp_path / "model", case.make(tmp_path / "model"))


COMMANDS = {"embed": ["--text", "abc"], "generate": ["--prompt", "abc"], "predict": ["--text", "abc"]}
COMMANDS |= {"rerank": ["--query", "abc", "--text", "de"]}


@pytest.mark.parametrize("case", [c for c in CASES if c.refusal], ids=name_of)
def test_is_refused_with_the_reason_first(case, tmp_path):
    case.make(tmp_path / "model")
    path = tmp_path / "model" / case.file
    message = refused(case.command, "--model", path, *COMMANDS[case.command])
    assert case.refusal in message.splitlines()[0]
    if case.command == "rerank":
        with pytest.raises((RuntimeError, ValueError)) as caught:
            roformer_cpp.CrossEncoder(path)
        assert case.refusal in str(caught.value)


def evaluated(folder, records):
    """What `roformer evaluate` says of records."""
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return results("evaluate", "--model", folder, "--input", folder / "records.jsonl")[0]


def logits_of(folder, config, count):
    """Of transformers, for the first texts."""
    model = classifier(**config)(folder)
    return torch.cat([output.logits for output in outputs(model, encoded(folder, ALL[:count]))]).double()


@pytest.mark.parametrize("written", [str, LABELS.index, lambda name: str(LABELS.index(name))])
def test_evaluate_several_labels(tmp_path, written):
    """By their names or their ids."""
    gold = [["bad"], ["good", "fair"], [], ["bad", "fair"]]
    x = logits_of(tmp_path, labels(LABELS, SEVERAL), len(gold))
    records = [{"text": text, "labels": list(map(written, names))} for text, names in zip(ALL, gold, strict=False)]
    line = evaluated(tmp_path, records)
    wanted = torch.tensor([[name in names for name in LABELS] for names in gold])
    assert_near(line["loss"], torch.nn.functional.binary_cross_entropy_with_logits(x, wanted.double()))
    assert line["accuracy"] == accuracy_score(wanted, x > 0)
    assert_near(line["f1"], f1_score(wanted, x > 0, average="micro"))


def test_evaluate_by_ids_of_labels(tmp_path):
    gold = torch.tensor([2, 0, 1, 1])
    x = logits_of(tmp_path, labels(LABELS), len(gold))
    line = evaluated(tmp_path, [{"text": t, "label": i} for t, i in zip(ALL, (2, "0", "good", 1), strict=False)])
    assert_near(line["loss"], torch.nn.functional.cross_entropy(x, gold))
    assert line["accuracy"] == (x.argmax(-1) == gold).double().mean()


def made(folder, opens):
    return next(case for case in CASES if case.opens == opens).make(folder)


def test_evaluate_tokens_by_ids_of_labels(tmp_path):
    model = made(tmp_path, "tokens")
    words = [["a", "b", "c"], ["d"], ["e", "a"]]
    theirs = outputs(model, encoded(tmp_path, words, is_split_into_words=True))
    best = [output.logits[0, 1:-1].argmax(-1) for output in theirs]
    for shift, accuracy in ((0, 1), (1, 0)):
        gold = [((ids + shift) % model.config.num_labels).tolist() for ids in best]
        records = [{"tokens": row, "labels": ids} for row, ids in zip(words, gold, strict=True)]
        assert evaluated(tmp_path, records)["accuracy"] == accuracy
    (tmp_path / "records.jsonl").write_text('{"tokens": ["a"], "labels": [[1]]}\n')
    message = refused("evaluate", "--model", tmp_path, "--input", tmp_path / "records.jsonl")
    assert "records.jsonl line 1 must have labels in labels" in message


def test_evaluate_choices_by_ids(tmp_path):
    model = made(tmp_path, "choices")
    records = []
    for text, choices in (("a", ["b", "c d", "e"]), ("a b c", ["d", "x y"])):
        logits = choice_logits(model, encoded(tmp_path, [text] * len(choices), choices))
        records.append({"text": text, "choices": choices, "label": int(logits.argmax())})
    for written in (int, str):
        rows = [record | {"label": written(record["label"])} for record in records]
        assert evaluated(tmp_path, rows)["accuracy"] == 1


def test_the_page_has_the_table():
    text = saved_models.PAGE.read_text(encoding="utf-8")
    assert text == saved_models.page(text), "python tests/saved_models.py writes it"
