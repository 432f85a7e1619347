"""Model directories as transformers and sentence-transformers save them, opened without a file of ours: every head,
every saved form, and the files of three versions of sentence-transformers. A directory's results are those of the
program that made it, or it is refused with the reason first. docs/model-directories.md has the rows of TABLE."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from sklearn.metrics import accuracy_score, f1_score

import roformer_cpp
from cli_support import results
from engine_case import SIZES, make_oracle
from tolerances import T4_MAX

sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer import modules as st_modules  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "model-directories.md"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(56))]
RNG = np.random.default_rng(5)
TEXTS = [" ".join(RNG.choice(WORDS[5:], n)) for n in (1, 4, 9, 14)]
LONG = [" ".join(RNG.choice(WORDS[5:], n)) for n in (40, 25)]
PAIRS = [(TEXTS[i], TEXTS[j]) for i in (0, 2, 3) for j in (1, 2)] + [(LONG[0], TEXTS[2]), (TEXTS[1], LONG[1])]
SMALL = {"vocab_size": len(WORDS), "type_vocab_size": 2, "num_hidden_layers": 2}
NAMES = {0: "sad", 1: "glad", 2: "mixed"}
ACTIVATION = "torch.nn.modules.activation."


def save(folder, family, head, files=("vocab.txt", "tokenizer.json"), side="right", form=None, **config):
    """A directory that transformers saved."""
    model = make_oracle(family, head, **(SMALL | config))
    model.to(form if isinstance(form, torch.dtype) else torch.float32)
    model.save_pretrained(folder, **({"max_shard_size": "8KB"} if form == "shards" else {}))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=24, truncation_side=side)
    tokenizer.save_pretrained(folder)
    for name in {"vocab.txt", "tokenizer.json"} - set(files):
        (folder / name).unlink()
    return model.float().eval(), tokenizer


def change(path, **keys):
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def logits(model, tokenizer, *texts, **options):
    encoded = tokenizer(*texts, return_tensors="pt", truncation=True, max_length=24, **options)
    with torch.no_grad():
        return model(**encoded)


def close(ours, theirs):
    theirs = np.asarray(theirs)
    assert np.abs(np.asarray(ours) - theirs).max() <= T4_MAX * max(1, np.abs(theirs).max()), (ours, theirs)


# ---- transformers: heads


def classes(folder, family, **config):
    """transformers' pipeline: softmax, of several labels or one label sigmoid, of a regression nothing."""
    model, tokenizer = save(folder, family, "ForSequenceClassification", **config)
    label_of, problem, count = model.config.id2label, model.config.problem_type, model.config.num_labels
    engine = roformer_cpp.Engine(folder)
    records = [*TEXTS, *({"text": a, "pair": b} for a, b in PAIRS), LONG[0]]
    for record, line in zip(records, engine.predict(records), strict=True):
        texts = [record] if isinstance(record, str) else [record["text"], record["pair"]]
        x = logits(model, tokenizer, *texts).logits[0].double()
        if count == 1:
            close(line["score"], (x if problem == "regression" else x.sigmoid())[0])
            continue
        p = x.sigmoid() if problem == "multi_label_classification" else x.softmax(0)
        close([line["probabilities"][label_of[i]] for i in range(count)], p)
        if problem == "multi_label_classification":
            assert line["labels"] == [label_of[i] for i in range(count) if p[i] > 0.5]
        else:
            assert line["label"] == label_of[int(p.argmax())]


def tokens(folder, family, **config):
    model, tokenizer = save(folder, family, "ForTokenClassification", **config)
    words = [text.split() for text in TEXTS]
    for row, line in zip(words, roformer_cpp.Engine(folder).predict([{"tokens": x} for x in words]), strict=True):
        best = logits(model, tokenizer, row, is_split_into_words=True).logits[0, 1:-1].argmax(-1).tolist()
        assert line["labels"] == [model.config.id2label[i] for i in best]


