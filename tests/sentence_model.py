"""Small sentence encoders: a random model of transformers with a tokenizer of letters and the files that
sentence-transformers writes, and the vectors that torch and transformers' tokenizer give for them."""

import json

import torch
import transformers
from safetensors.torch import save_file

from engine_case import make_oracle

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *("##" + c for c in LETTERS), *"0123"]  # 61
TEXTS = ["abc de", "", "the cat sat", "a", "words and words and more words to reach the limit", "abc de", "  x  ", "?!"]


def save_tokenizer(folder, **settings):
    """The tokenizer of letters."""
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | settings))


def save_encoder(folder, family="Bert", max_length=24, **changes):
    model = make_oracle(family, "Model", **changes)
    model.save_pretrained(folder)
    save_tokenizer(folder, do_lower_case=True, model_max_length=max_length)
    return model


def save_sentences(folder):
    """A sentence-transformers model, whose vectors have unit norms."""
    save_encoder(folder)
    save_modules(folder, normalize=True)
    return folder


def save_masked(folder, vocab_size=None):
    """A masked language model of transformers."""
    make_oracle("Bert", "ForMaskedLM", vocab_size=vocab_size or len(WORDS)).save_pretrained(folder)
    save_tokenizer(folder, do_lower_case=True, model_max_length=24)
    return folder


def save_sparse(folder):
    """A SparseEncoder of sentence-transformers."""
    save_masked(folder)
    write_modules(folder, [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")])
    write_json(folder / "1_SpladePooling/config.json", {"pooling_strategy": "max"})
    write_json(folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder"})


def save_late(folder):
    """A MultiVectorEncoder of sentence-transformers."""
    save_encoder(folder)
    save_modules(folder, normalize=True, model_type="MultiVectorEncoder", prompts={"query": "q ", "document": "d "})
    write_modules(folder, [("", "Transformer"), ("2_Normalize", "Normalize")])
    return folder


def save_classifier(folder, labels):
    """A classifier of transformers of texts and pairs, with the tokenizer of letters."""
    oracle = make_oracle("Bert", "ForSequenceClassification", num_labels=labels, type_vocab_size=2)
    oracle.save_pretrained(folder)
    save_tokenizer(folder)
    return oracle, transformers.BertTokenizer(str(folder / "vocab.txt"))


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_modules(folder, modules):
    """modules: the path of each, and the library's class or the whole name of another."""
    types = [kind if "." in kind else f"sentence_transformers.models.{kind}" for _, kind in modules]
    entries = [{"idx": i, "name": str(i), "path": path, "type": types[i]} for i, (path, _) in enumerate(modules)]
    write_json(folder / "modules.json", entries)


def save_modules(folder, pooling=None, dense=(), normalize=False, encoder="", extra=(), **model_config):
    """dense: (torch.nn.Linear, activation). pooling: what 1_Pooling/config.json says. extra: further modules."""
    modules = [(encoder, "Transformer"), ("1_Pooling", "Pooling")]
    write_json(folder / "1_Pooling/config.json", pooling or {"pooling_mode": "mean"})
    for linear, activation in dense:
        name = f"{len(modules)}_Dense"
        config = {"in_features": linear.in_features, "out_features": linear.out_features}
        config |= {"bias": linear.bias is not None, "activation_function": activation}
        write_json(folder / name / "config.json", config)
        save_file(
            {"linear." + k: v.detach() for k, v in linear.named_parameters()}, folder / name / "model.safetensors"
        )
        modules.append((name, "Dense"))
    if normalize:
        name = f"{len(modules)}_Normalize"
        modules.append((name, "Normalize"))
        if model_config.get("model_type") == "MultiVectorEncoder":
            write_json(folder / name / "config.json", {"module_input_name": "token_embeddings"})
    write_modules(folder, [*modules, *extra])
    if model_config:
        write_json(folder / "config_sentence_transformers.json", model_config)


POOLINGS = {
    "mean": lambda x: x.mean(0),
    "cls": lambda x: x[0],
    "lasttoken": lambda x: x[-1],
    "max": lambda x: x.max(0).values,
    "weightedmean": lambda x: x.mul(torch.arange(1, len(x) + 1)[:, None]).sum(0) / sum(range(1, len(x) + 1)),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / len(x) ** 0.5,
}


def hidden_states(folder, model, texts, max_length=24):
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))
    with torch.no_grad():
        for text in texts:
            ids = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
            yield model(**ids).last_hidden_state[0]


def expected(folder, model, texts, poolings=("mean",), steps=(), skipped=0, max_length=24):
    """skipped: tokens at the front that poolings leave out."""
    rows = []
    for x in hidden_states(folder, model, texts, max_length):
        row = torch.cat([POOLINGS[name](x[skipped:]) for name in poolings])
        for step in steps:
            row = step(row)
        rows.append(row)
    return torch.stack(rows).detach().numpy()


def unit(x):
    return torch.nn.functional.normalize(x, dim=-1)
