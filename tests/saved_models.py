"""Model directories as transformers and sentence-transformers save them: every head, every form of the files, three
versions of sentence-transformers; and directories that are refused. tests/oracles/test_saved_models.py opens them all.

    python tests/saved_models.py        writes the table of docs/saved-models.md
"""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "saved-models.md"
BEGIN = "<!-- table: tests/saved_models.py writes what is between these lines -->"
END = "<!-- end of the table -->"

LABELS = ["bad", "good", "fair"]
ENCODER = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=64,
    type_vocab_size=2,
)
DECODER = {key: value for key, value in ENCODER.items() if key != "type_vocab_size"}
ONE, SEVERAL, NUMBER = "single_label_classification", "multi_label_classification", "regression"


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
    "logits": "`forward`, `load_model`, `embed`",
    "sentences": "`embed`, `SentenceTransformer`",
}


# ---- models and tokenizers


def saved(folder, model, tokenizer=True, **options):
    """Saves a model whose parameters are moved by N(0, 0.3), with the tokenizer that all share."""
    import torch

    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # the table of rotations is not
                parameter.add_(0.3 * torch.randn(parameter.shape))
    model.eval().save_pretrained(folder, **options)
    if tokenizer:
        word_pieces(folder).save_pretrained(folder)
    return model


def word_pieces(folder, **options):
    import transformers

    from sentence_model import WORDS

    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64, **options)
    (folder / "vocab.txt").unlink()
    return tokenizer


def encoder(head, family="Bert", **changes):
    """A function that saves an encoder with a head."""

    def make(folder):
        import transformers

        from sentence_model import WORDS

        sizes = ENCODER | {"vocab_size": len(WORDS)} | changes
        if head.endswith(("LMHeadModel", "ForCausalLM")):
            sizes["is_decoder"] = True
        config = getattr(transformers, f"{family}Config")(**sizes)
        return saved(folder, getattr(transformers, family + head)(config))

    return make


def labels(names, kind=None):
    named = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    return named | ({"problem_type": kind} if kind else {})


def decoder(name, **changes):
    """A function that saves a causal language model with a tokenizer of byte pairs."""

    def make(folder):
        import transformers

        from rotary_decoders import FAMILIES, SPECIALS, make_tokenizer

        config, model, own = FAMILIES[name]
        pieces = make_tokenizer()
        sizes = DECODER | {"vocab_size": pieces.get_vocab_size(), "bos_token_id": 1, "eos_token_id": 0} | own | changes
        oracle = saved(folder, getattr(transformers, model)(getattr(transformers, config)(**sizes)), tokenizer=False)
        transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token=SPECIALS[0]).save_pretrained(folder)
        return oracle

    return make


def change_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2))


def change_weights(folder, change):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


# ---- forms of one model


def form(change, base=None):
    """A function that saves a masked language model, or `base`, and changes the directory."""

    def make(folder):
        model = (base or encoder("ForMaskedLM"))(folder)
        return change(folder, model) or model

    return make


def in_shards(folder, model):
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


def more_tokens(folder, model):
    """Tokens that were added, and embeddings padded to a multiple of 64: more rows than tokens."""
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert tokenizer.add_tokens(["newword", "another one"]) == 2
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64, mean_resizing=False)
    assert model.config.vocab_size > len(tokenizer)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def without_pooler(folder):
    import transformers

    from sentence_model import WORDS

    config = transformers.BertConfig(**ENCODER, vocab_size=len(WORDS))
    return saved(folder, transformers.BertModel(config, add_pooling_layer=False))


def in_dtype(name):
    def change(folder, model):
        import torch

        model.to(getattr(torch, name)).save_pretrained(folder)
        return type(model).from_pretrained(folder, dtype=torch.float32)

    return change


def pickled(folder, model):
    import torch

    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def converted(folder, model):
    import roformer_cpp

    old = folder.with_name(folder.name + "-old")
    folder.rename(old)
    pickled(old, model)
    roformer_cpp.convert(old, folder)


def as_transformers_4(folder, model):
    """Keys of a BERT that transformers 4.0 saved, names of TensorFlow's layer norms and a stored range of positions."""
    import torch

    def keys(config):
        for key in ("dtype", "classifier_dropout", "is_decoder", "add_cross_attention", "tie_word_embeddings"):
            config.pop(key, None)
        config.update(_name_or_path="bert-base-uncased", gradient_checkpointing=False, torch_dtype="float32")
        config.update(position_embedding_type="absolute", transformers_version="4.6.0.dev0", use_cache=True)

    def names(tensors):
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        return renamed | {"bert.embeddings.position_ids": torch.arange(64)[None]}

    change_json(folder / "config.json", keys)
    change_weights(folder, names)
    (folder / "tokenizer.json").unlink()
    named = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    named |= {"mask_token": "[MASK]"}
    settings = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None, "never_split": None}
    settings |= {"do_basic_tokenize": True, "name_or_path": "bert-base-uncased", "tokenizer_class": "BertTokenizer"}
    settings |= {"special_tokens_map_file": None, "model_max_length": 64}
    write_vocabulary(folder)
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | named))


