"""Training of embedders by sentence-transformers: our encoders beside those of transformers with the same weights, and
what `roformer train-embedding` saves beside sentence-transformers' vectors of it."""

import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal

import pytest
import tokenizers
import torch
from tokenizers import models

import roformer_cpp
import task_files
from cli_support import lines_of, results
from encoding_case import TINY_MODEL
from engine_case import assert_close, change_config
from roformer_cpp import _program, train_embedding
from roformer_cpp.plot import plot_loss
from sentence_model import TEXTS, WORDS, save_encoder, save_modules, save_tokenizer
from tolerances import T4_MAX

sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
datasets = pytest.importorskip("datasets", reason="needs datasets (pip)")
peft = pytest.importorskip("peft", reason="needs peft (pip)")
from sentence_transformers.sentence_transformer import losses  # noqa: E402
from sentence_transformers.sentence_transformer.modules import StaticEmbedding  # noqa: E402

pytestmark = pytest.mark.usefixtures("registered")
TANH = "torch.nn.modules.activation.Tanh"
OURS = {"RoFormer": {"position_encoding": "rope"}, "Bert": {"position_encoding": "learned", "family": "bert"}}
LOSSES = [
    ("RoFormer", "MultipleNegativesRankingLoss", {}, (24, 12)),
    ("RoFormer", "TripletLoss", {}, ()),
    ("Bert", "CachedMultipleNegativesRankingLoss", {"mini_batch_size": 3}, (24, 12)),
    ("Bert", "CoSENTLoss", {}, ()),
]


def texts(count, seed):
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 5))) for _ in range(4 * count)]
    return [" ".join(words[i : i + 4]) for i in range(0, len(words), 4)]


def records(*keys, count=40):
    """Positives have the words of their anchors; pairs with a score of 1 too."""
    anchors, others = texts(count, 1), texts(count, 2)
    shuffled = [" ".join(reversed(text.split())) for text in anchors]
    scores = [float(i % 2) for i in range(count)]
    mixed = [a if score else b for a, b, score in zip(shuffled, others, scores, strict=True)]
    all_of = {"anchor": anchors, "positive": shuffled, "negative": others, "sentence1": anchors}
    all_of |= {"sentence2": mixed, "score": scores}
    return {key: all_of[key] for key in keys}


def write(path, columns):
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return task_files.write(path, rows)


def opened(folder):
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def trained(folder, run, loss, options, sizes):
    """The losses of 5 steps, and the model."""
    model = opened(folder)
    keys = {"TripletLoss": ("anchor", "positive", "negative"), "CoSENTLoss": ("sentence1", "sentence2", "score")}
    data = datasets.Dataset.from_dict(records(*keys.get(loss, ("anchor", "positive"))))
    function = getattr(losses, loss)(model, **options)
    function = losses.MatryoshkaLoss(model, function, list(sizes)) if sizes else function
    keys = dict(max_steps=5, per_device_train_batch_size=8, learning_rate=0.1, optim="sgd", logging_steps=1)
    keys |= dict(report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no")
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(str(run), **keys)
    trainer = sentence_transformers.SentenceTransformerTrainer(model, arguments, data, loss=function)
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line], model


