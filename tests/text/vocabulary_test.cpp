// vocab.txt: ids are line numbers, lines end as in Python's text mode, and every error names its token or line. Which
// pieces are found: tests/oracles/test_wordpiece.py. The trainer on cases small enough to work out by hand; against the
// naive algorithm: tests/oracles/test_wordpiece.py.
#include "rf/text/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <random>

#include "models/piece_trie.h"
#include "rf/text/vocabulary_trainer.h"
#include "support.h"

namespace rf::text {
namespace {

constexpr char kSpecials[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

TEST(Vocabulary, LinesEndAsInPythonsTextMode) {
  const Directory dir;
  const auto vocabulary = Vocabulary::load(
      dir.write("vocab.txt", "[unused]\n[PAD]\r\n[UNK]\r[CLS]\n[SEP]\n[MASK]\n\nx\xE2\x80\xA8y\n trailing \n##c"));
  EXPECT_EQ(vocabulary.size(), 10);
  EXPECT_EQ(vocabulary.token(1), "[PAD]");
  EXPECT_EQ(vocabulary.find(""), 6);
  EXPECT_EQ(vocabulary.find("x\xE2\x80\xA8y"), 7);  // U+2028 ends no line
  EXPECT_EQ(vocabulary.find(" trailing "), 8);
  EXPECT_EQ(vocabulary.find("##c"), 9);
  EXPECT_EQ(vocabulary.find("c"), -1);
  const SpecialIds& ids = vocabulary.special();
  EXPECT_EQ((Ids{ids.pad, ids.unk, ids.cls, ids.sep, ids.mask, ids.bos}), (Ids{1, 2, 3, 4, 5, -1}));
}

TEST(Vocabulary, SavesWhatItLoads) {
  const Directory dir;
  const Vocabulary vocabulary(specials_and({"", "a", "##\xC3\xA9"}));
  vocabulary.save(dir / "vocab.txt");
  EXPECT_EQ(Vocabulary::load(dir / "vocab.txt").hash(), vocabulary.hash());
}

// xxhash's one call over the lines of the file, in its canonical (big-endian) form.
TEST(Vocabulary, HashIsXxh128OfTheLines) {
  const std::string lines = std::string(kSpecials) + "a\nb\n";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(lines.data(), lines.size()));
  std::string digits;
  for (const unsigned char byte : canonical.digest) digits += fmt::format("{:02x}", byte);
  EXPECT_EQ(Vocabulary(specials_and({"a", "b"})).hash(), digits);
}

TEST(Vocabulary, Errors) {
  const Directory dir;
  const auto message = [](const std::vector<std::string>& tokens) { return error_of([&] { Vocabulary{tokens}; }); };
  expect_has(message(specials_and({"a", "b", "a"})), "got \"a\" in lines 6 and 8");
  expect_has(message({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"}), "got 5 tokens without \"[MASK]\"");
  expect_has(message({}), "got 0 tokens without \"[PAD]\"");
  expect_has(message(specials_and({"a", "\xFF"})), "line 7");
  expect_has(error_of([&] { Vocabulary::load(dir / "missing.txt"); }), "missing.txt");
  expect_has(error_of([&] { Vocabulary::load(dir.write("empty.txt", "")); }), "empty.txt");
  const Vocabulary vocabulary(specials_and({"a\nb"}));
  expect_has(error_of([&] { vocabulary.save(dir / "vocab.txt"); }), "line break, got one in token 5");
  expect_has(error_of([&] { vocabulary.token(6); }), "[0, 6), got 6");
  expect_has(error_of([&] { vocabulary.token(-1); }), "got -1");
}

TEST(PieceTrie, VocabularyWithTooManyPrefixesIsRefused) {
  std::vector<std::string> tokens = specials_and({});
  std::mt19937 random(1);
  for (int i = 0; i < 170; ++i) {
    std::string token(100'000, 'a');
    for (char& c : token) c = static_cast<char>('a' + random() % 26);
    tokens.push_back(token);
  }
  const Vocabulary vocabulary(std::move(tokens));
  expect_has(error_of([&] { PieceTrie{vocabulary}; }), "2^24");
}

using Tokens = std::vector<std::string>;

Vocabulary train(const Tokens& texts, const VocabularyTrainerOptions& options) {
  VocabularyTrainer trainer(options);
  for (const std::string& text : texts) trainer.add(text);
  return trainer.train();
}

Tokens learned(const Tokens& texts, const VocabularyTrainerOptions& options) {
  const Vocabulary vocabulary = train(texts, options);
  Tokens tokens;
  for (int64_t id = 5; id < vocabulary.size(); ++id) tokens.push_back(vocabulary.token(id));
  return tokens;
}

TEST(VocabularyTrainer, FrequenciesAndTheAlphabet) {
  EXPECT_EQ(learned({"ab ab cd"}, {.size = 100}).back(), "ab");
  EXPECT_EQ(learned({"ab ab cd"}, {.size = 100, .min_frequency = 1}).back(), "cd");
  EXPECT_EQ(learned({"ab ab cd"}, {.size = 100, .min_frequency = 3}).back(), "##d");
  // Words with c or x are [UNK] and not learned from.
  EXPECT_EQ(learned({"ab ab ab ac x"}, {.size = 100, .max_alphabet = 2}), (Tokens{"a", "b", "##b", "ab"}));
}

TEST(VocabularyTrainer, CountsNormalisedWordsWithoutSpecialTokensInAnyOrder) {
  const Tokens texts = {"[MASK] \u00C9t\u00E9", "ETE [SEP]"};
  EXPECT_EQ(learned(texts, {.size = 100}), (Tokens{"e", "t", "##e", "##t", "##te", "ete"}));
  EXPECT_EQ(learned({texts[1], texts[0]}, {.size = 100}), learned(texts, {.size = 100}));
  EXPECT_EQ(learned({"A a"}, {.size = 100, .letter_case = Case::kKeep}), (Tokens{"A", "a"}));
}

TEST(VocabularyTrainer, Errors) {
  expect_has(error_of([] { train({" \n[MASK]"}, {}); }), "at least one word");
  expect_has(error_of([] { train({"abc"}, {.size = 9}); }),
             "at least 10 for the special tokens and the characters, got 9");
  EXPECT_EQ(train({"abc"}, {.size = 10}).size(), 10);
  expect_has(error_of([] { VocabularyTrainer({.size = 0}); }), "got 0, 2 and 6000");
  expect_has(error_of([] { VocabularyTrainer({.min_frequency = 0}); }), "got 8000, 0 and 6000");
  expect_has(error_of([] { VocabularyTrainer({.max_alphabet = -1}); }), "got 8000, 2 and -1");
}

}  // namespace
}  // namespace rf::text
