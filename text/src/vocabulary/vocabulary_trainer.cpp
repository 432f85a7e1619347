// Byte-pair merges over the characters of distinct words (pair_merger.h).
#include "rf/text/vocabulary_trainer.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "splitters/legacy_splitter.h"
#include "vocabulary/pair_merger.h"

namespace rf::text {
namespace {

class WordCounter : public WordSink {
 public:
  WordCounter(std::unordered_map<std::string, int64_t>& counts, int max_word_chars)
      : counts_(counts), max_word_chars_(max_word_chars) {}
  void take(const Word& word) override {
    if (word.special != Special::kNone || word.chars > max_word_chars_) return;
    key_.assign(word.text);
    ++counts_[key_];
  }

 private:
  std::unordered_map<std::string, int64_t>& counts_;
  const int64_t max_word_chars_;
  std::string key_;
};

std::vector<std::string> split_chars(std::string_view word) {
  std::vector<std::string> chars;
  while (!word.empty()) {
    const auto length = static_cast<size_t>(decode_utf8(word).length);
    chars.emplace_back(word.substr(0, length));
    word.remove_prefix(length);
  }
  return chars;
}

using WordCounts = std::vector<std::pair<std::string, int64_t>>;

// The characters to keep, in code point order (which is the byte order of UTF-8).
std::vector<std::string> choose_alphabet(const WordCounts& words, int64_t max_alphabet) {
  std::unordered_map<std::string, int64_t> counts;
  for (const auto& [word, count] : words) {
    for (std::string& c : split_chars(word)) counts[std::move(c)] += count;
  }
  WordCounts ranked(counts.begin(), counts.end());
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (ranked.size() > static_cast<size_t>(max_alphabet)) ranked.resize(static_cast<size_t>(max_alphabet));
  std::vector<std::string> alphabet;
  for (auto& [c, count] : ranked) alphabet.push_back(std::move(c));
  std::sort(alphabet.begin(), alphabet.end());
  return alphabet;
}

// The word as characters, those after the first with "##"; empty if a character is not in the alphabet, because such a
// word will be [UNK] whatever is merged.
std::vector<std::string> to_pieces(const std::string& word, const TokenList& tokens) {
  std::vector<std::string> pieces = split_chars(word);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (tokens.find(pieces[i]) < 0) return {};
    if (i > 0) pieces[i].insert(0, "##");
  }
  return pieces;
}

}  // namespace

VocabularyTrainer::VocabularyTrainer(VocabularyTrainerOptions options) : options_(options) {
  if (options_.size < 1 || options_.min_frequency < 1 || options_.max_alphabet < 1) {
    fail("vocab", "size, min_frequency and max_alphabet must be at least 1, got {}, {} and {}", options_.size,
         options_.min_frequency, options_.max_alphabet);
  }
}

void VocabularyTrainer::add(std::string_view text) {
  WordCounter counter(word_counts_, TokenizerOptions{}.max_word_chars);
  LegacySplitter(options_.letter_case).split(text, counter);
}

Vocabulary VocabularyTrainer::train(const std::function<void(int64_t)>& tick) const {
  if (word_counts_.empty()) fail("vocab", "the texts must have at least one word, got none");
  WordCounts words(word_counts_.begin(), word_counts_.end());
  std::sort(words.begin(), words.end());

  TokenList tokens;
  for (const std::string_view token : kSpecialTokens) tokens.add(std::string(token));
  for (const std::string& c : choose_alphabet(words, options_.max_alphabet)) tokens.add(c);
  std::set<std::string> continuations;
  for (const auto& [word, count] : words) {
    const std::vector<std::string> pieces = to_pieces(word, tokens);
    if (!pieces.empty()) continuations.insert(pieces.begin() + 1, pieces.end());
  }
  for (const std::string& c : continuations) tokens.add(c);
  if (tokens.size() > options_.size) {
    fail("vocab", "size must be at least {} for the special tokens and the characters, got {}; lower max_alphabet ({})",
         tokens.size(), options_.size, options_.max_alphabet);
  }

  PairMerger merger(tokens, PairMerger::Pieces::kWordPieces);
  for (const auto& [word, count] : words) {
    std::vector<int32_t> ids;
    for (const std::string& piece : to_pieces(word, tokens)) ids.push_back(tokens.find(piece));
    if (ids.size() > 1) merger.add_word(std::move(ids), count);
  }
  merger.merge_until(options_.size, options_.min_frequency, tick);
  return Vocabulary(tokens.release());
}

}  // namespace rf::text