def answers(folder, family, **config):
    model, tokenizer = save(folder, family, "ForQuestionAnswering", **config)
    records = [{"question": TEXTS[1], "context": context} for context in TEXTS]
    for record, line in zip(records, roformer_cpp.Engine(folder).predict(records), strict=True):
        output = logits(model, tokenizer, record["question"], record["context"])
        words, first = record["context"].split(), len(record["question"].split()) + 2
        start, end = output.start_logits[0], output.end_logits[0]
        spans = [(i, j) for i in range(len(words)) for j in range(i, len(words))]
        i, j = max(spans, key=lambda x: start[first + x[0]] + end[first + x[1]])
        assert line["answer"] == " ".join(words[i : j + 1])
        close(line["candidates"][0]["score"], start[first + i] + end[first + j])


def choices(folder, family, **config):
    model, tokenizer = save(folder, family, "ForMultipleChoice", **config)
    (line,) = roformer_cpp.Engine(folder).predict([{"text": TEXTS[2], "choices": TEXTS}])
    rows = [tokenizer(TEXTS[2], choice, return_tensors="pt", truncation=True, max_length=24) for choice in TEXTS]
    with torch.no_grad():
        theirs = [model(**{key: value[None] for key, value in row.items()}).logits[0, 0].double() for row in rows]
    close(line["probabilities"], torch.stack(theirs).softmax(0))


def bare(folder, family, head="Model", **config):
    """Vectors: the mean of the last hidden states, also under a head."""
    model, tokenizer = save(folder, family, head, **config)
    encoder = getattr(model, model.base_model_prefix, model)
    theirs = [logits(encoder, tokenizer, text).last_hidden_state[0].mean(0).numpy() for text in (*TEXTS, *LONG)]
    close(roformer_cpp.Engine(folder, task="embed").embed([*TEXTS, *LONG]), theirs)


def masks(folder, family):
    model, tokenizer = save(folder, family, "ForMaskedLM")
    text = f"{TEXTS[1]} [MASK] {TEXTS[0]}"
    theirs = logits(model, tokenizer, text).logits[0, len(TEXTS[1].split()) + 1].double().softmax(0).topk(5)
    (mask,) = roformer_cpp.Engine(folder).fill_mask(text)
    assert [candidate["id"] for candidate in mask] == theirs.indices.tolist()
    close([candidate["probability"] for candidate in mask], theirs.values)


# ---- sentence-transformers: vectors and scores, as three versions save them


