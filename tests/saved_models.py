"""The table of model directories as transformers and sentence-transformers save them: every head, every form of the
files, versions of sentence-transformers; and of directories that are refused. tests/oracles/test_saved_models.py opens
them all.

    python tests/saved_models.py        writes the table of docs/saved-models.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import saved_model_makers as makers
from saved_model_makers import FULL, LABELS, PROMPTS, classifier, decoder, encoder, form, labels, pooling, sentences

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "saved-models.md"
BEGIN = "<!-- table: tests/saved_models.py writes what is between these lines -->"
END = "<!-- end of the table -->"


@dataclass(frozen=True)
class Case:
    group: str  # heading of the page
    directory: str  # what it is, in the words of the page
    make: Callable[[Path], Any]  # makes it in an empty folder; gives the model that was saved
    opens: str = ""  # how it is opened: a key of OPENED
    refusal: str = ""  # or what the first line of the refusal has
    command: str = "embed"  # that refuses it
    file: str = ""  # of the folder, where it is no directory


# How a directory is opened, and what the page says of it.
OPENED = {
    "hidden": "`embed`, `Engine.encode`",
    "fill-mask": "`fill-mask`, `embed`",
    "generate": "`generate`",
    "classes": "`predict`, `forward`, `embed`",
    "tokens": "`predict`, `forward`, `embed`",
    "answers": "`predict`, `forward`, `embed`",
    "choices": "`predict`, `forward`, `embed`",
    "sentences": "`embed`, `SentenceTransformer`",
    "scores": "`rerank`, `predict`, `CrossEncoder`",
}


# ---- the table

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 16}
BIASED = {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}
HEADS, FORMS, REFUSED = "Heads", "Forms of the files", "Refused"
SENTENCES, SCORES = "sentence-transformers: SentenceTransformer", "sentence-transformers: CrossEncoder"
CASES: list[Case] = []


def add(group, directory, make, opens="", **more):
    CASES.append(Case(group, directory, make, opens, **more))


CLASSES = {f"`{kind}`": labels(LABELS, kind) for kind in (makers.ONE, makers.SEVERAL)}
CLASSES |= {f"`{makers.NUMBER}`": labels(LABELS[:1], makers.NUMBER), "3 labels": labels(LABELS)}
CLASSES |= {"2 labels without names": {"num_labels": 2}, "1 label": {"num_labels": 1}}
for family, causal in (("Bert", "LMHeadModel"), ("RoFormer", "ForCausalLM")):
    add(HEADS, f"`{family}Model`", encoder("Model", family), "hidden")
    add(HEADS, f"`{family}ForMaskedLM`", encoder("ForMaskedLM", family), "fill-mask")
    add(HEADS, f"`{family}{causal}`", encoder(causal, family), "generate")
    for what, config in CLASSES.items():
        add(HEADS, f"`{family}ForSequenceClassification`, {what}", classifier(family, **config), "classes")
    tagger = encoder("ForTokenClassification", family, **labels(LABELS))
    add(HEADS, f"`{family}ForTokenClassification`", tagger, "tokens")
    add(HEADS, f"`{family}ForQuestionAnswering`", encoder("ForQuestionAnswering", family), "answers")
    add(HEADS, f"`{family}ForMultipleChoice`", encoder("ForMultipleChoice", family), "choices")
add(HEADS, "`BertForPreTraining`", encoder("ForPreTraining"), "fill-mask")
nomic = {"Model": "hidden", "ForMaskedLM": "fill-mask", "ForSequenceClassification": "classes"}
for head, opens in (nomic | {"ForTokenClassification": "tokens"}).items():
    named = labels(LABELS) if "Classification" in head else {}
    add(HEADS, f"`NomicBert{head}`", encoder(head, "NomicBert", **named), opens)
OF_BERT = {"Model": "hidden", "ForMaskedLM": "fill-mask", "ForSequenceClassification": "classes"}
OF_BERT |= {"ForTokenClassification": "tokens", "ForQuestionAnswering": "answers", "ForMultipleChoice": "choices"}
DISTIL = {"dim": 32, "hidden_dim": 48, "n_heads": 2, "n_layers": 2}
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8, "type_vocab_size": 0}
GEMMA2 = {"head_dim": 8, "num_key_value_heads": 1, "global_head_dim": 16, "hidden_size_per_layer_input": 8}
GEMMA2 |= {"embedding_dim": 24, "sliding_window": 2, "num_hidden_layers": 3, "sliding_window_pattern": 3}
NARROW, PADDED = {"embedding_size": 16}, {"pad_token_id": 0}
FAMILIES = {"Electra": NARROW, "DistilBert": DISTIL, "DebertaV2": DEBERTA, "Albert": NARROW}
FAMILIES |= {"Ernie": {"use_task_id": True}, "ModernBert": PADDED | {"local_attention": 4}, "Gte": PADDED}
FAMILIES |= {"EuroBert": PADDED, "JinaEmbeddingsV3": PADDED}
FAMILIES |= {"Ultrabert": {"prediction_head_size": 24, "sliding_window": 2}, "EmbeddingGemma2Text": GEMMA2}
for family, changes in FAMILIES.items():
    for head, opens in OF_BERT.items():
        if not hasattr(makers.transformers, family + head):
            continue
        named = labels(LABELS) if "Classification" in head else {}
        add(HEADS, f"`{family}{head}`", encoder(head, family, **changes, **named), opens)
add(HEADS, "`LlamaForCausalLM`", decoder("llama"), "generate")
add(HEADS, "`LlamaForCausalLM`, tied embeddings", decoder("llama", tie_word_embeddings=True), "generate")
for family in ("mistral", "qwen2", "qwen3", "gpt_neox", "gemma2", "phi3", "granite"):
    add(HEADS, f"`{makers.FAMILIES[family][1]}`", decoder(family), "generate")

add(FORMS, "several files of weights with an index", form(makers.in_shards), "fill-mask")
add(FORMS, "a decoder in several files", form(makers.in_shards, decoder("llama")), "generate")
add(FORMS, "float16", form(makers.in_dtype("float16")), "fill-mask")
table = form(makers.in_dtype("float16"), encoder("Model", "RoFormer"))
add(FORMS, "float16, with a stored table of rotary cosines and sines", table, "hidden")
add(FORMS, "bfloat16", form(makers.in_dtype("bfloat16"), classifier()), "classes")
add(FORMS, "a decoder in bfloat16", form(makers.in_dtype("bfloat16"), decoder("qwen2")), "generate")
add(FORMS, "float64", form(makers.in_dtype("float64")), "fill-mask")
add(FORMS, "`pytorch_model.bin`, after `roformer_cpp.convert`", form(makers.converted), "fill-mask")
add(FORMS, "keys, names of weights and tokenizer files of transformers 4", form(makers.as_transformers_4), "fill-mask")
add(FORMS, "`vocab.txt` alone as the tokenizer", form(makers.vocabulary_alone), "fill-mask")
add(FORMS, "`vocab.txt` with `tokenizer.json`", form(makers.write_vocabulary, classifier()), "classes")
add(FORMS, "`tokenizer.json` alone as the tokenizer", form(makers.without("tokenizer_config.json")), "fill-mask")
cut_left = makers.with_keys("tokenizer_config.json", truncation_side="left")
add(FORMS, "`truncation_side` left", form(cut_left, classifier()), "classes")
add(FORMS, "a checkpoint of `Trainer`, with its states", form(makers.of_a_trainer), "fill-mask")
add(FORMS, "a snapshot in the Hub cache (symbolic links)", form(makers.in_the_hub_cache), "fill-mask")
add(FORMS, "tokens added, embeddings padded to a multiple of 64", form(makers.more_tokens), "fill-mask")
add(
    FORMS,
    "a causal encoder with added tokens and padded embeddings",
    form(makers.more_tokens, encoder("ForCausalLM", "RoFormer")),
    "generate",
)
own = form(makers.qwen2_tokenizer, decoder("qwen2"))
add(FORMS, "Qwen2's own tokenizer", own, "generate")
add(FORMS, "a decoder with tokens added and embeddings padded", form(makers.more_tokens, decoder("llama")), "generate")
for prefix, what, inner in (("_orig_mod.", "`torch.compile`", ""), ("module.", "`DataParallel`", "_orig_mod.")):
    wrapped = form(makers.renamed((prefix + inner).__add__))  # a model in DataParallel may be a compiled one
    add(FORMS, f"weights of a model in {what}, with the prefix `{prefix}`", wrapped, "fill-mask")
add(FORMS, "`BertModel` without a pooler", encoder("Model", options={"add_pooling_layer": False}), "hidden")
narrow = encoder("ForMaskedLM", "RoFormer", embedding_size=24)
add(FORMS, "`RoFormerForMaskedLM`, smaller `embedding_size`", narrow, "fill-mask")
add(FORMS, "`LlamaForCausalLM` with biases and `llama3` scaling", decoder("llama", **BIASED), "generate")

for version in (3, 5, 6):
    made = sentences(*FULL, version=version, **PROMPTS)
    add(SENTENCES, f"version {version}: two poolings, `Dense`, `Normalize`, prompts, similarity", made, "sentences")
for mode in ("mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean"):
    add(SENTENCES, f"version 3: pooling `{mode}`", sentences(pooling(mode), version=3), "sentences")
add(SENTENCES, "version 6: `truncate_dim`", sentences(pooling("mean"), truncate_dim=7), "sentences")
add(SENTENCES, "version 2: the encoder in `0_Transformer`", sentences(*FULL, version=2), "sentences")
default = {"prompts": {"q": "find: "}, "default_prompt_name": "q"}
add(SENTENCES, "version 5: a default prompt", sentences(pooling("mean"), version=5, **default), "sentences")
left_out = sentences(pooling("mean", include_prompt=False), version=5, **PROMPTS)
add(SENTENCES, "version 5: a prompt that is excluded from pooling", left_out, "sentences")

of_mpnet = sentences(pooling("mean"), ("Normalize", {}), base=encoder("Model", "MPNet"))
add(SENTENCES, "version 6: an MPNet", of_mpnet, "sentences")
of_distilbert = sentences(pooling("mean"), version=2, base=encoder("Model", "DistilBert", **DISTIL))
add(SENTENCES, "version 2: a DistilBERT", of_distilbert, "sentences")
narrow = ("Pooling", {"embedding_dimension": GEMMA2["embedding_dim"], "pooling_mode": "mean"})
of_gemma2 = sentences(narrow, ("Normalize", {}), base=encoder("Model", "EmbeddingGemma2Text", **GEMMA2))
add(SENTENCES, "version 6: a text model of EmbeddingGemma 2", of_gemma2, "sentences")

one_label = classifier(num_labels=1)


def of_class(name):
    return form(makers.with_keys("tokenizer_config.json", tokenizer_class=name), one_label)


for what, made in {
    "1 label, as transformers saves it": makers.scores(),
    "1 label of an ELECTRA, as transformers saves it": makers.scores(base=classifier("Electra", num_labels=1)),
    "version 6: a DeBERTa": makers.scores(6, base=classifier("DebertaV2", num_labels=1, **DEBERTA)),
    "1 label of a RoFormer, as transformers saves it": makers.scores(base=classifier("RoFormer", num_labels=1)),
    "3 labels, as transformers saves it": makers.scores(base=classifier()),
    "version 3: Identity": makers.scores(3, "Identity"),
    "version 5: Sigmoid": makers.scores(5, "Sigmoid"),
    "version 5: Identity": makers.scores(5, "Identity"),
    "version 5: Tanh, `regression`": makers.scores(5, "Tanh", classifier(num_labels=1, problem_type=makers.NUMBER)),
    "version 6: a prompt": makers.scores(6),
    "version 6: Identity, `truncation_side` left": makers.scores(6, "Identity", form(cut_left, one_label)),
    "version 6: a tokenizer without token types": makers.scores(6, base=of_class("TokenizersBackend")),
    "version 6: `PreTrainedTokenizerFast`": makers.scores(6, base=of_class("PreTrainedTokenizerFast")),
    "version 6: 3 labels": makers.scores(6, base=classifier()),
    "version 6 without `modules.json`: the default activation": makers.scores_without_modules,
}.items():
    add(SCORES, what, made, "scores")


def refuse(directory, make, refusal, command="embed", **more):
    CASES.append(Case(REFUSED, directory, make, refusal=refusal, command=command, **more))


TO_CONVERT = "python -m roformer_cpp.convert"
refuse("`pytorch_model.bin` without other weights", form(makers.pickled), TO_CONVERT)
refuse("the same with a head, to predict", form(makers.pickled, classifier()), TO_CONVERT, "predict")
refuse("a `Dense` whose weights are pickled", form(makers.pickled_dense, sentences(*FULL, version=3)), TO_CONVERT)
no_weights = form(makers.without("model.safetensors"), encoder("Model"))
refuse("no weights", no_weights, "must hold model.safetensors, got none")
refuse("one of several files of weights missing", form(makers.one_file_missing), "/model/model-00002-of-0000")
quantized = makers.with_keys("config.json", quantization_config={"quant_method": "bitsandbytes"})
refuse("quantised weights", form(quantized, decoder("llama")), "weights must not be quantised", "generate")
refuse("an adapter of PEFT without its model", makers.adapter, "got an adapter of PEFT")
refuse("a folder without a model", makers.plain_folder, "must hold the files of a model")
for name, model_type, changes in (
    ("SqueezeBertModel", "squeezebert", {"embedding_size": 32}),
    ("CodeGenForCausalLM", "codegen", {"rotary_dim": 8}),
    ("Qwen2MoeForCausalLM", "qwen2_moe", {"num_key_value_heads": 2}),
):
    command = "generate" if name.endswith(("LM", "LMHeadModel")) else "embed"
    refuse(f"`{name}`", makers.foreign(name, **changes), f'model_type "{model_type}" is not supported', command)
for what, name, base in (
    ("`modules.json`", "modules.json", sentences(pooling("cls"))),
    ("`tokenizer.json`", "tokenizer.json", encoder("Model")),
    ("weights", "model.safetensors", encoder("Model")),
):
    refuse(f"a link to missing {what}", form(makers.dangling(name), base), name)
refuse("`CLIPModel`", makers.clip, 'model_type "clip" is not supported')
part = "model-00002-of-00002.gguf"
refuse("a later part of a GGUF model", makers.gguf_parts, "must be opened by the first", "generate", file=part)
refuse("`BertForMaskedLM`, to predict", encoder("ForMaskedLM"), "must have a head of classification", "predict")
numbers = classifier(num_labels=3, problem_type=makers.NUMBER)
refuse("`regression` of 3 labels", numbers, "regression must have one label, a number, got 3", "predict")
twice = form(makers.with_keys("config.json", label2id=None), encoder("ForTokenClassification", **labels("aba")))
refuse("two labels of one name", twice, "id2label must give each label a name of its own, got a, b, a", "predict")
activations = "must be Identity, Sigmoid, Tanh or ReLU"
refuse("a CrossEncoder of version 5 with GELU", makers.scores(5, "GELU"), activations, "rerank")
refuse("a CrossEncoder, to embed", makers.scores(6), 'vectors need a SentenceTransformer, got a "CrossEncoder"')
of_vectors = 'scores of pairs need a CrossEncoder, got a "SentenceTransformer"'
refuse("a SentenceTransformer, to rerank", sentences(pooling("mean")), of_vectors, "rerank")
by_token = form(makers.logit_score, classifier(num_labels=1))
of_language = "scores of pairs need BertLMHeadModel, got BertForSequenceClassification"
refuse("a CrossEncoder with LogitScore on a classifier", by_token, of_language, "rerank")


# ---- the page


def table():
    lines = []
    for group in dict.fromkeys(case.group for case in CASES):
        lines += [f"| {group} | |", "|---|---|"] if not lines else [f"| **{group}** | |"]
        for case in (case for case in CASES if case.group == group):
            result = OPENED[case.opens] if case.opens else f"refused: {case.refusal}"
            lines.append(f"| {case.directory} | {result} |")
    return "\n".join(lines)


def page(text):
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
