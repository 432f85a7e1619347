// Words for a vocabulary of characters, by WoBERT's rule (spec R-TOK-06): the most frequent words that the segmenter
// finds become tokens, and each begins as the mean of what its characters were. Words are Han characters only, two at
// least; pieces "##x" of a Han character x go, since such characters never stand inside a word of WordPiece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::text {

struct WordVocabulary {
  Vocabulary vocabulary;
  std::vector<AddedToken> added;  // the base's, with their ids in the vocabulary
  // For each token, the ids in the vocabulary it was made from: one for a token that was there before, those of the
  // characters for a new word. An embedding is the mean of theirs.
  std::vector<std::vector<int32_t>> sources;
};

class WordVocabularyBuilder {
 public:
  // The base tokenizer's vocabulary is the one to start from; its letter case is followed.
  WordVocabularyBuilder(const Tokenizer& base, std::shared_ptr<const Dictionary> dictionary);
  ~WordVocabularyBuilder();

  void add(std::string_view text);  // counts the words of a text
  // The tokens of the base's model in their order, then at most `words` new ones, the most frequent first, ties by
  // their text, then the base's added tokens. Throws Error when words is below 1 or no word was counted `min_frequency`
  // times.
  WordVocabulary build(int64_t words, int64_t min_frequency) const;

 private:
  class Counter;
  Tokenizer base_;
  std::unique_ptr<Counter> counter_;
};

}  // namespace rf::text