def sentences(folder, version, steps=()):
    """steps: modules after the encoder. The files of versions 3 and 5 are what these versions write."""
    save(folder / "encoder", "Bert", "Model")
    torch.manual_seed(4)
    made = {"mean": lambda: st_modules.Pooling(24, pooling_mode="mean"),
            "cls": lambda: st_modules.Pooling(24, pooling_mode="cls"),
            "dense": lambda: st_modules.Dense(24, 8), "normalize": st_modules.Normalize}  # fmt: skip
    encoder = st_modules.Transformer(str(folder / "encoder"), max_seq_length=12)
    prompts = {"query": "w1 w2 ", "document": ""}
    model = SentenceTransformer(modules=[encoder, *(made[step]() for step in steps)], prompts=prompts)
    model.save(str(folder / "saved"))
    folder = folder / "saved"
    if version < 6:
        entries = json.loads((folder / "modules.json").read_text())
        for entry in entries:
            entry["type"] = "sentence_transformers.models." + entry["type"].rpartition(".")[2]
        (folder / "modules.json").write_text(json.dumps(entries))
        modes = {f"pooling_mode_{name}": f"pooling_mode_{steps[0]}_" in f"pooling_mode_{name}"
                 for name in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens",
                              "lasttoken")} | {"pooling_mode_mean_sqrt_len_tokens": False}  # fmt: skip
        pooling = {"word_embedding_dimension": 24, **modes, "include_prompt": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        settings = {"max_seq_length": 12, "do_lower_case": False}
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
        for dense in folder.glob("*_Dense/config.json"):
            config = json.loads(dense.read_text())
            keys = ("in_features", "out_features", "bias", "activation_function")
            dense.write_text(json.dumps({key: config[key] for key in keys}))
        config = {"__version__": {"sentence_transformers": f"{version}.1.0"}, "prompts": prompts}
        config |= {"default_prompt_name": None, "similarity_fn_name": "cosine"}
        config |= {"model_type": "SentenceTransformer"} if version == 5 else {}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    theirs = SentenceTransformer(str(folder), device="cpu")
    engine = roformer_cpp.Engine(folder)
    for name in (None, "query"):
        prompt = None if name is None else prompts[name]
        close(engine.embed([*TEXTS, *LONG], prompt=prompt), theirs.encode([*TEXTS, *LONG], prompt_name=name))


def scores(folder, version=None, activation=None, family="Bert", side="right", **config):
    """activation: None: as a model that states none. version: None: as transformers saves it."""
    options = {"num_labels": 1} | config
    save(folder / "model", family, "ForSequenceClassification", side=side, **options)
    if version == 6:
        made = None if activation is None else getattr(torch.nn, activation)()
        sentence_transformers.CrossEncoder(
            str(folder / "model"), activation_fn=made, prompts={"query": "w1 w2 "}, default_prompt_name="query"
        ).save(str(folder / "saved"))
        folder = folder / "saved"
    else:
        folder = folder / "model"
        module = "torch.nn.modules." + ("linear." if activation == "Identity" else "activation.") + str(activation)
        if version == 3 and activation:
            change(folder / "config.json", sbert_ce_default_activation_function=module)
        if version == 5:
            change(folder / "config.json", sentence_transformers={"activation_fn": module, "version": "5.1.0"})
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    ours = roformer_cpp.CrossEncoder(folder)
    assert ours.max_seq_length == theirs.max_seq_length == 24
    close(ours.predict(PAIRS), theirs.predict(PAIRS))
    close(ours.predict(PAIRS[0]), theirs.predict(PAIRS[0]))
    if options["num_labels"] > 1:
        softmax = theirs.predict(PAIRS, apply_softmax=True)
        close(ours.predict(PAIRS, apply_softmax=True), softmax)
        predicted = roformer_cpp.Engine(folder).predict([{"text": a, "pair": b} for a, b in PAIRS])
        close([[x["probabilities"][name] for name in NAMES.values()] for x in predicted], softmax)
        return
    documents = [*TEXTS, *LONG]
    mine, other = (x.rank(TEXTS[1], documents, top_k=4, return_documents=True) for x in (ours, theirs))
    assert [x["corpus_id"] for x in mine] == [x["corpus_id"] for x in other]
    assert [x["text"] for x in mine] == [x["text"] for x in other]
    close([x["score"] for x in mine], [x["score"] for x in other])
    records = [{"text": a, "pair": b} for a, b in PAIRS]
    close([x["score"] for x in roformer_cpp.Engine(folder).predict(records)], theirs.predict(PAIRS))


# ---- what is refused


def refused(folder, open_it, message):
    with pytest.raises((RuntimeError, ValueError)) as caught:
        open_it(folder)
    assert message in str(caught.value), str(caught.value)


def predict(folder):
    roformer_cpp.Engine(folder, task="predict").predict("w1")


def no_task(folder):
    save(folder, "Bert", "ForMaskedLM")
    refused(folder, predict, "must have a head of classification, question answering or multiple choice, got BertForM")


def many_numbers(folder):
    save(folder, "Bert", "ForSequenceClassification", num_labels=3, problem_type="regression")
    refused(folder, predict, "problem_type regression must have one label, a number, got 3")


def same_labels(folder):
    save(folder, "Bert", "ForTokenClassification", num_labels=3, id2label={0: "a", 1: "b", 2: "a"})
    change(folder / "config.json", label2id=None)
    refused(folder, predict, "id2label must give each label a name of its own, got a, b, a")


def vectors_of_scores(folder):
    save(folder / "model", "Bert", "ForSequenceClassification", num_labels=1)
    sentence_transformers.CrossEncoder(str(folder / "model")).save(str(folder / "saved"))
    refused(folder / "saved", SENTENCES, 'vectors need a SentenceTransformer, got a "CrossEncoder"')


def scores_of_vectors(folder):
    sentences(folder, 6, ("mean",))
    refused(
        folder / "saved", roformer_cpp.CrossEncoder, 'scores of pairs need a CrossEncoder, got a "SentenceTransformer"'
    )


def scores_by_tokens(folder):
    save(folder, "Bert", "ForSequenceClassification", num_labels=1)
    kinds = ["base.modules.transformer.Transformer", "cross_encoder.modules.logit_score.LogitScore"]
    (folder / "modules.json").write_text(
        json.dumps(
            [{"idx": i, "name": str(i), "path": "", "type": f"sentence_transformers.{x}"} for i, x in enumerate(kinds)]
        )
    )
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "CrossEncoder"}))
    refused(
        folder,
        roformer_cpp.CrossEncoder,
        "a cross-encoder must have one module, Transformer, got",
    )


