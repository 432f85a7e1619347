// Counting and choosing words (rf/text/word_vocabulary.h). Only words of the dictionary have two Han characters or
// more, so the counts stay small for any corpus.
#include "rf/text/word_vocabulary.h"

#include <algorithm>
#include <utility>

#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "splitters/bert_normalizer.h"

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

void WordVocabularyBuilder::add(std::string_view text) {
  const TokenizerOptions& options = base_.options();
  std::vector<NormalizedChar> chars;
  SourcePlace place{0, 0};
  BertNormalizer(options.letter_case, strips_accents(options)).normalize(text, place, chars);
  std::u32string codes;
  for (const NormalizedChar& c : chars) codes += c.code;
  std::vector<uint32_t> ends;
  segmenter_.cut(codes, ends);
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::u32string_view word = std::u32string_view(codes).substr(begin, end - begin);
    begin = end;
    if (word.size() < 2 || !std::ranges::all_of(word, is_han)) continue;
    std::string key;
    for (const char32_t code : word) append_utf8(code, key);
    ++counts_[key];
  }
}

WordVocabulary WordVocabularyBuilder::build(int64_t words, int64_t min_frequency) const {
  if (words < 1) fail("vocab", "the number of words must be at least 1, got {}", words);
  const Vocabulary& base = base_.vocabulary();
  std::vector<std::pair<std::string_view, int64_t>> ranked;
  for (const auto& [word, count] : counts_) {
    if (count >= min_frequency && base.find(word) < 0) ranked.emplace_back(word, count);
  }
  if (ranked.empty()) {
    fail("vocab", "at least one new word must occur {} times, got none among {} words", min_frequency, counts_.size());
  }
  std::ranges::sort(ranked, {}, [](const auto& each) { return std::pair(-each.second, each.first); });
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
