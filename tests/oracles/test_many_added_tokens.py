"""10,000 added tokens that begin alike, from every file that may hold them, against `tokenizers`. Opening takes time in
proportion to their number: 0.4 s for 100,000."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

import roformer_cpp

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
TOKENS = [f"<{'reserved_' * 8}token_{i:05}>" for i in range(10_000)]
TEXT = f"a {TOKENS[0]}b{TOKENS[9_999]} {TOKENS[77][:-1]} h"


def write_json(folder, oracle):
    oracle.save(str(folder / "tokenizer.json"))
    return {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}


def write_decoder(folder, oracle):
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    added = {len(VOCAB) + i: {"content": token, "special": True} for i, token in enumerate(TOKENS)}
    return {"tokenizer_class": "BertTokenizer", "added_tokens_decoder": added}


def write_map(folder, oracle):
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    (folder / "added_tokens.json").write_text(json.dumps({token: len(VOCAB) + i for i, token in enumerate(TOKENS)}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": TOKENS}))
    return {"tokenizer_class": "BertTokenizer"}


@pytest.mark.parametrize("write", [write_json, write_decoder, write_map])
def test_ids(write, tmp_path):
    oracle = Tokenizer(models.WordPiece({token: i for i, token in enumerate(VOCAB)}, unk_token="[UNK]"))
    oracle.normalizer, oracle.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    oracle.add_tokens([AddedToken(token, special=True, normalized=False) for token in TOKENS])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(write(tmp_path, oracle)))
    ours = roformer_cpp.Tokenizer.from_pretrained(tmp_path)(TEXT)["input_ids"]
    assert [id for id in ours if id not in (2, 3)] == oracle.encode(TEXT).ids
