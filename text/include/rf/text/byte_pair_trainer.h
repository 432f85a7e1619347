// Trains byte-level BPE, the tokenizer of translation: GPT-2's words as bytes, whose most frequent pairs are merged.
// The tokens and merges equal the results of BpeTrainer in the library `tokenizers` with the alphabet of its ByteLevel
// pre-tokenizer. They can represent any text, and decoding restores it exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "rf/text/tokenizer.h"

namespace rf::text {

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