@pytest.mark.parametrize(("family", "loss", "options", "sizes"), LOSSES)
def test_steps_equal_those_of_the_model_of_transformers(family, loss, options, sizes, tmp_path):
    (tmp_path / "theirs").mkdir()
    save_encoder(tmp_path / "theirs", family, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    shutil.copytree(tmp_path / "theirs", tmp_path / "ours")
    change_config(tmp_path / "ours", model_type="rf_encoder", architectures=["RfEncoderModel"], **OURS[family])
    of_theirs, theirs = trained(tmp_path / "theirs", tmp_path / "run", loss, options, sizes)
    of_ours, ours = trained(tmp_path / "ours", tmp_path / "run", loss, options, sizes)
    assert type(ours[0].auto_model).__name__ == "RfEncoderModel" != type(theirs[0].auto_model).__name__
    assert of_ours == pytest.approx(of_theirs, rel=T4_MAX) and len(set(of_ours)) == 5
    ours.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    vectors = ours.encode(TEXTS)
    assert_close(vectors, theirs.encode(TEXTS))
    assert_close(roformer_cpp.SentenceTransformer(tmp_path / "saved").encode(TEXTS), vectors)
    printed = results("embed", "--model", tmp_path / "saved", "--text", *TEXTS)
    assert_close(torch.tensor([line["embedding"] for line in printed]).numpy(), vectors)


def save_ours(folder, encoding="kerple-log"):
    """A pretrained encoder of roformer, with its head."""
    folder.mkdir(exist_ok=True)
    config = {**TINY_MODEL, "model_type": "rf_encoder", "position_encoding": encoding, "vocab_size": len(WORDS)}
    model = roformer_cpp.build_model(config, "RfEncoderForMaskedLM")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    model.save(folder)
    save_tokenizer(folder, do_lower_case=True, model_max_length=24)
    return folder


def test_dropout_of_cached_gradients_repeats(tmp_path):
    """The cached loss computes vectors once without gradients and once with them, which must be the same."""
    model, seen = opened(save_ours(tmp_path)).train(), []
    model.register_forward_hook(lambda *call: seen.append(call[2]["sentence_embedding"].detach().clone()))
    rows = [model.preprocess(texts(4, seed)) for seed in (1, 2)]
    losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)(rows, None).backward()
    assert len(seen) == 8 and all(map(torch.equal, seen[:4], seen[4:]))
    assert not torch.equal(seen[0], model(rows[0])["sentence_embedding"][:2])


