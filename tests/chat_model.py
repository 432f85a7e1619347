"""A random perturbed Llama with a chat template, and its conversations by transformers."""

import itertools
import json

from rotary_decoders import SPECIALS, make_decoder, make_tokenizer

VOCAB = 330
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_chat_model(folder, template=TEMPLATE, **changes):
    """transformers' model and tokenizer of a folder."""
    import transformers

    oracle = make_decoder("llama", folder, **(dict(vocab_size=VOCAB, max_position_embeddings=512) | changes))
    make_tokenizer(size=VOCAB).save(str(folder / "tokenizer.json"))
    keys = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIALS[1], "eos_token": SPECIALS[2]}
    (folder / "tokenizer_config.json").write_text(json.dumps(keys | {"chat_template": template}))
    return oracle, transformers.AutoTokenizer.from_pretrained(folder)


def save_channel_model(folder, channel="analysis"):
    """A model that answers with a message of a channel, as gpt-oss writes it: "The7"."""
    import torch
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer

    _, tokenizer = save_chat_model(folder, TEMPLATE + "{# <|channel|> #}", vocab_size=VOCAB + 4, eos_token_id=VOCAB + 2)
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    own.add_special_tokens(["<|channel|>", "<|message|>", "<|return|>"])
    own.add_tokens([channel])
    own.save(str(folder / "tokenizer.json"))
    answer = ["<|channel|>", channel, "<|message|>", "The", "7", "<|return|>"]
    last = tokenizer.encode("assistant\n")[-1]
    path, ids = folder / "model.safetensors", [last, *map(own.token_to_id, answer)]
    weights = {name: torch.full_like(x, "norm" in name) for name, x in load_file(path).items()}
    for at, (token, following) in enumerate(itertools.pairwise(ids)):
        weights["model.embed_tokens.weight"][token, at] = weights["lm_head.weight"][following, at] = 1
    save_file(weights, path, {"format": "pt"})


def answer(oracle, tokenizer, messages, count, **options):
    """The text of a greedy answer, and the tokens of its prompt."""
    options = dict(add_generation_prompt=True, return_tensors="pt", return_dict=False) | options
    ids = tokenizer.apply_chat_template(messages, **options)
    out = oracle.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=2)
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True), ids.shape[1]
