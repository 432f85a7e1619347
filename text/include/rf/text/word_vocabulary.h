// Words for a vocabulary of characters, by WoBERT's rule (spec R-TOK-06): the most frequent words that the segmenter
// finds become tokens, and the embedding of each starts as the mean of its characters' embeddings. Words consist of at
// least two Han characters and nothing else; pieces "##x" of a Han character x are removed, because such a character is
// always a separate word for WordPiece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::text {

struct WordVocabulary {
  Vocabulary vocabulary;
  std::vector<AddedToken> added;  // the base tokenizer's, with their ids in the vocabulary
  // For each token, the ids in the base vocabulary it was made from: a single id for an existing token, the ids of the
  // characters for a new word. An embedding is the mean of their embeddings.
  std::vector<std::vector<int32_t>> sources;
};

class WordVocabularyBuilder {
 public:
  // Starts from the base tokenizer's vocabulary and uses its letter case.
  WordVocabularyBuilder(const Tokenizer& base, std::shared_ptr<const Dictionary> dictionary)
      : base_(base), segmenter_(std::move(dictionary)) {}

  void add(std::string_view text);  // counts the words of a text
  // The tokens of the base model in their order, then at most `words` new ones, the most frequent first, ties by their
  // text, then the base's added tokens. Throws Error if `words` is below 1 or no word occurred `min_frequency` times.
  WordVocabulary build(int64_t words, int64_t min_frequency) const;

 private:
  Tokenizer base_;
  Segmenter segmenter_;
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace rf::text
