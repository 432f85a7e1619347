// Pieces, offsets, options and the files of a tokenizer. Ids against transformers: tests/oracles/test_wordpiece.py.
#include "rf/text/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "expect_error.h"
#include "temp_dir.h"

namespace rf::text {
namespace {

// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4
const std::vector<std::string> kTokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un",    "##aff", "##able",
                                          "##a",   "a",     ",",     "Un",    "na",     "##ive", "\u4E2D"};

Tokenizer tokenizer(TokenizerOptions options = {}) { return {Vocabulary(kTokens), options}; }

Encoding encode(const Tokenizer& tokenizer, std::string_view text) {
  Encoding out;
  tokenizer.encode(text, out);
  return out;
}

using Ids = std::vector<int32_t>;

TEST(Wordpiece, LongestPiecesFirst) {
  const Encoding out = encode(tokenizer(), "unaffable, a");
  EXPECT_EQ(out.ids, (Ids{5, 6, 7, 10, 9}));
  EXPECT_EQ(out.byte_begin, (Ids{0, 2, 5, 9, 11}));
  EXPECT_EQ(out.byte_end, (Ids{2, 5, 9, 10, 12}));
  EXPECT_EQ(out.char_begin, out.byte_begin);
  EXPECT_EQ(out.char_end, out.byte_end);
  EXPECT_EQ(out.starts_word, (std::vector<uint8_t>{1, 0, 0, 1, 1}));
}

TEST(Wordpiece, OffsetsAreOfTheOriginalText) {
  const Encoding out = encode(tokenizer(), "Na\u00EFve \u4E2D[MASK]a");
  EXPECT_EQ(out.ids, (Ids{12, 13, 14, 4, 9}));
  EXPECT_EQ(out.byte_begin, (Ids{0, 2, 7, 10, 16}));
  EXPECT_EQ(out.byte_end, (Ids{2, 6, 10, 16, 17}));
  EXPECT_EQ(out.char_begin, (Ids{0, 2, 6, 7, 13}));
  EXPECT_EQ(out.char_end, (Ids{2, 5, 7, 13, 14}));
}

TEST(Wordpiece, WordThatCannotBeCutIsUnknownWhole) {
  const Encoding out = encode(tokenizer(), "unaffx a");
  EXPECT_EQ(out.ids, (Ids{1, 9}));
  EXPECT_EQ(out.byte_end, (Ids{6, 8}));
}

TEST(Wordpiece, LongWordsAreUnknown) {
  EXPECT_EQ(encode(tokenizer(), std::string(100, 'a')).ids.size(), 100U);
  EXPECT_EQ(encode(tokenizer(), std::string(101, 'a')).ids, (Ids{1}));
  TokenizerOptions options;
  options.max_word_chars = 3;
  EXPECT_EQ(encode(tokenizer(options), "aaa aaaa").ids, (Ids{9, 8, 8, 1}));
}

TEST(Wordpiece, KeepsLetterCaseWhenAsked) {
  TokenizerOptions options;
  options.letter_case = Case::kKeep;
  EXPECT_EQ(encode(tokenizer(options), "Un un").ids, (Ids{11, 5}));
  EXPECT_EQ(encode(tokenizer(), "Un un").ids, (Ids{5, 5}));
}

TEST(Wordpiece, EncodeAppends) {
  Encoding out;
  tokenizer().encode("a\xFF", out);
  tokenizer().encode("un\xFF", out);
  EXPECT_EQ(out.ids, (Ids{9, 5}));
  EXPECT_EQ(out.byte_begin, (Ids{0, 0}));
  EXPECT_EQ(out.replaced_bytes, 2);
  out.clear();
  EXPECT_EQ(out.size(), 0U);
  EXPECT_EQ(out.replaced_bytes, 0);
}

TEST(Wordpiece, SpecialTokensAround) {
  const Encoding out = tokenizer().encode_with_specials("a");
  EXPECT_EQ(out.ids, (Ids{2, 9, 3}));
  EXPECT_EQ(out.byte_begin, (Ids{0, 0, 0}));
  EXPECT_EQ(out.byte_end, (Ids{0, 1, 0}));
  EXPECT_EQ(tokenizer().encode_with_specials("").ids, (Ids{2, 3}));
}

TEST(Wordpiece, DecodeGluesPiecesAndSkipsSpecialTokens) {
  EXPECT_EQ(tokenizer().decode({2, 5, 6, 7, 10, 4, 1, 9, 3, 0}), "[CLS] unaffable, [MASK] [UNK] a [SEP] [PAD]");
  EXPECT_EQ(tokenizer().decode({2, 5, 6, 7, 10, 4, 1, 9, 3, 0}, SkipSpecials::kYes), "unaffable, a");
  EXPECT_EQ(tokenizer().decode({}), "");
  expect_contains(message_of([] { tokenizer().decode({15}); }), "[0, 15), got 15");
}

TEST(Wordpiece, CopiesOutliveTheOriginal) {
  auto original = std::make_unique<Tokenizer>(Vocabulary(kTokens), TokenizerOptions{});
  const Tokenizer copy = *original;
  original.reset();
  EXPECT_EQ(encode(copy, "unaffable").ids, (Ids{5, 6, 7}));
}

TEST(Wordpiece, SavesAndLoads) {
  for (const Case letter_case : {Case::kLower, Case::kKeep}) {
    const TempDir dir;
    TokenizerOptions options;
    options.letter_case = letter_case;
    tokenizer(options).save(dir.path());
    const auto loaded = Tokenizer::load(dir.path());
    EXPECT_EQ(loaded.options().letter_case, letter_case);
    EXPECT_EQ(loaded.vocabulary().hash(), Vocabulary(kTokens).hash());
  }
}

TEST(WordpieceErrors, MaxWordChars) {
  TokenizerOptions options;
  options.max_word_chars = 0;
  expect_contains(message_of([&options] { tokenizer(options); }), "max_word_chars must be at least 1, got 0");
}

class TokenizerConfig : public testing::Test {
 protected:
  TokenizerConfig() { Vocabulary(kTokens).save(dir_.path() + "/vocab.txt"); }
  Tokenizer load(const std::string& config) {
    dir_.write("tokenizer_config.json", config);
    return Tokenizer::load(dir_.path());
  }
  std::string refusal(const std::string& config) {
    return message_of([this, &config] { load(config); });
  }
  TempDir dir_;
};

TEST_F(TokenizerConfig, MayBeMissing) { EXPECT_EQ(Tokenizer::load(dir_.path()).options().letter_case, Case::kLower); }

TEST_F(TokenizerConfig, WhatTransformersWritesIsRead) {
  const auto loaded = load(R"({
    "added_tokens_decoder": {"0": {"content": "[PAD]", "lstrip": false, "normalized": false, "rstrip": false,
                                   "single_word": false, "special": true}},
    "clean_up_tokenization_spaces": true, "cls_token": "[CLS]", "do_basic_tokenize": true, "do_lower_case": false,
    "mask_token": {"content": "[MASK]", "lstrip": false}, "model_max_length": 512, "never_split": null,
    "strip_accents": null, "tokenize_chinese_chars": true, "tokenizer_class": "BertTokenizer", "unk_token": "[UNK]"})");
  EXPECT_EQ(loaded.options().letter_case, Case::kKeep);
  EXPECT_EQ(load("{}").options().letter_case, Case::kLower);
}

