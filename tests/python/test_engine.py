"""Engine of the package against transformers, and its arguments, errors and threads."""

import json
import pickle
import shutil
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import roformer_cpp
from cli_support import results
from engine_case import assert_close, make_causal, make_oracle
from sentence_model import TEXTS, expected, hidden_states, save_encoder, save_tokenizer, unit
from training_case import printed

Engine = roformer_cpp.Engine


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    return folder, save_encoder(folder)


# ---- vectors


def test_embed(encoder):
    folder, model = encoder
    engine = Engine(folder)
    vectors = engine.embed(TEXTS)
    assert vectors.dtype == np.float32 and vectors.flags.c_contiguous
    assert_close(vectors, expected(folder, model, TEXTS))
    assert np.array_equal(engine.embed(TEXTS[0]), vectors[0])
    assert np.array_equal(engine.embed(tuple(TEXTS)), vectors) and np.array_equal(engine.embed(iter(TEXTS)), vectors)
    assert np.array_equal(engine.embed(np.array(TEXTS, dtype=object)), vectors)
    assert engine.embed([]).shape == (0, 24) and engine.encode([]) == []
    states = engine.encode(TEXTS)
    for ours, theirs in zip(states, hidden_states(folder, model, TEXTS), strict=True):
        assert_close(ours, theirs.numpy())
    assert np.array_equal(engine.encode(TEXTS[0]), states[0])
    assert_close(Engine(folder, normalize=True).embed(TEXTS), expected(folder, model, TEXTS, steps=[unit]))


def test_options_of_vectors(encoder):
    folder, model = encoder
    cut = expected(folder, model, TEXTS, poolings=["cls", "mean"], steps=[lambda x: x[:30]], max_length=5)
    options = dict(pooling=["cls", "mean"], dimensions=30, max_length=5)
    engine = Engine(folder, **options)
    assert_close(engine.embed(TEXTS), cut)
    info = engine.embedding_info
    assert (info["dimensions"], info["width"], info["max_length"], info["pooling"]) == (30, 48, 5, ["cls", "mean"])
    prompted = expected(folder, model, ["b " + text for text in TEXTS])
    assert_close(Engine(folder, prompt="b ").embed(TEXTS), prompted)
    assert_close(Engine(folder).embed(TEXTS, prompt="b "), prompted)
    assert_close(Engine(folder, prompt="b ").embed(TEXTS, prompt=""), expected(folder, model, TEXTS))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_bits_do_not_depend_on_the_call(encoder, precision):
    folder, _ = encoder
    alone = {text: Engine(folder, precision=precision).embed(text) for text in set(TEXTS)}
    before = torch.get_num_threads()
    for threads, budget in ((1, 1), (before + 1, 20), (None, 4096)):
        engine = Engine(folder, precision=precision, threads=threads, token_budget=budget)
        assert np.array_equal(engine.embed(TEXTS), np.stack([alone[text] for text in TEXTS]))
    assert torch.get_num_threads() == before


def test_streams_keep_order_and_read_as_they_are_asked(encoder):
    engine = Engine(encoder[0])
    read = []

    def source():
        for i in range(10):
            read.append(i)
            yield TEXTS[i % len(TEXTS)]

    stream = engine.embed_stream(source(), batch=3)
    assert read == []
    first = next(stream)
    assert read == [0, 1, 2]
    assert np.array_equal(np.stack([first, *stream]), engine.embed([TEXTS[i % len(TEXTS)] for i in range(10)]))
    assert list(engine.embed_stream([])) == []


# ---- heads


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    make_oracle("Bert", "ForMaskedLM").save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def test_fill_mask(masked):
    engine, text = Engine(masked), "a b [MASK] c"
    (masks,) = engine.fill_mask([text])
    assert engine.fill_mask(text) == masks and [len(mask) for mask in engine.fill_mask(text, top_k=7)] == [7]
    (command,) = results("fill-mask", "--model", masked, "--text", text)
    assert command["predictions"] == masks[0]
    for bad, message in ((["a"], r"must have a \[MASK\]"), (["[MASK]"], "from 1 to 61, got 62")):
        with pytest.raises(ValueError, match=message):
            engine.fill_mask(bad, top_k=62 if "MASK" in bad[0] else 5)


