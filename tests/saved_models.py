"""The table of model directories as transformers and sentence-transformers save them: every head, every form of the
files, versions of sentence-transformers; and of directories that are refused. tests/oracles/test_saved_models.py opens
them all.

    python tests/saved_models.py        writes the table of docs/saved-models.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saved_model_makers import (
    FULL,
    LABELS,
    NUMBER,
    ONE,
    PROMPTS,
    SEVERAL,
    adapter,
    as_transformers_4,
    clip,
    converted,
    dangling,
    decoder,
    encoder,
    foreign,
    form,
    gguf_parts,
    in_dtype,
    in_shards,
    in_the_hub_cache,
    labels,
    more_tokens,
    of_a_trainer,
    one_file_missing,
    pickled,
    pickled_dense,
    plain_folder,
    pooling,
    prefixed,
    quantized,
    qwen2_tokenizer,
    sentences,
    tokenizer_alone,
    vocabulary_alone,
    without,
    without_pooler,
)

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
    "logits": "`forward`, `embed`",
    "sentences": "`embed`, `SentenceTransformer`",
}


# ---- the table

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 16}
BIASED = {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}
HEADS, FORMS, SENTENCES, REFUSED = "Heads", "Forms of the files", "sentence-transformers", "Refused"
CASES: list[Case] = []


def add(group, directory, make, opens="", **more):
    CASES.append(Case(group, directory, make, opens, **more))


for family, causal in (("Bert", "LMHeadModel"), ("RoFormer", "ForCausalLM")):
    add(HEADS, f"`{family}Model`", encoder("Model", family), "hidden")
    add(HEADS, f"`{family}ForMaskedLM`", encoder("ForMaskedLM", family), "fill-mask")
    add(HEADS, f"`{family}{causal}`", encoder(causal, family), "generate")
    for kind, count in ((ONE, 3), (SEVERAL, 3), (NUMBER, 1)):
        made = encoder("ForSequenceClassification", family, **labels(LABELS[:count], kind))
        add(HEADS, f"`{family}ForSequenceClassification`, `{kind}`", made, "classes")
    add(
        HEADS,
        f"`{family}ForTokenClassification`",
        encoder("ForTokenClassification", family, **labels(LABELS)),
        "logits",
    )
    add(HEADS, f"`{family}ForQuestionAnswering`", encoder("ForQuestionAnswering", family), "logits")
    add(HEADS, f"`{family}ForMultipleChoice`", encoder("ForMultipleChoice", family), "logits")
add(HEADS, "`BertForPreTraining`", encoder("ForPreTraining"), "fill-mask")
add(HEADS, "`LlamaForCausalLM`", decoder("llama"), "generate")
add(HEADS, "`LlamaForCausalLM`, tied embeddings", decoder("llama", tie_word_embeddings=True), "generate")
add(HEADS, "`MistralForCausalLM`", decoder("mistral"), "generate")
add(HEADS, "`Qwen2ForCausalLM`", decoder("qwen2"), "generate")
add(HEADS, "`GPTNeoXForCausalLM`", decoder("gpt_neox"), "generate")

add(FORMS, "several files of weights with an index", form(in_shards), "fill-mask")
add(FORMS, "a decoder in several files", form(in_shards, decoder("llama")), "generate")
add(FORMS, "float16", form(in_dtype("float16")), "fill-mask")
add(FORMS, "bfloat16", form(in_dtype("bfloat16"), decoder("qwen2")), "generate")
add(FORMS, "`pytorch_model.bin`, after `roformer_cpp.convert`", form(converted), "fill-mask")
add(FORMS, "keys, names of weights and tokenizer files of transformers 4", form(as_transformers_4), "fill-mask")
add(FORMS, "`vocab.txt` alone as the tokenizer", form(vocabulary_alone), "fill-mask")
add(FORMS, "`tokenizer.json` alone as the tokenizer", form(tokenizer_alone), "fill-mask")
add(FORMS, "a checkpoint of `Trainer`, with its states", form(of_a_trainer), "fill-mask")
add(FORMS, "a snapshot in the hub cache, made of links", form(in_the_hub_cache), "fill-mask")

add(FORMS, "tokens added, embeddings padded to a multiple of 64", form(more_tokens), "fill-mask")
add(FORMS, "a causal encoder so padded", form(more_tokens, encoder("ForCausalLM", "RoFormer")), "generate")
for prefix, what in (("_orig_mod.", "`torch.compile`"), ("module.", "`DataParallel`")):
    add(FORMS, f"weights of a model in {what}, with the prefix `{prefix}`", form(prefixed(prefix)), "fill-mask")
add(FORMS, "a decoder with tokens added and embeddings padded", form(more_tokens, decoder("llama")), "generate")
add(FORMS, "`BertModel` without a pooler", without_pooler, "hidden")
add(
    FORMS,
    "`RoFormerForMaskedLM`, smaller `embedding_size`",
    encoder("ForMaskedLM", "RoFormer", embedding_size=24),
    "fill-mask",
)
add(FORMS, "float64", form(in_dtype("float64")), "fill-mask")
add(FORMS, "`LlamaForCausalLM` with biases and `llama3` scaling", decoder("llama", **BIASED), "generate")

for version in (3, 5, 6):
    made = sentences(*FULL, version=version, **PROMPTS)
    add(SENTENCES, f"version {version}: two poolings, `Dense`, `Normalize`, prompts, similarity", made, "sentences")
for mode in ("mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens"):
    add(SENTENCES, f"version 3: pooling `{mode}`", sentences(pooling(mode), version=3), "sentences")
add(SENTENCES, "version 6: `truncate_dim`", sentences(pooling("mean"), truncate_dim=7), "sentences")
add(SENTENCES, "version 2: the encoder in `0_Transformer`", sentences(*FULL, version=2), "sentences")
default = {"prompts": {"q": "find: "}, "default_prompt_name": "q"}
add(SENTENCES, "version 5: a default prompt", sentences(pooling("mean"), version=5, **default), "sentences")
left_out = sentences(pooling("mean", include_prompt=False), version=5, **PROMPTS)
add(SENTENCES, "version 5: a prompt that poolings leave out", left_out, "sentences")


def refuse(directory, make, refusal, command="embed", **more):
    CASES.append(Case(REFUSED, directory, make, refusal=refusal, command=command, **more))


refuse("`pytorch_model.bin` without other weights", form(pickled), "python -m roformer_cpp.convert")
refuse("a `Dense` whose weights are pickled", pickled_dense, "python -m roformer_cpp.convert")
refuse("no weights", without("model.safetensors", encoder("Model")), "must hold model.safetensors, got none")
refuse("one of several files of weights missing", one_file_missing, "/model/model-00002-of-0000")
refuse("pooling `weightedmean`", sentences(pooling("weightedmean")), "the pooling mode must be")
refuse("quantised weights", form(quantized, decoder("llama")), "weights must not be quantised", "generate")
refuse("Qwen2's own tokenizer", qwen2_tokenizer, "must be GPT-2's expression", "generate")
refuse("an adapter of PEFT without its model", adapter, "got an adapter of PEFT")
refuse("a folder without a model", plain_folder, "must hold the files of a model")
GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
for name, model_type, changes in (
    ("XLMRobertaModel", "xlm-roberta", {}),
    ("RobertaModel", "roberta", {}),
    ("ModernBertModel", "modernbert", {"pad_token_id": 1}),
    ("DistilBertModel", "distilbert", {"dim": 32, "hidden_dim": 48, "n_heads": 2, "n_layers": 2}),
    ("DebertaV2Model", "deberta-v2", {}),
    ("MPNetModel", "mpnet", {}),
    ("Qwen3ForCausalLM", "qwen3", GROUPED),
    ("GemmaForCausalLM", "gemma", GROUPED),
    ("GPT2LMHeadModel", "gpt2", {"n_embd": 32, "n_head": 2, "n_layer": 2}),
    ("Phi3ForCausalLM", "phi3", {"num_key_value_heads": 2, "pad_token_id": 0}),
):
    command = "generate" if name.endswith(("LM", "LMHeadModel")) else "embed"
    refuse(f"`{name}`", foreign(name, **changes), f'got "{model_type}"', command)
refuse("a link to a missing `modules.json`", dangling("modules.json", sentences(pooling("cls"))), "modules.json")
refuse("a link to a missing `tokenizer.json`", dangling("tokenizer.json", encoder("Model")), "tokenizer.json")
refuse("a link to missing weights", dangling("model.safetensors", encoder("Model")), "model.safetensors")
refuse("`CLIPModel`", clip, 'got "clip"')
part = "model-00001-of-00002.gguf"
refuse("one part of a GGUF file", gguf_parts, "llama-gguf-split --merge", "generate", file=part)


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
