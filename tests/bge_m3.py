"""Small directories of bge-m3 as FlagEmbedding publishes them, and its formulas in torch."""

import json

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from sentence_model import LETTERS, save_modules

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
WIDTH, LENGTH = 24, 16
M3_TEXTS = ["abc de", "", "the cat sat on the mat", "a", "words and words and more words to reach", "abc de", "x é!"]


def save_tokenizer(folder):
    """Unigram pieces of letters with the special tokens of XLM-R; capital letters and signs are unknown."""
    pieces = [(token, 0.0) for token in SPECIALS] + [("▁", -2.0)]
    pieces += [(mark + c, -3.0 - i / 10) for i, c in enumerate(LETTERS) for mark in ("▁", "")]
    pieces += [("▁the", -4.0), ("word", -4.5), ("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>")
    names |= dict(pad_token="<pad>", mask_token="<mask>", model_max_length=LENGTH)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return len(pieces)


def save_m3(folder, dimension=WIDTH):
    """Pickles of the encoder and of two heads, the tokenizer, and the files of sentence-transformers."""
    torch.manual_seed(6)
    config = transformers.XLMRobertaConfig(
        vocab_size=save_tokenizer(folder), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=40, max_position_embeddings=LENGTH + 2, type_vocab_size=1, pad_token_id=1,
    )  # fmt: skip
    encoder = transformers.XLMRobertaModel(config, add_pooling_layer=False)
    heads = {"colbert": torch.nn.Linear(WIDTH, dimension), "sparse": torch.nn.Linear(WIDTH, 1)}
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
        for head in heads.values():
            head.weight.normal_()
    encoder.eval().save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    buffers = {"embeddings.position_ids": torch.arange(LENGTH + 2)[None]}  # of older versions of transformers
    torch.save(encoder.state_dict() | buffers, folder / "pytorch_model.bin")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():  # half of the weights are positive
        states = [encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in M3_TEXTS[:4]]
        heads["sparse"].bias.sub_(heads["sparse"](torch.cat(states)).median())
    for name, head in heads.items():
        torch.save(head.state_dict(), folder / f"{name}_linear.pt")
    save_modules(folder, pooling={"pooling_mode_cls_token": True}, normalize=True)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": LENGTH, "do_lower_case": False}))
    return encoder, heads


def formulas(folder, encoder, heads, texts, max_length=LENGTH):
    """FlagEmbedding's: the normalised first state; of each token but special ones the largest relu(linear(state));
    normalised linear(state) of all tokens but the first."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    special = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        with torch.no_grad():
            states = encoder(torch.tensor([ids])).last_hidden_state[0]
            weights = torch.relu(heads["sparse"](states))[:, 0].tolist()
            tokens = torch.nn.functional.normalize(heads["colbert"](states[1:]), dim=-1)
        largest = {}
        for token, weight in zip(ids, weights, strict=True):
            if token not in special and weight > 0:
                largest[token] = max(weight, largest.get(token, 0))
        yield torch.nn.functional.normalize(states[0], dim=-1).numpy(), largest, tokens.numpy()