def test_predict(tmp_path):
    """As the command does, which tests/oracles/test_saved_models.py compares with transformers."""
    labels = ["yes", "no", "maybe"]
    oracle = make_oracle("RoFormer", "ForSequenceClassification", num_labels=3, id2label=dict(enumerate(labels)))
    oracle.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    task = {"kind": "classification", "labels": labels, "max_length": 20}
    task["columns"] = {name: name for name in ("text", "pair", "label", "id")}
    (tmp_path / "task.json").write_text(json.dumps(task))
    engine = Engine(tmp_path)
    records = [{"text": "abc d", "pair": "x", "id": "first"}, {"text": "the cat", "pair": "sat on a mat"}]
    predicted = engine.predict(records)
    assert predicted[0].pop("id") == "first"
    data = tmp_path / "records.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    lines = results("predict", "--model", tmp_path, "--input", data)
    for ours, line in zip(predicted, lines, strict=True):
        assert ours == {key: value for key, value in line.items() if key not in ("index", "line", "id")}
    assert engine.predict(records[1]) == predicted[1] and engine.predict([]) == []
    with pytest.raises(ValueError, match=r"\[input\] records line 2 must have .*pair"):
        engine.predict([records[0], {"text": "a"}])
    for bad in (3, [3], b"a", [None]):
        with pytest.raises(TypeError, match=r"must be (strings or dictionaries|a string or a dictionary), got"):
            engine.predict(bad)
    for pair, error, message in ((float("nan"), ValueError, "finite"), (object(), TypeError, "JSON")):
        with pytest.raises(error, match=message):
            engine.predict([{"text": "a", "pair": pair}])
    del task["columns"]["pair"]
    (tmp_path / "task.json").write_text(json.dumps(task))
    engine, texts = Engine(tmp_path, precision="bfloat16"), ["abc", "the cat"]
    predicted = engine.predict(texts)
    lines = results("predict", "--model", tmp_path, "--precision", "bfloat16", "--text", *texts)
    assert [dict(each, index=i, line=i + 1) for i, each in enumerate(predicted)] == lines
    assert engine.predict("the cat") == predicted[1]


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal")
    make_causal("RoFormer", folder, max_position_embeddings=48)
    save_tokenizer(folder)
    return folder


def test_generate(causal):
    engine, prompts = Engine(causal), ["the cat", "a"]
    for (result,) in engine.generate(prompts, max_new_tokens=9, stop=[]):
        assert len(result["ids"]) == 9 and not result["stopped"] and "score" not in result
    assert engine.generate("a", max_new_tokens=9, stop=[]) == engine.generate(prompts, max_new_tokens=9, stop=[])[1]
    assert len(engine.generate("a", beams=3, num_return_sequences=2)) == 2
    assert "score" in engine.generate("a", beams=2)[0]


@pytest.mark.parametrize(
    "options",
    [
        dict(temperature=0.8, top_k=9, top_p=0.9, seed=5, stop=["a", "b"], min_new_tokens=2),
        dict(sample=True, num_return_sequences=2),
        dict(beams=3, num_return_sequences=2, length_penalty=0.5, max_new_tokens=7),
        dict(stop=[], repetition_penalty=1.3),
        dict(stop=[], presence_penalty=0.5, frequency_penalty=-1),
    ],
)
def test_generate_is_the_command(causal, options):
    command = [f"--stop={each}" for each in options["stop"]] or ["--no-stop"] if "stop" in options else []
    for key, value in options.items():
        if key != "stop":
            command.append(f"--{key.replace('_', '-')}" + (f"={value}" if value is not True else ""))
    lines = results("generate", "--model", causal, "--prompt", "the cat", *command)
    for line in lines:
        for key in ("index", "sequence", "prompt"):
            del line[key]
    assert Engine(causal).generate("the cat", **options) == lines


def test_a_causal_model_opens_for_generation_and_others_lazily(causal, masked):
    with pytest.raises(RuntimeError, match="causal"):
        Engine(causal).fill_mask("[MASK]")
    with pytest.raises(RuntimeError, match="causal language model"):
        Engine(masked).generate("a")
    with pytest.raises(RuntimeError, match=r"task\.json"):
        Engine(masked, task="predict")
    assert Engine(masked).embed("a b").shape == (24,)


def test_a_model_of_next_sentences_opens_for_vectors(tmp_path):
    """Its head is ignored, as that of every model is for vectors."""
    oracle = make_oracle("Bert", "ForNextSentencePrediction")
    oracle.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    assert_close(Engine(tmp_path).embed(TEXTS[:4]), expected(tmp_path, oracle.bert, TEXTS[:4]))
    with pytest.raises(RuntimeError, match="BertForNextSentencePrediction"):
        Engine(tmp_path).predict("a")


# ---- files and arguments


