// The pipelines bert and roformer: ids that transformers 5's RoFormerTokenizer gives, and what
// cleaning and decomposition do to offsets. Against transformers at large: tests/oracles/test_fast_tokenizers.py.
#include <gtest/gtest.h>

#include <thread>

#include "expect_error.h"
#include "rf/text/tokenizer.h"
#include "temp_dir.h"

namespace rf::text {
namespace {

using Ids = std::vector<int32_t>;
using Offsets = std::vector<std::pair<int32_t, int32_t>>;

const std::vector<std::string> kTokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今",  "天",  "气",  "非常",
                                          "好",    "。",    "我们",  "在",    "北京",   "abc", "##d", "c",   "++",
                                          "+",     "hello", "##lo",  "hel",   "a",      ".",   "b",   "x",   "é",
                                          "e",     "世",    "界",    "，",    "%",      "5",   "50",  "##0", "中",
                                          "国",    "人",    "中国",  "T",     "恤",     "t恤", "t",   "#",   "##恤"};
// jieba's own frequencies of the words that occur, and the rest of its total.
constexpr char kDictionary[] =
    "T恤 4\nc++ 3\n世界 34387\n中国 129470\n今天 15960\n今天天气 3\n北京 34488\n国人 610\n在 727915\n天天 1855\n天气 "
    "2657\n"
    "好 92543\n我们 98740\n非常 15958\n填充 58947377\n";

Tokenizer tokenizer(Pipeline pipeline) {
  const TempDir dir;
  TokenizerOptions options;
  options.pipeline = pipeline;
  if (pipeline == Pipeline::kRoformer) {
    options.dictionary = Dictionary::load(dir.write("dict.txt", kDictionary), {}, {""});
  }
  return {Vocabulary(kTokens), options};
}

Encoding encode(const Tokenizer& tokenizer, std::string_view text) {
  Encoding out;
  tokenizer.encode(text, out);
  return out;
}

Offsets characters(const Encoding& encoding) {
  Offsets offsets;
  for (size_t i = 0; i < encoding.size(); ++i) offsets.emplace_back(encoding.char_begin[i], encoding.char_end[i]);
  return offsets;
}

TEST(RoformerTokenizer, Goldens) {
  using namespace std::string_view_literals;
  const struct {
    std::string_view text;
    Ids ids;
    Offsets offsets;
  } cases[] = {
      {"今天天气非常好。", {5, 6, 6, 7, 8, 9, 10}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 6}, {6, 7}, {7, 8}}},
      {"我们在北京 hello\tworld", {11, 12, 13, 19, 1}, {{0, 2}, {2, 3}, {3, 5}, {6, 11}, {12, 17}}},
      {"C++是好", {1, 1, 9}, {{0, 3}, {3, 4}, {4, 5}}},
      {"a.b c.d", {22, 23, 24, 16, 23, 1}, {{0, 1}, {1, 2}, {2, 3}, {4, 5}, {5, 6}, {6, 7}}},
      {"Éé", {1}, {{0, 2}}},
      {"今天[MASK]好", {5, 6, 4, 9}, {{0, 1}, {1, 2}, {2, 8}, {8, 9}}},
      {"50%", {33, 31}, {{0, 2}, {2, 3}}},
      {"ABCD", {14, 15}, {{0, 3}, {3, 4}}},
      {"T恤", {42, 40}, {{0, 1}, {1, 2}}},  // in lower case it is no word of jieba's
      {"中国人", {38, 37}, {{0, 2}, {2, 3}}},
      {"\u200B今\0天"sv, {5, 6}, {{1, 2}, {3, 4}}},
      {"hello，世界", {19, 30, 28, 29}, {{0, 5}, {5, 6}, {6, 7}, {7, 8}}},
      {"abc_def", {14, 1, 1}, {{0, 3}, {3, 4}, {4, 7}}},
      {"e\u0301好", {27, 9}, {{0, 1}, {2, 3}}},
  };
  const Tokenizer roformer = tokenizer(Pipeline::kRoformer);
  for (const auto& expected : cases) {
    const Encoding out = encode(roformer, expected.text);
    EXPECT_EQ(out.ids, expected.ids) << expected.text;
    EXPECT_EQ(characters(out), expected.offsets) << expected.text;
  }
  EXPECT_EQ(encode(roformer, std::string(101, 'a')).ids, (Ids{1}));
}

