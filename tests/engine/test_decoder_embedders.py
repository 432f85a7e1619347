"""Embedders with the blocks of decoders, causal and bidirectional, beside transformers and sentence-transformers."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import roformer_cpp
import tolerances as tol
from cli_support import refused, results
from decoder_embedders import CASES, PROMPTS, TEXTS, ending_tokenizer, make_bare, make_sentences, make_t5, theirs_of
from engine_case import assert_close, assert_low_precision, assert_refused, change_config
from rf_engine import Engine
from rotary_decoders import SAMPLES, make_rows


@pytest.mark.parametrize("case", CASES)
def test_hidden_states(case, tmp_path):
    oracle = make_bare(case, tmp_path)
    rows = make_rows()
    ours = np.split(Engine(tmp_path).hidden(rows), np.cumsum([len(row) for row in rows])[:-1])
    for row, states in zip(rows, ours, strict=True):
        assert_close(states, theirs_of(oracle, row))


@pytest.mark.parametrize("case", ["qwen3", "gemma3-bidirectional"])
def test_names_of_tensors(case, tmp_path):
    """With the prefix, and without it under the class of a language model, as published embedders have them."""
    (row,) = make_rows((13,))
    theirs = theirs_of(make_bare(case, tmp_path, "ForCausalLM").model, row)
    assert_close(Engine(tmp_path, head="none").hidden([row]), theirs)
    path = tmp_path / "model.safetensors"
    weights = {name.removeprefix("model."): value for name, value in load_file(path).items()}
    save_file({name: value for name, value in weights.items() if name != "lm_head.weight"}, path)
    assert_close(Engine(tmp_path, head="none").hidden([row]), theirs)
    if case == "qwen3":
        assert_refused(tmp_path, r"lm_head\.weight")


SENTENCES = [("qwen3", "lasttoken"), ("qwen3-bidirectional", "mean"), ("gemma3-bidirectional", "mean")]


@pytest.mark.parametrize("case, pooling", SENTENCES)
def test_sentences(case, pooling, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    make_sentences(case, tmp_path, pooling)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    ours = roformer_cpp.SentenceTransformer(tmp_path)
    assert_close(ours.encode(TEXTS), theirs.encode(TEXTS))
    for name in PROMPTS:
        assert_close(ours.encode(TEXTS, prompt_name=name), theirs.encode(TEXTS, prompt_name=name))
    assert_close(roformer_cpp.Engine(tmp_path).embed(TEXTS), theirs.encode(TEXTS))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("adds", [True, False])
def test_end_by_the_authors_class(adds, tmp_path, monkeypatch):
    """gte-Qwen2: tokenizer.json does not add the end of a text, the authors' class does."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / f"model{adds}"
    folder.mkdir()
    make_sentences("qwen2-bidirectional", folder)
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    pieces = transformers.Qwen2Tokenizer(model_max_length=64).train_new_from_iterator(SAMPLES * 20, vocab)
    pieces.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    keys = json.loads(path.read_text()) | {"add_eos_token": adds, "tokenizer_class": "Qwen2Tokenizer"}
    keys["auto_map"] = {"AutoTokenizer": ["tokenization_qwen.Qwen2Tokenizer", "tokenization_qwen.Qwen2TokenizerFast"]}
    path.write_text(json.dumps(keys))
    (folder / "tokenization_qwen.py").write_text(AUTHORS_CLASS.format(adds=adds))
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
    tokenizer = roformer_cpp.Tokenizer(folder)
    for text in TEXTS:
        ids = theirs.tokenizer(text)["input_ids"]
        assert tokenizer.encode(text) == ids and (ids[-1:] == [theirs.tokenizer.eos_token_id]) >= adds
    texts = TEXTS if adds else [text for text in TEXTS if text]
    for prompt in ({}, {"prompt_name": "query"}):
        assert_close(roformer_cpp.SentenceTransformer(folder).encode(texts, **prompt), theirs.encode(texts, **prompt))


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("case", ["qwen3", "gemma3-bidirectional"])
def test_low_precision(case, precision, tmp_path):
    oracle, (row,) = make_bare(case, tmp_path, spread=0.05, num_hidden_layers=2), make_rows((40,))
    ours, exact = (Engine(tmp_path, each).hidden([row]) for each in (precision, "float32"))
    assert_low_precision(ours, theirs_of(oracle, row), exact)