def command(monkeypatch, *words):
    """The exit code."""
    monkeypatch.setattr("sys.argv", ["roformer", "train-embedding", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        _program.main()
    return end.value.code


def test_the_command(tmp_path, monkeypatch, capsys):
    """With all options: what it prints and saves, twice the same."""
    save_ours(tmp_path / "model")
    train = write(tmp_path / "train.tsv", records("anchor", "positive", "negative"))
    valid = write(tmp_path / "valid.csv", records("sentence1", "sentence2", "score", count=30))
    options = ["--train", train, "--valid", valid, "--loss", "CachedMultipleNegativesRankingLoss", "--mini-batch", 8,
               "--batch", 20, "--epochs", 10, "--learning-rate", 1e-2, "--warmup", 2, "--seed", 5,
               "--matryoshka", "8,4", "--pooling", "cls", "--max-length", 16]  # fmt: skip
    printed = []
    for run in ("first", "second"):
        assert command(monkeypatch, "--model", tmp_path / "model", "--output", tmp_path / run, *options) == 0
        printed.append(json.loads(capsys.readouterr().out))
    first, second = printed
    assert first | {"output": ""} == second | {"output": ""}
    assert first["metric"] == "spearman_cosine" and first["records"] == 40 and first["after"] > first["before"]
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("first", "second")]
    assert weights[0] == weights[1]
    theirs, ours = opened(tmp_path / "first"), roformer_cpp.SentenceTransformer(tmp_path / "first")
    assert theirs.max_seq_length == ours.max_seq_length == 16 and theirs[1].pooling_mode == "cls"
    assert_close(ours.encode(TEXTS), theirs.encode(TEXTS))
    steps = lines_of(tmp_path / "first/metrics.jsonl")
    assert [line["step"] for line in steps] == [1, 10, 20] and steps[-1]["loss"] < steps[0]["loss"]
    plot_loss(steps, tmp_path / "loss.png")


ADAPTED = ["--loss", "MultipleNegativesRankingLoss", "--learning-rate", 1e-2, "--lora-rank", 3]


@pytest.mark.parametrize("family", ["ours", "ModernBert"])
def test_adapters(family, tmp_path, monkeypatch, capsys):
    """peft's files on the old weights, and the merged model, give the same vectors everywhere."""
    model, output = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    if family == "ours":
        save_ours(model)
    else:
        save_encoder(model, family, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
        roformer_cpp.Tokenizer(model).save_pretrained(model)  # tokenizer.json, which transformers needs of this family
    train = write(tmp_path / "train.jsonl", records("anchor", "positive"))
    options = [*ADAPTED, "--epochs", 3]
    assert command(monkeypatch, "--model", model, "--output", output, "--train", train, *options) == 0
    assert "metric" not in json.loads(capsys.readouterr().out)
    merged = opened(output)
    vectors = merged.encode(TEXTS)
    adapted = opened(model)
    assert abs(adapted.encode(TEXTS) - vectors).max() > 0.1 * abs(vectors).max()
    adapted.load_adapter(str(output / "adapter"))
    assert_close(adapted.encode(TEXTS), vectors)
    assert_close(roformer_cpp.SentenceTransformer(output).encode(TEXTS), vectors)
    assert_close(roformer_cpp.Engine(model, task="embed", adapter=output / "adapter").embed(TEXTS), vectors)


def test_adapters_leave_other_modules(tmp_path, monkeypatch, capsys):
    """A Dense module, which peft's files cannot contain, keeps its weights: the steps are those of the saved model."""
    model, output = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    size = save_encoder(model).config.hidden_size
    save_modules(model, {"pooling_mode": "mean", "embedding_dimension": size}, [(torch.nn.Linear(size, 8), TANH)])
    train = write(tmp_path / "train.jsonl", records("anchor", "positive"))
    options = [*ADAPTED, "--epochs", 5]
    kept = []
    in_memory = train_embedding._trained
    monkeypatch.setattr(train_embedding, "_trained", lambda *of: (in_memory(*of), kept.append(of[0].encode(TEXTS)))[0])
    assert command(monkeypatch, "--model", model, "--output", output, "--train", train, *options) == 0
    assert_close(opened(output).encode(TEXTS), kept[0])
    assert abs(opened(model).encode(TEXTS) - kept[0]).max() > 0.1 * abs(kept[0]).max()


BAD_FILES = [
    ("x.txt", "", "a file of records must end in .jsonl, .csv or .tsv"),
    ("x.jsonl", "", "must have records, got none"),
    ("x.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": ', "x.jsonl:2 must be a record"),
    ("x.jsonl", "[1]\n", "x.jsonl:1 must have the keys anchor, positive or anchor, positive, negative or sentence1, "
     "sentence2, score, got list"),
    ("x.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": "a", "positive": "b", "negative": "c"}\n',
     "x.jsonl:2 must have the keys anchor, positive, got anchor, positive, negative"),
    ("x.jsonl", '{"anchor": "a", "text": "b"}\n', "got anchor, text"),
    ("x.jsonl", '{"anchor": "a", "positive": 3}\n', "x.jsonl:1 positive must be a text that is not empty, got 3"),
    ("x.tsv", "anchor\tpositive\na\tb\nc\t \n", "x.tsv:3 positive must be a text that is not empty"),
    ("x.csv", "anchor,positive\na\n", "x.csv:2 positive must be a text that is not empty, got None"),
    ("x.csv", "sentence1,sentence2,score\na,b,high\n", "x.csv:2 score must be a finite number, got 'high'"),
    ("x.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 1e999}\n', "x.jsonl:1 score must be a finite number"),
    ("x.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 5}\n', "scores must be between -1 and 1"),
    ("x.jsonl", '{"anchor": "a", "positive": "b"}\n', "CosineSimilarityLoss needs sentence1, sentence2, score, got "
     "anchor, positive in"),
    ("x.csv", 'anchor,positive\na,b\nc,"d\ne,f\n', "x.csv:3 must be a record, got unexpected end of data"),
    ("x.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 1' + "0" * 5000 + "}\n", "x.jsonl:1 must be a record"),
    ("x.jsonl", "[" * 10**5 + "\n", "x.jsonl:1 must be a record"),
    ("x.csv", b"anchor,positive\na,b\nc,\xff\n", "x.csv must be UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words"), BAD_FILES)
def test_refused_records(name, text, words, tmp_path, monkeypatch, capsys):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    options = ["--model", tmp_path, "--output", tmp_path / "out", "--loss", "CosineSimilarityLoss", "--train", path]
    assert command(monkeypatch, *options) == 1
    error = capsys.readouterr().err
    assert error.startswith("[train-embedding] ") and words in error and error.count("\n") == 1


def test_lengths_of_roberta(tmp_path, monkeypatch, capsys):
    """Two of its positions are of no token. A metric that is not a number is null."""
    model, output = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    most = save_encoder(model, "Roberta", pad_token_id=1).config.max_position_embeddings - 2
    train = write(tmp_path / "train.jsonl", {"anchor": ["a " * 99, "b"], "positive": ["c " * 99, "d"]})
    valid = write(tmp_path / "valid.jsonl", {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [1, 1]})
    options = ["--model", model, "--output", output, "--train", train, "--valid", valid, "--epochs", 1]
    options += ["--loss", "MultipleNegativesRankingLoss", "--max-length"]
    assert command(monkeypatch, *options, most + 1) == 1
    assert f"--max-length must be at most {most}, by max_position_embeddings" in capsys.readouterr().err
    assert command(monkeypatch, *options, most) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["before"] is printed["after"] is None


def test_the_default_prompt_is_trained_with(tmp_path, monkeypatch, capsys):
    """As vectors are computed with it."""
    model, columns, found = opened(save_ours(tmp_path / "plain")), records("anchor", "positive"), []
    model.prompts, model.default_prompt_name = {"first": f"{texts(1, 7)[0]} "}, "first"
    model.save_pretrained(str(tmp_path / "prompted"), create_model_card=False)
    written = {key: [model.prompts["first"] + text for text in of_key] for key, of_key in columns.items()}
    for name, given in {"prompted": columns, "plain": written}.items():
        output, train = tmp_path / f"out-{name}", write(tmp_path / f"{name}.jsonl", given)
        options = ["--model", tmp_path / name, "--output", output, "--train", train, "--max-length", 24]
        assert command(monkeypatch, *options, "--loss", "MultipleNegativesRankingLoss", "--learning-rate", 1e-2) == 0
        found.append((output / "model.safetensors").read_bytes())
    assert found[0] == found[1]


RUNS = [  # how it ends, its loss and more options, the step at its end and the one from which it continues, of 15
    (signal.SIGKILL, "CachedMultipleNegativesRankingLoss", ("--mini-batch", 8, "--save-every", 4), 10, 8),
    (signal.SIGTERM, "CosineSimilarityLoss", (), 12, 12),
    (signal.SIGINT, "MultipleNegativesRankingLoss", ("--lora-rank", 2, "--save-every", 5, "--keep", 1), 9, 9),
]


@pytest.fixture
def hears_interrupts():
    """Also where the tests are a job in the background of a shell, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
@pytest.mark.parametrize(("ends", "loss", "more", "step", "begins"), RUNS, ids=[each[0].name for each in RUNS])
def test_a_stopped_run_continues_with_the_same_bits(ends, loss, more, step, begins, tmp_path, monkeypatch, capsys):
    """In its second or third epoch, with dropout. SIGKILL in a process of its own."""
    save_ours(tmp_path / "model")
    keys = ("sentence1", "sentence2", "score") if "Similarity" in loss else ("anchor", "positive")
    train = write(tmp_path / "train.jsonl", records(*keys))
    options = ["--model", tmp_path / "model", "--train", train, "--loss", loss, "--batch", 8, "--epochs", 3,
               "--learning-rate", 1e-2, *more]  # fmt: skip
    steps, stopped = itertools.count(1), [*options, "--output", tmp_path / "stopped"]

    def training_step(trainer, *given, of=sentence_transformers.SentenceTransformerTrainer.training_step):
        if next(steps) == step:
            os.kill(os.getpid(), ends)
        return of(trainer, *given)

    with monkeypatch.context() as patched:
        patched.setattr(sentence_transformers.SentenceTransformerTrainer, "training_step", training_step)
        if ends == signal.SIGKILL:
            call = {"target": train_embedding.main, "args": [[*map(str, stopped)]]}
            process = multiprocessing.get_context("fork").Process(**call)
            process.start()
            process.join(120)
            assert process.exitcode == -ends
        else:
            assert command(monkeypatch, *stopped) == 128 + ends
            assert f"stopped at step {step} of 15; --resume continues" in capsys.readouterr().err
    assert not (tmp_path / "stopped/model.safetensors").exists()
    assert command(monkeypatch, *stopped) == 1
    assert "give --resume to continue that run" in capsys.readouterr().err
    (tmp_path / "stopped/checkpoint-14").mkdir()  # not written to its end
    for changed, message in (
        (["--seed", 3], "--seed must be that of the run, 0, got 3"),
        (["--matryoshka", 4], "--matryoshka must be that of the run, None, got [4]"),
        (["--train", write(tmp_path / "other.jsonl", records(*keys, count=39))], "--train must be that of the run, "),
    ):
        assert command(monkeypatch, *stopped, *changed, "--resume") == 1
        assert message in capsys.readouterr().err
    assert command(monkeypatch, *stopped, "--resume") == 0
    assert f"continuing at step {begins} of 15\n" in capsys.readouterr().err
    assert command(monkeypatch, *options, "--output", tmp_path / "whole", "--resume") == 0
    names = ["model.safetensors", *(["adapter/adapter_model.safetensors"] if "--lora-rank" in more else [])]
    assert all((tmp_path / "stopped" / x).read_bytes() == (tmp_path / "whole" / x).read_bytes() for x in names)
    left = len([*(tmp_path / "whole").glob("checkpoint-*")])
    assert left == ({4: 2, 5: 1}[more[more.index("--save-every") + 1]] if "--save-every" in more else 0)


def test_refused_options(tmp_path, monkeypatch, capsys):
    save_ours(tmp_path / "model")
    words = models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")
    table = StaticEmbedding(tokenizers.Tokenizer(words), embedding_dim=8)
    sentence_transformers.SentenceTransformer(modules=[table]).save_pretrained(str(tmp_path / "static"))
    static = ("--model", tmp_path / "static")
    train = write(tmp_path / "train.jsonl", records("anchor", "positive"))
    loss = ("--loss", "MultipleNegativesRankingLoss")
    for words, code, message in (
        (("--loss", "Other"), 2, "argument --loss: invalid choice: 'Other'"),
        ((*loss, "--batch", "0"), 2, "argument --batch: must be a number from 1, got 0"),
        ((*loss, "--batch", "1"), 1, "needs at least 2 records in a batch, which are negatives, got 1"),
        ((*loss, "--epochs", "0"), 1, "--epochs must be above 0, got 0"),
        ((*loss, "--matryoshka", "8,x"), 2, "argument --matryoshka: "),
        ((*loss, "--learning-rate", "nan"), 2, "argument --learning-rate: must be a number from 0, got nan"),
        ((*loss, "--mini-batch", "4"), 1, "--mini-batch needs CachedMultipleNegativesRankingLoss, got "),
        ((*loss, "--matryoshka", "8,32"), 1, "--matryoshka must be at most 16, got 32"),
        ((*loss, "--max-length", "33"), 1, "--max-length must be at most 32, by max_position_embeddings of the model"),
        ((*loss, "--pooling", "cls", *static), 1, "--pooling needs a model with one Pooling, got 0"),
        ((*loss, "--lora-rank", "2", *static), 1, "--lora-rank needs a model with linear layers"),
        ((*loss, "--pooling", "first"), 1, "Invalid pooling mode: 'first'"),
        ((*loss, "--model", tmp_path / "none"), 1, f"{tmp_path / 'none'}"),
        ((*loss, "--learning-rate", "1e30", "--epochs", "4"), 1, "the loss must be finite, got nan"),
        ((*loss, "--output", tmp_path / "model"), 1, "the output must be a new or an empty directory, got "),
    ):
        options = {"--model": tmp_path / "model", "--output": tmp_path / "out", "--train": train}
        options |= dict(zip(words[::2], words[1::2], strict=True))
        assert command(monkeypatch, *(word for option in options.items() for word in option)) == code, words
        assert message in capsys.readouterr().err, words
        assert not (tmp_path / "out/model.safetensors").exists()
