// vocab.txt: ids are line numbers, lines end as in Python's text mode, and every fault names its token or line.
#include "rf/text/vocabulary.h"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "expect_error.h"
#include "temp_dir.h"

namespace rf::text {
namespace {

constexpr char kSpecials[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

std::vector<std::string> specials_and(std::vector<std::string> more) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

TEST(Vocabulary, IdsAreLineNumbers) {
  const TempDir dir;
  const auto vocabulary = Vocabulary::load(dir.write("vocab.txt", std::string("[unused]\n") + kSpecials + "ab\n##c"));
  EXPECT_EQ(vocabulary.size(), 8);
  EXPECT_EQ(vocabulary.find("ab"), 6);
  EXPECT_EQ(vocabulary.find("##c"), 7);
  EXPECT_EQ(vocabulary.find("c"), -1);
  EXPECT_EQ(vocabulary.token(7), "##c");
  EXPECT_EQ(vocabulary.special().pad, 1);
  EXPECT_EQ(vocabulary.special().unk, 2);
  EXPECT_EQ(vocabulary.special().cls, 3);
  EXPECT_EQ(vocabulary.special().sep, 4);
  EXPECT_EQ(vocabulary.special().mask, 5);
}

TEST(Vocabulary, LinesEndAsInPythonsTextMode) {
  const TempDir dir;
  const auto vocabulary =
      Vocabulary::load(dir.write("vocab.txt", "[PAD]\r\n[UNK]\r[CLS]\n[SEP]\n[MASK]\n\nx\xE2\x80\xA8y\n trailing \n"));
  EXPECT_EQ(vocabulary.size(), 8);
  EXPECT_EQ(vocabulary.token(0), "[PAD]");
  EXPECT_EQ(vocabulary.token(1), "[UNK]");
  EXPECT_EQ(vocabulary.find(""), 5);
  EXPECT_EQ(vocabulary.find("x\xE2\x80\xA8y"), 6);  // U+2028 ends no line
  EXPECT_EQ(vocabulary.find(" trailing "), 7);
}

TEST(Vocabulary, SavesWhatItLoads) {
  const TempDir dir;
  const Vocabulary vocabulary(specials_and({"", "a", "##\xC3\xA9"}));
  vocabulary.save(dir.path() + "/vocab.txt");
  const auto loaded = Vocabulary::load(dir.path() + "/vocab.txt");
  ASSERT_EQ(loaded.size(), vocabulary.size());
  for (int64_t id = 0; id < vocabulary.size(); ++id) EXPECT_EQ(loaded.token(id), vocabulary.token(id));
  EXPECT_EQ(loaded.hash(), vocabulary.hash());
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

TEST(Vocabulary, HashTellsTokenBordersAndOrder) {
  const std::string hash = Vocabulary(specials_and({"ab", "c"})).hash();
  EXPECT_NE(hash, Vocabulary(specials_and({"a", "bc"})).hash());
  EXPECT_NE(hash, Vocabulary(specials_and({"c", "ab"})).hash());
}

TEST(VocabularyErrors, DuplicateNamesBothLines) {
  expect_contains(message_of([] { Vocabulary(specials_and({"a", "b", "a"})); }), "got \"a\" in lines 6 and 8");
}

TEST(VocabularyErrors, MissingSpecialToken) {
  expect_contains(message_of([] {
                    Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"});
                  }),
                  "got 5 tokens without \"[MASK]\"");
  expect_contains(message_of([] { Vocabulary({}); }), "got 0 tokens without \"[PAD]\"");
}

TEST(VocabularyErrors, IllFormedBytesNameTheLine) {
  expect_contains(message_of([] { Vocabulary(specials_and({"a", "\xFF"})); }), "line 7");
}

TEST(VocabularyErrors, LineBreakInToken) {
  const TempDir dir;
  const Vocabulary vocabulary(specials_and({"a\nb"}));
  expect_contains(message_of([&] { vocabulary.save(dir.path() + "/vocab.txt"); }), "line break, got one in token 5");
}

TEST(VocabularyErrors, FileErrorsNameThePath) {
  const TempDir dir;
  expect_contains(message_of([&dir] { Vocabulary::load(dir.path() + "/missing.txt"); }), "missing.txt");
  expect_contains(message_of([&dir] { Vocabulary::load(dir.write("empty.txt", "")); }), "empty.txt");
}

TEST(VocabularyErrors, IdOutOfRange) {
  const Vocabulary vocabulary(specials_and({}));
  expect_contains(message_of([&vocabulary] { vocabulary.token(5); }), "[0, 5), got 5");
  expect_contains(message_of([&vocabulary] { vocabulary.token(-1); }), "got -1");
}

}  // namespace
}  // namespace rf::text