def test_missing_and_damaged_files(encoder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^\[model\] a model must be a .*, got .*, which does not exist"):
        Engine(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="must be a directory"):
        Engine(tmp_path / "file")
    folder = tmp_path / "damaged"
    shutil.copytree(encoder[0], folder)
    (folder / "config.json").write_bytes((folder / "config.json").read_bytes()[:50])
    with pytest.raises(RuntimeError):
        Engine(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError):
        Engine(folder)


def test_bad_options(encoder):
    for options, error, message in (
        (dict(precision="float16"), ValueError, "precision must be one of float32, bfloat16, int8, got 'float16'"),
        (dict(token_budget=0), ValueError, "token_budget must be at least 1, got 0"),
        (dict(threads=0), ValueError, "threads must be at least 1, got 0"),
        (dict(threads=True), TypeError, "threads must be an integer, got True"),
        (dict(task="train"), ValueError, "task must be one of"),
        (dict(pooling="middle"), ValueError, "pooling must be one of"),
        (dict(max_length=2), ValueError, "max_length must leave room beside 2 special tokens, got 2"),
        (dict(prompt_name="x"), ValueError, "the prompt must be one of the model's"),
        (dict(prompt="a", prompt_name="x"), ValueError, "got both"),
        (dict(normalize=1), TypeError, "normalize must be True or False, got 1"),
    ):
        with pytest.raises(error, match=rf"^\[.*{message}.*$"):
            Engine(encoder[0], **options)


def test_bad_calls(encoder):
    engine = Engine(encoder[0], long_texts="refuse", max_length=5)
    kind = "must be a string or a list of strings, got"
    for call, error, message in (
        (lambda: engine.embed("a b c d e f"), ValueError, "texts must have at most 5 tokens, got"),
        (lambda: engine.embed(["a", "\ud800"]), ValueError, "no lone surrogates, got one at 1"),
        (lambda: engine.embed(3), TypeError, f"{kind} int"),
        (lambda: engine.embed(b"a"), TypeError, f"{kind} bytes"),
        (lambda: engine.embed({"a": 1}), TypeError, f"{kind} dict"),
        (lambda: engine.embed(None), TypeError, f"{kind} NoneType"),
        (lambda: engine.embed(["a", 1]), TypeError, "a text must be a string, got int at 1"),
        (lambda: engine.embed("a", prompt=3), TypeError, "prompt must be a string, got int"),
        (lambda: engine.embed_stream("abc"), TypeError, "must be an iterable of strings, got str"),
        (lambda: engine.embed_stream(["a"], batch=0), ValueError, "batch must be at least 1, got 0"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_bad_generation(causal):
    engine = Engine(causal)
    for options, error, message in (
        (dict(beams=2, top_k=3), ValueError, "beams must be without sampling, got top_k"),
        (dict(seed=3), ValueError, "seed must be with sampling, got none"),
        (dict(length_penalty=1.0), ValueError, "length_penalty must be with beams"),
        (dict(temperature=float("nan")), ValueError, "temperature must be finite, got nan"),
        (dict(top_k=1.5), TypeError, "top_k must be an integer, got float"),
        (dict(stop="[SEP]"), TypeError, "stop must be a list of strings, got a string"),
        (dict(num_return_sequences=2), ValueError, "return_sequences must be in 1..1, got 2"),
    ):
        with pytest.raises(error) as caught:
            engine.generate("a", **options)
        assert message in str(caught.value)


# ---- threads and processes


def test_threads_in_parallel(encoder):
    """Each thread has the result of a call alone."""
    engine = Engine(encoder[0], threads=1)
    alone = {prompt: engine.embed(TEXTS, prompt=prompt) for prompt in ("", "a ", "b c ")}

    def work(prompt):
        return all(np.array_equal(engine.embed(TEXTS, prompt=prompt), alone[prompt]) for _ in range(20))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, [*alone] * 2))


def test_the_interpreter_runs_while_an_engine_computes(encoder):
    """However fast it computes: with more work this thread gets more turns. Of an engine that kept the interpreter to
    itself, it would get the first and the last, however much there is to do."""
    engine = Engine(encoder[0], threads=1)
    for count in (3_000, 30_000, 300_000):
        texts, turns = [f"{'abc ' * (i % 7)}{i}" for i in range(count)], 0
        thread = threading.Thread(target=engine.embed, args=(texts,))
        thread.start()
        while thread.is_alive():
            turns += 1
            time.sleep(0.001)
        if turns > 5:
            return
    pytest.fail(f"the interpreter had {turns} turns while {count} texts were computed")


def test_pickled_as_its_directory(encoder):
    engine = Engine(encoder[0], normalize=True, max_length=6)
    assert np.array_equal(pickle.loads(pickle.dumps(engine)).embed(TEXTS), engine.embed(TEXTS))
    assert repr(engine) == f"Engine({str(encoder[0])!r}, precision='float32')"


def test_one_openmp_runtime_with_torch(encoder):
    """Whichever of the engine and torch is loaded first."""
    engine = f"import roformer_cpp; roformer_cpp.Engine({str(encoder[0])!r}).embed('a')"
    for code in (f"{engine}\nimport torch", f"import torch\n{engine}"):
        code += "\ntorch.ones(9).sum()\nmaps = open('/proc/self/maps').read().split()"
        code += "\nprint(len({path for path in maps if 'libgomp' in path}))"
        assert printed("-c", code) == "1"


def test_warnings_are_pythons(tmp_path):
    """A run that has not finished: its newest checkpoint is opened."""
    checkpoint = tmp_path / "checkpoint-7"
    save_encoder(checkpoint)
    (tmp_path / "run.json").write_text("{}")
    with pytest.warns(UserWarning, match="newest checkpoint is used"):
        engine = Engine(tmp_path)
    assert engine.model_dir == str(checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.embed("a")
