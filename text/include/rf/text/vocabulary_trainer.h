// Trains vocabularies: words are counted, then pairs of pieces are merged by frequency.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "rf/text/tokenizer.h"

namespace rf::text {

// Trains a WordPiece vocabulary (spec R-TOK-07): byte-pair merges over characters with "##" continuations, as in
// `tokenizers`' trainer for BERT. Deterministic: ties go to the lexicographically smaller pair.
struct VocabularyTrainerOptions {
  int64_t size = 8000;          // total, including special tokens
  int64_t min_frequency = 2;    // pairs that occur less often are not merged
  int64_t max_alphabet = 6000;  // the most frequent characters are kept
  Case letter_case = Case::kLower;
};

class VocabularyTrainer {
 public:
  explicit VocabularyTrainer(VocabularyTrainerOptions options);
  void add(std::string_view text);  // counts the words of a text
  // [PAD] [UNK] [CLS] [SEP] [MASK], then the alphabet, then merged pieces. Throws Error if no word was added or `size`
  // is below the number of special tokens and characters. The result has fewer than `size` tokens if the text runs out
  // of pairs. `tick` receives the number of tokens so far.
  Vocabulary train(const std::function<void(int64_t tokens)>& tick = {}) const;

 private:
  VocabularyTrainerOptions options_;
  std::unordered_map<std::string, int64_t> word_counts_;
};

// Trains byte-level BPE, the tokenizer of translation: GPT-2's words as bytes, whose most frequent pairs are merged.
// The tokens and merges equal the results of BpeTrainer in the library `tokenizers` with the alphabet of its ByteLevel
// pre-tokenizer. They can represent any text, and decoding restores it exactly.
struct BytePairTrainerOptions {
  int64_t size = 8000;        // total, with the special tokens and the 256 bytes
  int64_t min_frequency = 2;  // pairs that occur less often are not merged
};

class BytePairTrainer {
 public:
  explicit BytePairTrainer(BytePairTrainerOptions options);
  void add(std::string_view text);  // counts the words of a text
  // <pad> </s> <unk>, the bytes, then the merged tokens; a text is encoded as its tokens and </s>. Throws Error if no
  // word was added or `size` is below the number of special tokens and bytes. `tick` receives the number of tokens so
  // far.
  Tokenizer train(const std::function<void(int64_t tokens)>& tick = {}) const;

 private:
  BytePairTrainerOptions options_;
  std::unordered_map<std::string, int64_t> word_counts_;  // words as bytes
};

}  // namespace rf::text