TEST(RoformerTokenizer, NeedsADictionary) {
  TokenizerOptions options;
  options.pipeline = Pipeline::kRoformer;
  expect_contains(message_of([&] { Tokenizer(Vocabulary(kTokens), options); }), "dictionary");
}

// Offsets as `tokenizers` gives them for the same text.
TEST(BertTokenizer, OffsetsOfWhatCleaningAndDecompositionChange) {
  const Tokenizer bert = tokenizer(Pipeline::kBert);
  const Encoding dropped = encode(bert, "\u200BA\u200BBC\u200BD");  // abcd
  EXPECT_EQ(dropped.ids, (Ids{14, 15}));
  EXPECT_EQ(characters(dropped), (Offsets{{1, 5}, {6, 7}}));
  EXPECT_EQ(dropped.byte_begin, (Ids{3, 12}));
  EXPECT_EQ(dropped.byte_end, (Ids{9, 13}));
  EXPECT_EQ(encode(bert, "É").ids, (Ids{27}));
  EXPECT_EQ(characters(encode(bert, "É")), (Offsets{{0, 1}}));
  // A compatibility ideograph that decomposes to one in the vocabulary is no less a word of its own.
  const Encoding alone = encode(bert, "a\uF9AEa");
  EXPECT_EQ(characters(alone), (Offsets{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(BertTokenizer, OptionsOfTheNormalizer) {
  TokenizerOptions options;
  options.strip_accents = false;
  EXPECT_EQ(encode({Vocabulary(kTokens), options}, "É").ids, (Ids{26}));
  options = {};
  options.tokenize_chinese_chars = false;
  EXPECT_EQ(encode({Vocabulary(kTokens), options}, "中国 中").ids, (Ids{38, 35}));
  EXPECT_EQ(encode(tokenizer(Pipeline::kBert), "中国").ids, (Ids{35, 36}));
}

// Ids and offsets of `tokenizers`, for added tokens of which one takes the white space that is another.
TEST(BertTokenizer, WhiteSpaceThatTwoAddedTokensTake) {
  std::vector<std::string> tokens = kTokens;
  tokens.insert(tokens.end(), {"y", " "});
  for (const bool normalized : {true, false}) {
    const std::vector<AddedToken> added = {{.content = "x", .id = 25, .rstrip = true, .normalized = normalized},
                                           {.content = " ", .id = 46, .lstrip = true, .normalized = normalized}};
    const TokenizerParts parts{Vocabulary(tokens), TokenizerOptions(), added, {}, {}};
    const Tokenizer bert(parts);
    const Encoding out = encode(bert, "yx ");
    EXPECT_EQ(out.ids, (Ids{45, 25}));
    EXPECT_EQ(characters(out), (Offsets{{0, 1}, {1, 3}}));
    EXPECT_EQ(encode(bert, "  xa").ids, (Ids{46, 46, 25, 22}));
  }
}

// A thread keeps one splitter: the next text may be another tokenizer's, or another thread's.
TEST(BertTokenizer, TokenizersTakeTurnsAndThreadsShareOne) {
  TokenizerOptions keeping;
  keeping.letter_case = Case::kKeep;
  const Tokenizer lower = tokenizer(Pipeline::kBert), keep{Vocabulary(kTokens), keeping};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(encode(lower, "T").ids, (Ids{42}));
    EXPECT_EQ(encode(keep, "T").ids, (Ids{39}));
  }
  Encoding outs[2];
  std::thread threads[2];
  for (size_t t = 0; t < 2; ++t) {
    threads[t] = std::thread([&lower, &out = outs[t]] {
      for (int i = 0; i < 1000; ++i) lower.encode("Éa T", out);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(outs[0].size(), 2000U);
  EXPECT_EQ(outs[0].ids, outs[1].ids);
}

}  // namespace
}  // namespace rf::text
