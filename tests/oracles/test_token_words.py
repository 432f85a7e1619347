"""Labels of words: each word is tokenized alone, and its first piece has the label, as with transformers'
is_split_into_words."""

import random

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import roformer_cpp
from parity_case import perturbed

LETTERS = "abcde東京日本"
WORDS = ["日本", "the", "a", "bad", "東京", "cab", "e-d", "é", "日本a"]


def unigram():
    pieces = [(piece, -float(len(piece) == 1)) for piece in ["<s>", "<pad>", "</s>", "<unk>"]]
    pieces += [("▁", -8.0), *((letter, -6.0) for letter in LETTERS)]
    pieces += [("▁the", -3.0), ("ad", -4.0), ("東京", -5.0), ("日本", -5.0), ("▁a", -4.0), ("<mask>", 0.0)]
    made = Tokenizer(models.Unigram(pieces, unk_id=3))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


def byte_pairs(add_prefix_space):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ad", "Ġa"]
    made = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [("a", "d"), ("Ġ", "a")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    return made


@pytest.mark.parametrize("make", [unigram, lambda: byte_pairs(True), lambda: byte_pairs(False)])
def test_the_first_piece_of_each_word(make, tmp_path):
    made, names = make(), ("<s>", "<pad>", "</s>", "<unk>")
    made.add_special_tokens([*names, "<mask>"])
    ends = [(name, made.token_to_id(name)) for name in ("<s>", "</s>")]
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    roles = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), names, strict=True))
    roles |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **roles)
    theirs.save_pretrained(tmp_path)
    torch.manual_seed(8)
    sizes = dict(vocab_size=len(theirs), hidden_size=24, num_hidden_layers=2, num_attention_heads=2)
    sizes |= dict(intermediate_size=36, max_position_embeddings=90, pad_token_id=1, num_labels=5)
    model = perturbed(transformers.XLMRobertaForTokenClassification(transformers.XLMRobertaConfig(**sizes)))
    model.save_pretrained(tmp_path)
    engine, rng = roformer_cpp.Engine(tmp_path), random.Random(3)
    for count in (1, 4, 8):
        words = rng.choices(WORDS, k=count)
        batch = theirs(words, is_split_into_words=True, return_tensors="pt")
        best = model(**batch).logits[0].argmax(-1).tolist()
        first = [batch.word_ids(0).index(word) for word in range(count)]
        assert engine.predict({"tokens": words})["labels"] == [f"LABEL_{best[place]}" for place in first]
