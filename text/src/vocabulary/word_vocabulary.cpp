// Counting and choosing words (rf/text/word_vocabulary.h). Only words of the dictionary have two Han characters or
// more, so the counts stay small for any corpus.
#include "rf/text/word_vocabulary.h"

#include <algorithm>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "rf/text/segmenter.h"
#include "splitters/bert_normalizer.h"
#include "unicode/bert_characters.h"

namespace rf::text {
namespace {

bool is_han(char32_t code) { return bert_character(code).has(BertCharacter::kCjk); }

// Whether a token is "##" and one Han character.
bool is_redundant(std::string_view token) {
  if (!token.starts_with("##") || token.size() == 2) return false;
  const Decoded decoded = decode_utf8(token.substr(2));
  return static_cast<size_t>(decoded.length) == token.size() - 2 && is_han(decoded.code);
}

}  // namespace

class WordVocabularyBuilder::Counter {
 public:
  Counter(const TokenizerOptions& options, std::shared_ptr<const Dictionary> dictionary)
      : normalizer_(options.letter_case == Case::kLower,
                    options.strip_accents.value_or(options.letter_case == Case::kLower)),
        segmenter_(std::move(dictionary)) {}

  void add(std::string_view text) {
    chars_.clear();
    SourcePlace place{0, 0};
    normalizer_.normalize(text, place, chars_);
    codes_.resize(chars_.size());
    for (size_t i = 0; i < chars_.size(); ++i) codes_[i] = chars_[i].code;
    segmenter_.cut(codes_, ends_);
    size_t first = 0;
    for (const size_t last : ends_) {
      count(std::u32string_view(codes_).substr(first, last - first));
      first = last;
    }
  }
  const std::unordered_map<std::string, int64_t>& counts() const { return counts_; }

 private:
  void count(std::u32string_view word) {
    if (word.size() < 2 || !std::all_of(word.begin(), word.end(), is_han)) return;
    key_.clear();
    for (const char32_t code : word) append_utf8(code, key_);
    ++counts_[key_];
  }

  BertNormalizer normalizer_;
  Segmenter segmenter_;
  std::vector<NormalizedChar> chars_;
  std::u32string codes_;
  std::vector<uint32_t> ends_;
  std::string key_;
  std::unordered_map<std::string, int64_t> counts_;
};

WordVocabularyBuilder::WordVocabularyBuilder(const Tokenizer& base, std::shared_ptr<const Dictionary> dictionary)
    : base_(base), counter_(std::make_unique<Counter>(base.options(), std::move(dictionary))) {}

WordVocabularyBuilder::~WordVocabularyBuilder() = default;

void WordVocabularyBuilder::add(std::string_view text) { counter_->add(text); }

WordVocabulary WordVocabularyBuilder::build(int64_t words, int64_t min_frequency) const {
  if (words < 1) fail("vocab", "the number of words must be at least 1, got {}", words);
  const Vocabulary& base = base_.vocabulary();
  std::vector<std::pair<std::string_view, int64_t>> ranked;
  for (const auto& [word, count] : counter_->counts()) {
    if (count >= min_frequency && base.find(word) < 0) ranked.emplace_back(word, count);
  }
  if (ranked.empty()) {
    fail("vocab", "at least one new word must occur {} times, got none among {} words", min_frequency,
         counter_->counts().size());
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (ranked.size() > static_cast<size_t>(words)) ranked.resize(static_cast<size_t>(words));

  std::vector<std::string> tokens;
  std::vector<std::vector<int32_t>> sources;
  const auto keep = [&](int64_t id) {
    tokens.push_back(base.token(id));
    sources.push_back({static_cast<int32_t>(id)});
  };
  for (int64_t id = 0; id < base.model_size(); ++id) {
    if (!is_redundant(base.token(id))) keep(id);
  }
  for (const auto& [word, count] : ranked) {
    Encoding characters;
    base_.encode(word, characters);
    tokens.emplace_back(word);
    sources.push_back(std::move(characters.ids));
  }
  const auto model_size = static_cast<int64_t>(tokens.size());
  for (int64_t id = base.model_size(); id < base.size(); ++id) keep(id);
  Vocabulary vocabulary(std::move(tokens), base.special_names(), model_size);
  std::vector<AddedToken> added = base_.added_tokens();
  for (AddedToken& token : added) token.id = vocabulary.find(token.content);
  return {std::move(vocabulary), std::move(added), std::move(sources)};
}

}  // namespace rf::text
