// Options, errors and files of a tokenizer. Ids and offsets against transformers: tests/oracles.
#include "rf/text/tokenizer.h"

#include <sys/mman.h>

#include <filesystem>
#include <memory>

#include "rf/text/vocabulary_trainer.h"
#include "support.h"

namespace rf::text {
namespace {

// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4
const std::vector<std::string> kTokens =
    specials_and({"un", "##aff", "##able", "##a", "a", ",", "Un", "na", "##ive", "\u4E2D"});

Tokenizer tokenizer(const TokenizerOptions& options = {}) { return {Vocabulary(kTokens), options}; }

// The library `tokenizers` does not compose, so no oracle has these places. A mark that is left out has none. The
// second tokenizer must not get the splitter that the thread keeps of the first one.
TEST(Wordpiece, AComposedCharacterHasThePlacesOfItsParts) {
  for (const Case letter_case : {Case::kKeep, Case::kLower}) {
    const bool keeps = letter_case == Case::kKeep;
    const Tokenizer legacy{Vocabulary(specials_and({"caf\u00E9", "\uD55C", "cafe", "\u1112\u1161\u11AB"})),
                           {.pipeline = Pipeline::kBertLegacy, .letter_case = letter_case}};
    const Encoding out = encode(legacy, "cafe\u0301 \u1112\u1161\u11AB");
    EXPECT_EQ(out.ids, keeps ? (Ids{5, 6}) : (Ids{7, 8}));
    EXPECT_EQ(out.byte_begin, (Ids{0, 7}));
    EXPECT_EQ(out.byte_end, (Ids{keeps ? 6 : 4, 16}));
    EXPECT_EQ(out.char_begin, (Ids{0, 6}));
    EXPECT_EQ(out.char_end, (Ids{keeps ? 5 : 4, 9}));
  }
}

TEST(Wordpiece, CopiesOutliveTheOriginal) {
  auto original = std::make_unique<Tokenizer>(tokenizer());
  const Tokenizer copy = *original;
  original.reset();
  EXPECT_EQ(encode(copy, "unaffable").ids, (Ids{5, 6, 7}));
}

TEST(TokenizerErrors, OptionsThatContradictEachOther) {
  const auto message = [](const TokenizerOptions& options) { return error_of([&] { tokenizer(options); }); };
  EXPECT_EQ(message({.max_word_chars = 0}), "[wordpiece] max_word_chars must be at least 1, got 0");
  for (const Pipeline pipeline : {Pipeline::kRoformer, Pipeline::kWobert}) {
    EXPECT_EQ(message({.pipeline = pipeline}),
              "[tokenizer] pipeline " + std::string(name(pipeline)) + " must have a dictionary, got none");
  }
  EXPECT_EQ(
      message({.pipeline = Pipeline::kBertLegacy, .strip_accents = false}),
      "[tokenizer] \"strip_accents\" must be null or true, as \"do_lower_case\" is, in the pipeline bert-legacy, got "
      "false");
  EXPECT_EQ(message({.pipeline = Pipeline::kBertLegacy, .tokenize_chinese_chars = false}),
            "[tokenizer] \"tokenize_chinese_chars\" must be true in the pipeline bert-legacy, got false");
  expect_has(error_of([] { tokenizer().decode({15}); }), "[0, 15), got 15");
}

TEST(TokenizerErrors, TextOf2GiB) {
  const size_t size = size_t{1} << 31;
  void* const pages = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const std::string_view text{static_cast<const char*>(pages), size};
  constexpr char kExpected[] = "smaller than 2^31 bytes, got 2147483648";
  expect_has(error_of([&] { encode(tokenizer(), text); }), kExpected);
  expect_has(error_of([&] { VocabularyTrainer({}).add(text); }), kExpected);
  munmap(pages, size);
}

TEST(TokenizerErrors, TemplatesNameTokensOfTheVocabulary) {
  const auto size = static_cast<int32_t>(kTokens.size());
  const TokenizerOptions options;
  const auto made = [&options](int32_t sep) {
    return Tokenizer(TokenizerParts{Vocabulary(kTokens), options, {}, {}, bert_template(2, sep)});
  };
  EXPECT_EQ(made(size - 1).encode_with_specials("").ids, (Ids{2, size - 1}));
  for (const int32_t sep : {-1, size}) {
    expect_has(error_of([&] { made(sep); }), "got " + std::to_string(sep));
  }
}

TEST(TokenizerErrors, ColumnsOfAnEncodingHaveOneLength) {
  Encoding out = encode(tokenizer(), "a un");
  out.ids.clear();
  EXPECT_EQ(error_of([&] { tokenizer().encode("a", out); }),
            "[tokenize] the columns of an encoding must have one length, got 0 ids and 2 in another column");
}

// What only the class in Python refuses, or what is not JSON; other settings: tests/oracles/test_tokenizer_files.py.
TEST(TokenizerErrors, SettingsOfADirectory) {
  const Directory dir;
  const auto refusal = [&dir](const std::string& config, const LoadOptions& options = {}) {
    dir.write("tokenizer_config.json", config);
    return error_of([&] { Tokenizer::load(dir.path(), options); });
  };
  expect_has(error_of([&] { Tokenizer::load(dir.path()); }), "must hold the files of a model or a tokenizer");
  Vocabulary(kTokens).save(dir / "vocab.txt");
  EXPECT_EQ(Tokenizer::load(dir.path()).options().letter_case, Case::kLower);
  const std::pair<const char*, const char*> cases[] = {
      {R"({"strip_accents": "no"})", "strip_accents"},
      {R"({"tokenizer_class": "BertTokenizerLegacy", "strip_accents": false})", "strip_accents"},
      {R"({"tokenizer_class": "BertTokenizerLegacy", "tokenize_chinese_chars": false})", "tokenize_chinese_chars"},
      {R"({"tokenizer_class": 3})", "tokenizer_class"},
      {R"([1])", "array"},
      {R"({"do_lower_case": )", "tokenizer_config.json"},
  };
  for (const auto& [config, named] : cases) expect_has(refusal(config), named);
  expect_has(refusal(R"({"strip_accents": false})", {.pipeline = Pipeline::kBertLegacy}), "strip_accents");
}

TEST(TokenizerErrors, WhatTheClassCannotSayIsNotSaved) {
  const Directory dir;
  const Tokenizer legacy = tokenizer({.pipeline = Pipeline::kBertLegacy, .max_word_chars = 7});
  expect_has(error_of([&] { legacy.save(dir.path()); }), "max_word_chars must be 100");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace rf::text
