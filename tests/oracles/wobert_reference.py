"""The original WoBERT and RoFormer tokenizer, composed of other people's parts as `transformers` 4 did it: lower case
character by character, rjieba without its hidden Markov model, transformers' bert.tokenization_bert_legacy for the
words that the vocabulary has not.
"""

import re

import rjieba
from transformers.models.bert import tokenization_bert_legacy as legacy

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class WobertReference:
    """Ids and the characters of the text they come from."""

    def __init__(self, tokens, case):
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.lower = case == "lower"
        self.basic = legacy.BasicTokenizer(do_lower_case=self.lower)
        self.pieces = legacy.WordpieceTokenizer(vocab=self.ids, unk_token="[UNK]", max_input_chars_per_word=100)

    def encode(self, text):
        found = []
        at = 0
        for part in re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text):
            if part in SPECIALS:
                found.append((self.ids[part], at, at + len(part)))
            else:
                found += self.encode_part(part, at)
            at += len(part)
        return found

    def encode_part(self, part, at):
        sources = []  # of each character in lower case
        lowered = ""
        for i, char in enumerate(part, at):
            lower = char.lower() if self.lower else char
            lowered += lower
            sources += [i] * len(lower)
        first = 0
        for word in rjieba.cut(lowered, False):
            where = sources[first : first + len(word)]
            first += len(word)
            if word in self.ids:
                yield self.ids[word], where[0], where[-1] + 1
            else:
                yield from self.encode_unknown(word, where)

    def encode_unknown(self, word, where):
        """A word of several characters is one of a run, whose characters the steps of BERT keep one to one."""
        begin = 0
        for token in self.basic.tokenize(word, never_split=SPECIALS):
            pieces = self.pieces.tokenize(token)
            lengths = [len(token)] if pieces == ["[UNK]"] else [len(piece.removeprefix("##")) for piece in pieces]
            for piece, length in zip(pieces, lengths, strict=True):
                if len(word) == 1:
                    yield self.ids[piece], where[0], where[0] + 1
                else:
                    yield self.ids[piece], where[begin], where[begin + length - 1] + 1
                begin += length
        assert len(word) == 1 or begin in (len(word), 0), ascii(word)
