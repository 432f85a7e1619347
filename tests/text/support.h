// What the tests of tokenizers share.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rf/io/error.h"
#include "rf/text/tokenizer.h"
#include "temporary_files.h"

namespace rf::text {

using namespace tests;
using Ids = std::vector<int32_t>;

inline std::vector<std::string> specials_and(const std::vector<std::string>& more) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

inline Encoding encode(const Tokenizer& tokenizer, std::string_view text) {
  Encoding out;
  tokenizer.encode(text, out);
  return out;
}

inline std::string repeated(std::string_view part, size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

// A byte-level tokenizer of all bytes and these merges, which are given as bytes; without special tokens.
inline TokenizerParts byte_level_parts(const ByteLevelOptions& options, const std::vector<Merge>& merges) {
  const Tokenizer bytes = byte_tokenizer();
  std::vector<std::string> tokens;
  for (int64_t byte = 0; byte < 256; ++byte) tokens.push_back(bytes.vocabulary().token(byte));
  const auto letters_of = [&](const std::string& text) {
    std::string letters;
    for (const char c : text) letters += tokens[static_cast<uint8_t>(c)];
    return letters;
  };
  std::vector<Merge> in_letters;
  for (const auto& [left, right] : merges) {
    in_letters.emplace_back(letters_of(left), letters_of(right));
    tokens.push_back(in_letters.back().first + in_letters.back().second);
  }
  SpecialNames names;
  for (const SpecialRole role : kSpecialRoles) name_of(names, role).clear();
  TokenizerOptions made = bytes.options();
  made.byte_level = options;
  return {Vocabulary(std::move(tokens), names), made, {}, std::move(in_letters), {}};
}

// A tokenizer of the 256 bytes <0xNN>, a few characters and these merges; without special tokens.
inline TokenizerParts byte_fallback_parts(const ByteFallbackOptions& options) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
  tokens.insert(tokens.end(), {"▁", "a", "b", "c", "é", ".", "▁a", "ab", "▁ab", "▁▁", "abc", "aa"});
  TokenizerOptions made{.pipeline = Pipeline::kByteFallbackBpe, .byte_fallback = options};
  made.decoding = {.join = DecodingOptions::Join::kFallback, .strip_left = 1};
  std::vector<Merge> merges = {{"▁", "a"}, {"a", "b"}, {"▁a", "b"}, {"▁", "▁"}, {"ab", "c"}, {"a", "a"}};
  return {Vocabulary(std::move(tokens), kNoSpecialNames), made, {}, std::move(merges), {}};
}

inline TokenizerParts unigram_parts(UnigramOptions options) {
  std::vector<std::string> tokens = {"<unk>", "▁", "a", "b", "c", "é", ".", "▁a", "ab", "▁ab", "abc", "aa"};
  for (size_t i = 0; i < tokens.size(); ++i) options.scores.push_back(-3 - 0.25 * static_cast<double>(i % 5));
  options.unk = 0;
  TokenizerOptions made{.pipeline = Pipeline::kUnigram,
                        .unigram = std::make_shared<const UnigramOptions>(std::move(options))};
  made.decoding.join = DecodingOptions::Join::kMetaspace;
  return {Vocabulary(std::move(tokens), kNoSpecialNames), made, {}, {}, {}};
}

}  // namespace rf::text