@pytest.mark.parametrize(
    "case, changes, message",
    [
        ("gemma3", {"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping must be absent.*, got 50"),
        ("gemma3", {"final_logit_softcapping": 30.0}, r"final_logit_softcapping must be absent.*, got 30"),
        ("gemma3", {"hidden_activation": "mish"}, "hidden_activation must be gelu, gelu_new, .*, got .mish"),
        ("gemma3", {"hidden_act": "silu"}, "hidden_act must be .*, got .silu"),
        ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be .*, got 0"),
        ("gemma3-bidirectional", {"sliding_window": 1}, r"sliding_window must be an integer from 2 to .*, got 1"),
        (
            "gemma3-bidirectional",
            {"is_causal": False},
            "is_causal must be absent or true with use_bidirec.*, got false",
        ),
        ("gemma3", {"layer_types": ["full_attention"] * 3}, "layer_types must be .* each of the 7 layers, got"),
        ("qwen3", {"use_bidirectional_attention": True}, "use_bidirectional_attention must be .*, got true"),
        ("qwen2-windows", {"sliding_window": 0}, r"sliding_window must be an integer from 1 to .*, got 0"),
    ],
)
def test_bad_config(case, changes, message, tmp_path):
    make_bare(case, tmp_path)
    assert_refused(tmp_path, message, **changes)


def test_keys_of_null(tmp_path):
    """is_causal is false then, as in transformers; a window must be given."""
    for case, key in (("llama-bidirectional", "is_causal"), ("gemma3", "sliding_window")):
        make_bare(case, tmp_path / case)
        path = tmp_path / case / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: None}))
    folder, (row,) = tmp_path / "llama-bidirectional", make_rows((13,))
    oracle = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    assert_close(Engine(folder, head="none").hidden([row]), theirs_of(oracle, row))
    assert_refused(tmp_path / "gemma3", "sliding_window must be given for layers of sliding_attention, got null")


OF_TEXTS = [(case, labels) for case in ("qwen3", "llama-bidirectional", "gemma3", "qwen2-windows") for labels in (1, 3)]
OF_TOKENS = [(case, None) for case in ("qwen3-bidirectional", "llama-bidirectional", "qwen2", "mistral-windows")]


@pytest.mark.parametrize("case, labels, pad", [*((*each, 0) for each in OF_TEXTS + OF_TOKENS), ("qwen3", 2, None)])
def test_classification(case, labels, pad, tmp_path):
    """Of texts by the last token that is not padding, which a text may end with, and the first where all are; without
    `labels`, of tokens."""
    head = "ForSequenceClassification" if labels else "ForTokenClassification"
    oracle = make_bare(case, tmp_path, head, num_labels=labels or 3, pad_token_id=pad)
    rows = [*make_rows(), np.array([5, 9, 0, 0], np.int32), np.array([0, 0], np.int32)]
    with torch.no_grad():
        theirs = [oracle(torch.tensor(row)[None].long()).logits[0].numpy() for row in rows]
    assert_close(Engine(tmp_path).logits(rows), np.stack(theirs) if labels else np.concatenate(theirs))


@pytest.mark.parametrize("case", ["qwen3", "mistral-windows"])
def test_question_answering(case, tmp_path):
    oracle = make_bare(case, tmp_path, "ForQuestionAnswering")
    rows = make_rows()
    with torch.no_grad():
        outputs = [oracle(torch.tensor(row)[None].long()) for row in rows]
    theirs = [torch.stack([out.start_logits[0], out.end_logits[0]], -1).numpy() for out in outputs]
    assert_close(Engine(tmp_path).logits(rows), np.concatenate(theirs))


