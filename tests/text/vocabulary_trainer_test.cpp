// The trainer on cases small enough to work out by hand; against the naive algorithm in
// tests/oracles/test_wordpiece.py.
#include "rf/text/vocabulary_trainer.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace rf::text {
namespace {

std::vector<std::string> learned(const Vocabulary& vocabulary) {
  std::vector<std::string> tokens;
  for (int64_t id = 5; id < vocabulary.size(); ++id) tokens.push_back(vocabulary.token(id));
  return tokens;
}

Vocabulary train(const std::vector<std::string>& texts, VocabularyTrainerOptions options) {
  VocabularyTrainer trainer(options);
  for (const std::string& text : texts) trainer.add(text);
  return trainer.train();
}

using Tokens = std::vector<std::string>;

// hug 10, pug 5, pun 12, bun 4, hugs 5: u+n 16, u+g 20, h+ug 15, p+un 12, h.ug+s 5, p+ug 5, b+un 4
TEST(VocabularyTrainer, MergesByFrequency) {
  std::string text;
  const std::pair<const char*, int> words[] = {{"hug ", 10}, {"pug ", 5}, {"pun ", 12}, {"bun ", 4}, {"hugs ", 5}};
  for (const auto& [word, count] : words) {
    for (int i = 0; i < count; ++i) text += word;
  }
  const Vocabulary vocabulary = train({text}, {.size = 5 + 7 + 4 + 4});
  EXPECT_EQ(learned(vocabulary),
            (Tokens{"b", "g", "h", "n", "p", "s", "u", "##g", "##n", "##s", "##u", "##ug", "##un", "hug", "pun"}));
}

TEST(VocabularyTrainer, TiesGoToTheFirstByBytes) {
  const Vocabulary vocabulary = train({"cd cd ab ab"}, {.size = 5 + 4 + 2 + 1});
  EXPECT_EQ(learned(vocabulary).back(), "ab");
}

TEST(VocabularyTrainer, RunsOfOneLetter) {
  // ##a ##a is counted twice in each word; merged from the left: a ##aa ##a, then a ##aaa or aaa by the bytes' order.
  EXPECT_EQ(learned(train({"aaaa aaaa"}, {.size = 100})), (Tokens{"a", "##a", "##aa", "##aaa", "aaaa"}));
}

TEST(VocabularyTrainer, StopsAtMinFrequencyAndSize) {
  EXPECT_EQ(learned(train({"ab ab cd"}, {.size = 100})).back(), "ab");
  EXPECT_EQ(learned(train({"ab ab cd"}, {.size = 100, .min_frequency = 1})).back(), "cd");
  EXPECT_EQ(learned(train({"ab ab cd"}, {.size = 100, .min_frequency = 3})).back(), "##d");
  EXPECT_EQ(train({"abcdef abcdef"}, {.size = 5 + 6 + 5 + 2}).size(), 18);
}

TEST(VocabularyTrainer, KeepsTheMostFrequentCharacters) {
  const Vocabulary vocabulary = train({"ab ab ab ac x"}, {.size = 100, .max_alphabet = 2});
  EXPECT_EQ(learned(vocabulary), (Tokens{"a", "b", "##b", "ab"}));  // words with c or x are [UNK] and not learned from
}

TEST(VocabularyTrainer, CountsNormalisedWordsWithoutSpecialTokens) {
  const Vocabulary vocabulary = train({"[MASK] \u00C9t\u00E9", "ETE [SEP]"}, {.size = 100});
  EXPECT_EQ(learned(vocabulary), (Tokens{"e", "t", "##e", "##t", "##te", "ete"}));
  const Vocabulary kept = train({"A a"}, {.size = 100, .letter_case = Case::kKeep});
  EXPECT_EQ(learned(kept), (Tokens{"A", "a"}));
}

TEST(VocabularyTrainer, OrderOfTheTextsDoesNotMatter) {
  const std::vector<std::string> texts = {"the cat sat on the mat", "a cat and a hat", "that mat, the mat"};
  const Vocabulary once = train(texts, {.size = 40});
  const Vocabulary again = train({texts[2], texts[0], texts[1]}, {.size = 40});
  EXPECT_EQ(once.hash(), again.hash());
}

TEST(VocabularyTrainer, EncodingLosesNothingOfTheTextsTrainedOn) {
  const std::string text = "The quick brown fox, the lazy dog; \u4E2D\u6587 na\u00EFve \uD55C!";
  const Tokenizer tokenizer(train({text}, {.size = 100}), {});
  Encoding out;
  tokenizer.encode(text, out);
  EXPECT_EQ(tokenizer.decode(out.ids), "the quick brown fox, the lazy dog ; \u4E2D \u6587 naive \u1112\u1161\u11AB!");
}

TEST(VocabularyTrainerErrors, NoWords) {
  expect_contains(message_of([] { train({}, {}); }), "at least one word");
  expect_contains(message_of([] { train({" \n[MASK]"}, {}); }), "at least one word");
}

TEST(VocabularyTrainerErrors, SizeTooSmallForTheCharacters) {
  expect_contains(message_of([] { train({"abc"}, {.size = 9}); }),
                  "at least 10 for the special tokens and the characters, got 9");
  EXPECT_EQ(train({"abc"}, {.size = 10}).size(), 10);
}

TEST(VocabularyTrainerErrors, Options) {
  expect_contains(message_of([] { VocabularyTrainer({.size = 0}); }), "got 0, 2 and 6000");
  expect_contains(message_of([] { VocabularyTrainer({.min_frequency = 0}); }), "got 8000, 0 and 6000");
  expect_contains(message_of([] { VocabularyTrainer({.max_alphabet = -1}); }), "got 8000, 2 and -1");
}

}  // namespace
}  // namespace rf::text