TEST_F(TokenizerConfig, OptionsOfTheNormalizerAreFollowed) {
  const TokenizerOptions options = load(R"({"strip_accents": false, "tokenize_chinese_chars": false})").options();
  EXPECT_EQ(options.pipeline, Pipeline::kBert);
  EXPECT_EQ(options.strip_accents, false);
  EXPECT_FALSE(options.tokenize_chinese_chars);
  EXPECT_EQ(load(R"({"tokenizer_class": "BertTokenizerLegacy"})").options().pipeline, Pipeline::kBertLegacy);
}

TEST_F(TokenizerConfig, WhatCannotBeHonouredIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"strip_accents": "no"})", "strip_accents"},
      {R"({"tokenizer_class": "BertTokenizerLegacy", "strip_accents": false})", "strip_accents"},
      {R"({"do_lower_case": "yes"})", "do_lower_case"},
      {R"({"tokenizer_class": "BertTokenizerLegacy", "tokenize_chinese_chars": false})", "tokenize_chinese_chars"},
      {R"({"do_basic_tokenize": false})", "do_basic_tokenize"},
      {R"({"split_special_tokens": true})", "split_special_tokens"},
      {R"({"never_split": ["x"]})", "never_split"},
      {R"({"added_tokens_decoder": {"9": {"content": "<x>"}}})", "must have the id 15"},
      {R"({"tokenizer_class": "T5Tokenizer"})", "T5Tokenizer"},
      {R"({"tokenizer_class": 3})", "tokenizer_class"},
      {R"({"wordpieces_prefix": "@@"})", "wordpieces_prefix"},
      {R"([1])", "array"},
      {R"({"do_lower_case": )", "tokenizer_config.json"},
  };
  for (const auto& [config, named] : cases) expect_contains(refusal(config), named);
}