def test_labels_of_words(tmp_path):
    """The first piece of a word has its label; the model's tokenizer makes two pieces or more of most words."""
    vocab = ending_tokenizer(tmp_path, model_max_length=64).get_vocab_size()
    oracle = make_bare("qwen3", tmp_path, "ForTokenClassification", num_labels=3, pad_token_id=0, vocab_size=vocab)
    words = ["the", "quick", "fox", "a", "jumps", "the"]
    batch = transformers.AutoTokenizer.from_pretrained(tmp_path)(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        best = oracle(**batch).logits[0, [batch.word_ids(0).index(word) for word in range(len(words))]].argmax(-1)
    assert batch.input_ids.shape[1] > len(words) and len(set(best.tolist())) > 1
    (tmp_path / "words.jsonl").write_text(json.dumps({"tokens": words}))
    (line,) = results("predict", "--model", tmp_path, "--input", tmp_path / "words.jsonl")
    assert line["labels"] == [f"LABEL_{label}" for label in best]


def test_reranker(tmp_path):
    """A CrossEncoder on a classifier of one label."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    vocab = ending_tokenizer(tmp_path, model_max_length=64).get_vocab_size()
    make_bare("qwen3", tmp_path, "ForSequenceClassification", num_labels=1, pad_token_id=0, vocab_size=vocab)
    pairs = [(query, text) for query in ("what is it", "") for text in TEXTS]
    model = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    theirs = np.concatenate([model.predict([pair]) for pair in pairs])  # of padding alone, batches read another token
    assert_close(roformer_cpp.CrossEncoder(tmp_path).predict(pairs), theirs)
    ours = [line["score"] for line in roformer_cpp.Engine(tmp_path).predict([{"text": a, "pair": b} for a, b in pairs])]
    assert np.abs(np.array(ours) - theirs).max() <= tol.T4_MAX


AUTHORS_CLASS = """
import transformers


class Qwen2Tokenizer(transformers.Qwen2Tokenizer):
    def __init__(self, *given, **keys):
        super().__init__(*given, **keys)
        self.add_eos_token = {adds}


Qwen2TokenizerFast = Qwen2Tokenizer
"""

TEMPLATES = {
    "text": None,
    "reranker": """<|im_start|>system
Judge whether the Document meets the requirements.<|im_end|>
<|im_start|>user
<Instruct>: {{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("Given") }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
<|im_start|>assistant
<think>

</think>

""",
    "variables": """{#- A comment. -#}
{%- set query = messages | selectattr('role', '==', 'query') | map(attribute='content') | list | first -%}
  {% set text = messages | selectattr("role", "equalto", "document") | map(attribute="content") | first | trim %}
{% set h = messages | selectattr("role","eq","system") | map(attribute="content") | first | default('it\\'s | "s"\n') %}
{{ h | trim }} {Q} {{- query }}
 {D} {{ text -}}

{{ " end" }}""",
}


def make_token_reranker(folder, template, prompts=None, tokens=(70, 9)):
    """A CrossEncoder of sentence-transformers whose score is the logit of one token minus that of another."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    model, settings = folder / "model", {} if template is None else {"chat_template": template}
    model.mkdir()
    vocab = ending_tokenizer(model, model_max_length=150, **settings).get_vocab_size()
    make_bare("qwen3", model, "ForCausalLM", vocab_size=vocab, max_position_embeddings=150)
    modules = [Transformer(str(model), transformer_task="text-generation"), LogitScore(*tokens)]
    CrossEncoder(modules=modules, device="cpu", prompts=prompts).save_pretrained(str(folder / "saved"))
    return CrossEncoder(str(folder / "saved"), device="cpu")


@pytest.mark.parametrize("template, tokens", [*((name, (70, 9)) for name in TEMPLATES), ("reranker", (70, None))])
def test_token_reranker(template, tokens, tmp_path):
    """As Qwen3-Reranker: the next token, after a chat template; its end stays where a pair is cut."""
    pytest.importorskip("sentence_transformers")
    theirs = make_token_reranker(tmp_path, TEMPLATES[template], {"web": "Given a search"}, tokens)
    ours = roformer_cpp.CrossEncoder(tmp_path / "saved")
    pairs = [(query, text) for query in (" what is it", "") for text in TEXTS]
    for prompt in ({}, {"prompt_name": "web"}):
        for activation in (torch.nn.Identity(), torch.nn.Sigmoid()):
            options = {"activation_fn": activation, **prompt}
            assert_close(ours.predict(pairs, **options), theirs.predict(pairs, **options))
    assert_close(ours.predict(pairs), theirs.predict(pairs))
    records = [{"text": query, "pair": text, "id": i} for i, (query, text) in enumerate(pairs)]
    lines = roformer_cpp.Engine(tmp_path / "saved").predict(records)
    assert [line["id"] for line in lines] == list(range(len(pairs)))
    assert_close(np.array([line["score"] for line in lines]), theirs.predict(pairs))
    if template != "reranker" or None in tokens:
        return
    with pytest.raises(ValueError, match="a record must have text and pair, got a text alone"):
        roformer_cpp.Engine(tmp_path / "saved").predict("a")
    predict = ("predict", "--model", tmp_path / "saved")
    for names in ({}, {"pair": "document"}):
        renamed = [{names.get(name, name): value for name, value in record.items()} for record in records]
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in renamed))
        columns = ("--columns", *(f"{key}={name}" for key, name in names.items())) if names else ()
        written = results(*predict, "--input", tmp_path / "pairs.jsonl", *columns)
        assert written == [line | {"index": i, "line": i + 1} for i, line in enumerate(lines)]
    assert "a record must have text and pair, got a text alone" in refused(*predict, "--text", "a")
    columns = ("--input", tmp_path / "pairs.jsonl", "--columns", "label=x")
    assert "columns must be text and pair, got" in refused(*predict, *columns)


BAD_RERANKERS = [
    ("{{ messages[0].content }}", "must contain the messages query and document, got .the query"),
    ("{{ messages", "line 1 of the chat template: a tag must end with }}"),
    ({"transformer_task": 3}, "transformer_task must be a string, got 3"),
    ({"modality_config": {"message": {"format": 3}}}, r"modality_config.message.format must be a string, got 3"),
    ({"do_lower_case": True}, "do_lower_case must be absent or false in a cross-encoder, got true"),
    ({"transformer_task": "fill-mask"}, "transformer_task must be text-generation, got .?fill-mask"),
    ({"processing_kwargs": {"text": {"max_length": 9}}}, "processing_kwargs must be absent or empty, got"),
    ({"modality_config": {"message": {"format": "structured"}}}, "format must be flat, got .?structured"),
    ({"true_token_id": 1 << 20}, "tokens of LogitScore must be below vocab_size, 330, got 1048576"),
    ({"true_token_id": None}, "true_token_id"),
    ({"module_input_name": "logits"}, "module_input_name must be causal_logits, got .?logits"),
]


def test_bad_token_reranker(tmp_path):
    pytest.importorskip("sentence_transformers")
    make_token_reranker(tmp_path, TEMPLATES["reranker"])
    for i, (change, message) in enumerate(BAD_RERANKERS):
        saved = shutil.copytree(tmp_path / "saved", tmp_path / str(i))
        if isinstance(change, str):
            (saved / "chat_template.jinja").write_text(change)
        else:
            of_score = "true_token_id" in change or "module_input_name" in change
            path = saved / ("1_LogitScore/config.json" if of_score else "sentence_bert_config.json")
            keys = json.loads(path.read_text()) | change
            path.write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))
        with pytest.raises((RuntimeError, ValueError), match=message):
            roformer_cpp.CrossEncoder(saved)


GATED = [{"feed_forward_proj": f"gated-{x}"} for x in ("gelu", "silu", "relu")]


@pytest.mark.parametrize("changes", [{}, *GATED, {"stem": "MT5"}])
def test_t5(changes, tmp_path):
    """Distances beyond 128, where the last bucket begins."""
    oracle = make_t5(tmp_path, spread=0.1, **changes)  # with 0.2, the float32 of transformers errs by twice T4
    for row in make_rows((1, 13, 200)):
        assert_close(Engine(tmp_path).hidden([row]), theirs_of(oracle, row))


DERIVED = dict.fromkeys(("dense_act_fn", "is_gated_act"))  # left out


def test_bad_t5(tmp_path):
    make_t5(tmp_path)
    for changes, message in (
        ({"feed_forward_proj": "gated-mish", **DERIVED}, "feed_forward_proj must be gelu, .*, got .?gated-mish"),
        ({"feed_forward_proj": "gated-gelu"}, "dense_act_fn and is_gated_act must be those of feed_forward_proj"),
        ({"relative_attention_num_buckets": 16}, "relative_attention_num_buckets must be 32, got 16"),
        ({"relative_attention_max_distance": 64}, "relative_attention_max_distance must be 128, got 64"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "architecture must be a class"),
    ):
        assert_refused(tmp_path, message, **changes)


def test_llama_bidirec(tmp_path):
    """A model type with code of its own, whose blocks are Llama's without a mask."""
    oracle = make_bare("llama-bidirectional", tmp_path)
    own = {"model_type": "llama_bidirec", "architectures": ["LlamaBidirectionalModel"], "pooling": "avg"}
    change_config(tmp_path, **own, auto_map={"AutoModel": "llama_bidirectional_model.LlamaBidirectionalModel"})
    (row,) = make_rows((13,))
    assert_close(Engine(tmp_path).hidden([row]), theirs_of(oracle, row))
    assert_refused(tmp_path, r"pooling must be avg, got .?cls", pooling="cls")