def write_vocabulary(folder):
    from sentence_model import WORDS

    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


def vocabulary_alone(folder, model):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    write_vocabulary(folder)


def tokenizer_alone(folder, model):
    (folder / "tokenizer_config.json").unlink()


def of_a_trainer(folder, model):
    """What Trainer saves beside a model."""
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"PK\x03\x04")
    (folder / "trainer_state.json").write_text('{"global_step": 10}')


def in_the_hub_cache(folder, model):
    """A snapshot: files are links to blobs that are named after their content."""
    blobs = folder.parent / (folder.name + "-blobs")
    blobs.mkdir()
    for path in list(folder.iterdir()):
        blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(blob)
        path.symlink_to(Path("..") / blobs.name / blob.name)


# ---- sentence-transformers


def sentences(*modules, version=6, max_length=12, **options):
    """A function that saves a sentence encoder; the names of modules and their arguments, from pooling on."""

    def make(folder):
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import modules as kinds

        base = folder.with_name(folder.name + "-encoder")
        encoder("Model")(base)
        torch.manual_seed(2)
        made = [getattr(kinds, name)(**arguments) for name, arguments in modules]
        first = kinds.Transformer(str(base), max_seq_length=max_length)
        model = SentenceTransformer(modules=[first, *made], device="cpu", **options)
        model.save(str(folder), create_model_card=False)
        if version < 6:
            as_sentence_transformers(folder, version, max_length)
        return SentenceTransformer(str(folder), device="cpu")

    return make


def as_sentence_transformers(folder, version, max_length):
    """The files that versions 2 to 5 write where 6 writes others."""
    switches = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")

    def old_pooling(config):
        modes = config.pop("pooling_mode")
        modes = [modes] if isinstance(modes, str) else modes
        included = config.pop("include_prompt")
        config["word_embedding_dimension"] = config.pop("embedding_dimension")
        config |= {
            f"pooling_mode_{name}": name.removesuffix("_token").removesuffix("_tokens") in modes for name in switches
        }
        config["include_prompt"] = included

    def old_names(modules):
        for module in modules:
            module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]

    def old_model(config):
        config["__version__"]["sentence_transformers"] = {2: "2.0.0", 3: "3.4.1", 4: "4.1.0", 5: "5.1.0"}[version]
        config.pop("truncate_dim", None)
        if version < 5:
            del config["model_type"]
            config["prompts"].pop("document", None)

    change_json(folder / "modules.json", old_names)
    change_json(folder / "1_Pooling" / "config.json", old_pooling)
    change_json(folder / "config_sentence_transformers.json", old_model)
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": max_length, "do_lower_case": False})
    )
    for path in folder.glob("*_Dense/config.json"):
        change_json(path, lambda config: [config.pop(f"module_{end}_name") for end in ("input", "output")])
    for path in folder.glob("*_Normalize/config.json"):
        path.unlink()
    if version == 2:
        encoder = folder / "0_Transformer"
        encoder.mkdir()
        for path in [*folder.glob("*.json"), *folder.glob("*.safetensors")]:
            if path.name not in ("modules.json", "config_sentence_transformers.json"):
                path.rename(encoder / path.name)
        change_json(folder / "modules.json", lambda modules: modules[0].update(path=encoder.name))
        versions = {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"__version__": versions}))


def pooling(*modes, **options):
    return ("Pooling", {"embedding_dimension": 32, "pooling_mode": modes if len(modes) > 1 else modes[0], **options})


def dense(inputs, outputs, **options):
    return ("Dense", {"in_features": inputs, "out_features": outputs, **options})


NORMALIZE = ("Normalize", {})
FULL = (pooling("cls", "mean"), dense(64, 16), NORMALIZE)
PROMPTS = {"prompts": {"query": "find: "}, "similarity_fn_name": "dot"}


# ---- what is refused


def clip(folder):
    import transformers

    small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2)
    config = transformers.CLIPConfig(text_config=small | {"vocab_size": 60}, vision_config=small | {"image_size": 32})
    saved(folder, transformers.CLIPModel(config))


def gguf_parts(folder):
    from rotary_decoders import make_decoder, write_gguf

    folder.mkdir()
    write_gguf(make_decoder("llama"), folder / "model.gguf", split_max_tensors=16)


def without(name, base):
    return form(lambda folder, model: (folder / name).unlink(), base)


def one_file_missing(folder):
    form(in_shards)(folder)
    next(folder.glob("model-00002-*")).unlink()


def qwen2_tokenizer(folder):
    """With the tokenizer that transformers' class of the family writes."""
    import transformers

    decoder("qwen2")(folder)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def pickled_dense(folder):
    import torch
    from safetensors.torch import load_file

    sentences(*FULL, version=3)(folder)
    weights = folder / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()


def quantized(folder, model):
    change_json(folder / "config.json", lambda c: c.update(quantization_config={"quant_method": "bitsandbytes"}))


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
        add(HEADS, f"`{family}ForSequenceClassification`, `{kind}`", made, "logits")
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
    sys.path.insert(0, str(ROOT / "tests"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