TEST(WordpieceErrors, MissingVocabulary) {
  const TempDir dir;
  expect_contains(message_of([&dir] { Tokenizer::load(dir.path()); }), "must hold the files of a model or a tokenizer");
}

TEST(Tokenizer, SegmentingPipelinesNeedADictionary) {
  for (const Pipeline pipeline : {Pipeline::kRoformer, Pipeline::kWobert}) {
    TokenizerOptions options;
    options.pipeline = pipeline;
    const std::string message = message_of([&] { tokenizer(options); });
    EXPECT_EQ(message, "[tokenizer] pipeline " + std::string(name(pipeline)) + " must have a dictionary, got none");
  }
}

TEST(Tokenizer, PipelinesOfPythonHaveOneSettingForCaseAndAccents) {
  TokenizerOptions options;
  options.pipeline = Pipeline::kBertLegacy;
  options.strip_accents = false;
  EXPECT_EQ(
      message_of([&] { tokenizer(options); }),
      "[tokenizer] \"strip_accents\" must be null or true, as \"do_lower_case\" is, in the pipeline bert-legacy, got "
      "false");
  options.strip_accents = true;
  options.tokenize_chinese_chars = false;
  EXPECT_EQ(message_of([&] { tokenizer(options); }),
            "[tokenizer] \"tokenize_chinese_chars\" must be true in the pipeline bert-legacy, got false");
}

TEST(Tokenizer, AnotherPipelineForADirectoryIsHeldAgainstItsSettings) {
  const TempDir dir;
  Vocabulary(kTokens).save(dir.path() + "/vocab.txt");
  dir.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "strip_accents": false})");
  expect_contains(message_of([&] { Tokenizer::load(dir.path(), {.pipeline = Pipeline::kBertLegacy}); }),
                  "strip_accents");
}

TEST(Tokenizer, WhatTheClassCannotSayIsNotSaved) {
  const TempDir dir;
  TokenizerOptions options;
  options.pipeline = Pipeline::kBertLegacy;
  options.max_word_chars = 7;
  expect_contains(message_of([&] { tokenizer(options).save(dir.path()); }), "max_word_chars must be 100");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Tokenizer, TemplatesNameTokensOfTheVocabulary) {
  const auto size = static_cast<int32_t>(kTokens.size());
  const TokenizerOptions options;
  const auto made = [&options](int32_t sep) {
    return Tokenizer(TokenizerParts{Vocabulary(kTokens), options, {}, {}, bert_template(2, sep)});
  };
  EXPECT_EQ(made(size - 1).encode_with_specials("").ids, (Ids{2, size - 1}));
  for (const int32_t sep : {-1, size}) {
    expect_contains(message_of([&] { made(sep); }), "got " + std::to_string(sep));
  }
}

TEST(Tokenizer, ColumnsOfAnEncodingHaveOneLength) {
  Encoding out = encode(tokenizer(), "a un");
  out.ids.clear();
  EXPECT_EQ(message_of([&] { tokenizer().encode("a", out); }),
            "[tokenize] the columns of an encoding must have one length, got 0 ids and 2 in another column");
}

}  // namespace
}  // namespace rf::text