def other_activation(folder):
    save(folder, "Bert", "ForSequenceClassification", num_labels=1)
    change(folder / "config.json", sentence_transformers={"activation_fn": ACTIVATION + "GELU"})
    message = f'the activation of scores must be Identity, Sigmoid, Tanh or ReLU, got "{ACTIVATION}GELU"'
    refused(folder, roformer_cpp.CrossEncoder, message)


def pickled(folder):
    save(folder, "Bert", "ForSequenceClassification", num_labels=1)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refused(folder, predict, "pytorch_model.bin")


SENTENCES = roformer_cpp.SentenceTransformer
MULTI = "multi_label_classification"
OWN = {"num_labels": 3, "id2label": NAMES}
# What is saved, and what is made of it: (from, what, result, function, arguments).
TABLE = [
    *(
        ("transformers", f"`{family}{what}", "predict", make, {"family": family} | arguments)
        for family in ("Bert", "RoFormer")
        for what, make, arguments in [
            ("ForSequenceClassification`, 3 named labels", classes, OWN),
            ("ForSequenceClassification`, 2 labels without names", classes, {"num_labels": 2}),
            ("ForSequenceClassification`, `problem_type` single_label_classification", classes,
             OWN | {"problem_type": "single_label_classification"}),
            ("ForSequenceClassification`, `problem_type` multi_label_classification", classes,
             OWN | {"problem_type": MULTI}),
            ("ForSequenceClassification`, `problem_type` regression", classes,
             {"num_labels": 1, "problem_type": "regression"}),
            ("ForSequenceClassification`, 1 label without `problem_type`", classes, {"num_labels": 1}),
            ("ForTokenClassification`", tokens, OWN),
            ("ForQuestionAnswering`", answers, {}),
            ("ForMultipleChoice`", choices, {}),
        ]
    ),
    ("transformers", "`BertModel`", "embed", bare, {"family": "Bert"}),
    ("transformers", "`RoFormerModel`", "embed", bare, {"family": "RoFormer"}),
    ("transformers", "`RoFormerModel`, `embedding_size` 12", "embed", bare,
     {"family": "RoFormer", "embedding_size": 12}),
    ("transformers", "`BertForMaskedLM`", "fill-mask", masks, {"family": "Bert"}),
    ("transformers", "`RoFormerForMaskedLM`", "fill-mask", masks, {"family": "RoFormer"}),
    ("transformers", "`BertForPreTraining`", "embed", bare, {"family": "Bert", "head": "ForPreTraining"}),
    ("transformers", "`RoFormerForSequenceClassification`", "embed", bare,
     {"family": "RoFormer", "head": "ForSequenceClassification"}),
    ("transformers", "weights in several files", "predict", classes, OWN | {"family": "Bert", "form": "shards"}),
    ("transformers", "weights of bfloat16", "predict", classes, OWN | {"family": "Bert", "form": torch.bfloat16}),
    ("transformers", "weights of float16", "embed", bare, {"family": "RoFormer", "form": torch.float16}),
    ("transformers", "tokenizer: `vocab.txt` alone", "predict", classes,
     OWN | {"family": "Bert", "files": ("vocab.txt",)}),
    ("transformers", "tokenizer: `tokenizer.json` alone", "predict", classes,
     OWN | {"family": "Bert", "files": ("tokenizer.json",)}),
    ("transformers", "`truncation_side` left", "predict", classes, OWN | {"family": "Bert", "side": "left"}),
    ("transformers", "`truncation_side` left", "embed", bare, {"family": "Bert", "side": "left"}),
    *(
        (f"sentence-transformers {version}", f"SentenceTransformer: {', '.join(steps)}", "embed", sentences,
         {"version": version, "steps": steps})
        for version in (3, 5, 6) for steps in (("mean",), ("cls", "dense", "normalize"))
    ),
    ("transformers", "1 label, as a CrossEncoder", "rerank", scores, {}),
    ("transformers", "1 label of a RoFormer, as a CrossEncoder", "rerank", scores, {"family": "RoFormer"}),
    ("transformers", "3 labels, as a CrossEncoder", "predict of pairs", scores, OWN),
    ("sentence-transformers 3", "CrossEncoder, Identity", "rerank", scores, {"version": 3, "activation": "Identity"}),
    ("sentence-transformers 5", "CrossEncoder, Sigmoid", "rerank", scores, {"version": 5, "activation": "Sigmoid"}),
    ("sentence-transformers 5", "CrossEncoder, Identity", "rerank", scores, {"version": 5, "activation": "Identity"}),
    ("sentence-transformers 5", "CrossEncoder, Tanh, `problem_type` regression", "rerank", scores,
     {"version": 5, "activation": "Tanh", "problem_type": "regression"}),
    ("sentence-transformers 6", "CrossEncoder with a prompt", "rerank", scores, {"version": 6}),
    ("sentence-transformers 6", "CrossEncoder, Identity, `truncation_side` left", "rerank", scores,
     {"version": 6, "activation": "Identity", "side": "left"}),
    ("sentence-transformers 6", "CrossEncoder, 3 labels", "predict of pairs", scores, OWN | {"version": 6}),
    ("transformers", "`BertForMaskedLM`, to predict", "refused", no_task, {}),
    ("transformers", "`problem_type` regression of 3 labels", "refused", many_numbers, {}),
    ("transformers", "two labels of one name", "refused", same_labels, {}),
    ("transformers", "`pytorch_model.bin` alone", "refused", pickled, {}),
    ("sentence-transformers 5", "CrossEncoder, GELU", "refused", other_activation, {}),
    ("sentence-transformers 6", "CrossEncoder, to embed", "refused", vectors_of_scores, {}),
    ("sentence-transformers 6", "SentenceTransformer, to rerank", "refused", scores_of_vectors, {}),
    ("sentence-transformers 6", "CrossEncoder with LogitScore", "refused", scores_by_tokens, {}),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}, {row[1]}, {row[2]}".replace("`", ""))
def test_directory(row, tmp_path):
    _, _, _, make, arguments = row
    make(tmp_path, **arguments)


def evaluated(folder, model, tokenizer, labels):
    """The logits of transformers for records of texts with these labels, and what `roformer evaluate` says of them."""
    records = [{"text": text} | label for text, label in zip(TEXTS, labels, strict=True)]
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (line,) = results("evaluate", "--model", folder, "--input", folder / "records.jsonl")
    return torch.cat([logits(model, tokenizer, text).logits for text in TEXTS]).double(), line


def test_evaluate_several_labels(tmp_path):
    model, tokenizer = save(tmp_path, "Bert", "ForSequenceClassification", problem_type=MULTI, **OWN)
    gold = [["sad"], ["glad", "mixed"], [], ["sad", "mixed"]]
    x, line = evaluated(tmp_path, model, tokenizer, [{"labels": labels} for labels in gold])
    wanted = torch.tensor([[name in labels for name in NAMES.values()] for labels in gold])
    close(line["loss"], torch.nn.functional.binary_cross_entropy_with_logits(x, wanted.double()))
    assert line["accuracy"] == accuracy_score(wanted, x > 0)
    close(line["f1"], f1_score(wanted, x > 0, average="micro"))


def test_evaluate_by_ids_of_labels(tmp_path):
    model, tokenizer = save(tmp_path, "Bert", "ForSequenceClassification", **OWN)
    gold = torch.tensor([2, 0, 1, 1])
    x, line = evaluated(tmp_path, model, tokenizer, [{"label": label} for label in (2, "0", "glad", 1)])
    close(line["loss"], torch.nn.functional.cross_entropy(x, gold))
    assert line["accuracy"] == (x.argmax(-1) == gold).double().mean()


def test_page():
    """The page has these rows, in this order."""
    rows = [f"| {maker} | {what} | {result} |" for maker, what, result, _, _ in TABLE]
    assert [line for line in PAGE.read_text().splitlines() if line.startswith(("| transf", "| sentence-"))] == rows


assert len(TABLE) >= 40 and SIZES["hidden_size"] == 24
