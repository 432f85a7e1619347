// Words and their sources on the cases where Unicode bites; every code point and 10^5 random strings are compared with
// Python in tests/oracles/test_wordpiece.py (spec R-TOK-05). The expected words are those of Python 3.11's unicodedata.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "expect_error.h"
#include "rf/io/utf8.h"
#include "splitters/legacy_splitter.h"

namespace rf::text {
namespace {

struct Seen {
  std::string text;
  int32_t byte_begin, byte_end, char_begin, char_end;
  bool operator==(const Seen&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  return out << '"' << seen.text << "\" bytes " << seen.byte_begin << ".." << seen.byte_end << " chars "
             << seen.char_begin << ".." << seen.char_end;
}

class Collector : public WordSink {
 public:
  void take(const Word& word) override {
    const SourceSpan source = word.source();
    seen.push_back({std::string(word.text), source.byte_begin, source.byte_end, source.char_begin, source.char_end});
    specials.push_back(word.special);
  }
  std::vector<Seen> seen;
  std::vector<Special> specials;
};

std::vector<Seen> words(std::string_view text, Case letter_case = Case::kLower) {
  Collector collector;
  LegacySplitter(letter_case).split(text, collector);
  return collector.seen;
}

std::vector<std::string> texts(std::string_view text, Case letter_case = Case::kLower) {
  std::vector<std::string> out;
  for (const Seen& seen : words(text, letter_case)) out.push_back(seen.text);
  return out;
}

using Texts = std::vector<std::string>;

TEST(LegacySplitter, PlainText) {
  const std::vector<Seen> want = {
      {"don", 1, 4, 1, 4}, {"'", 4, 5, 4, 5}, {"t", 5, 6, 5, 6}, {"stop", 8, 12, 8, 12}, {"!", 12, 13, 12, 13}};
  EXPECT_EQ(words(" Don't\t\nSTOP!"), want);
  EXPECT_EQ(texts("aB C", Case::kKeep), (Texts{"aB", "C"}));
  EXPECT_TRUE(words("").empty());
  EXPECT_TRUE(words(" \r\n\t").empty());
}

TEST(LegacySplitter, ControlCharactersJoinTheirNeighbours) {
  const std::vector<Seen> want = {{"ab", 0, 3, 0, 3}, {"c", 4, 5, 4, 5}};
  EXPECT_EQ(words(std::string_view("a\0b c", 5)), want);
  EXPECT_EQ(texts("a\x0B"
                  "b"),
            (Texts{"ab"}));
  EXPECT_EQ(texts("b\x7F"
                  "c"),
            (Texts{"bc"}));
  EXPECT_EQ(texts("a\u200Db"), (Texts{"ab"}));      // zero width joiner, Cf
  EXPECT_EQ(texts("a\U000E0080b"), (Texts{"ab"}));  // unassigned
}

TEST(LegacySplitter, WhiteSpaceOfUnicode) {
  EXPECT_EQ(texts("a\u00A0b\u3000c\u2028d\u2029e"), (Texts{"a", "b", "c", "d", "e"}));
}

TEST(LegacySplitter, AccentsAndLetterCase) {
  const std::vector<Seen> precomposed = {{"cafe", 0, 5, 0, 4}};
  EXPECT_EQ(words("Caf\u00E9"), precomposed);
  const std::vector<Seen> combining = {{"cafes", 0, 7, 0, 6}};
  EXPECT_EQ(words("cafe\u0301s"), combining);
  const std::vector<Seen> at_the_end = {{"cafe", 0, 4, 0, 4}};  // the mark removed is no part of the word's source
  EXPECT_EQ(words("cafe\u0301"), at_the_end);
  const std::vector<Seen> kept = {{"caf\u00E9", 0, 6, 0, 5}};  // composed by NFC
  EXPECT_EQ(words("cafe\u0301", Case::kKeep), kept);
  EXPECT_EQ(texts("\u0130I\u0130"), (Texts{"iii"}));
  EXPECT_TRUE(words("\u0301").empty());
}

TEST(LegacySplitter, FinalSigma) {
  EXPECT_EQ(texts("\u039F\u03A3 \u03A3\u039F \u03A3"), (Texts{"\u03BF\u03C2", "\u03C3\u03BF", "\u03C3"}));
  EXPECT_EQ(texts("A\u00AD\u03A3"), (Texts{"a\u03C2"}));        // the soft hyphen is dropped before
  EXPECT_EQ(texts("A\u03A3.B"), (Texts{"a\u03C3", ".", "b"}));  // a full stop is case-ignorable
  EXPECT_EQ(texts("A\u03A3,B"), (Texts{"a\u03C2", ",", "b"}));  // a comma is not
}

TEST(LegacySplitter, HangulComesApartWithItsSources) {
  const std::vector<Seen> lower = {{"\u1112\u1161\u11AB", 0, 3, 0, 1}};
  EXPECT_EQ(words("\uD55C"), lower);
  const std::vector<Seen> kept = {{"\uD55C", 0, 9, 0, 3}};
  EXPECT_EQ(words("\u1112\u1161\u11AB", Case::kKeep), kept);
}

TEST(LegacySplitter, MarksAreReorderedAndBlocked) {
  EXPECT_EQ(texts("a\u0301\u0323", Case::kKeep), (Texts{"\u1EA1\u0301"}));   // dot below composes across the acute
  EXPECT_EQ(texts("a\u0305\u0301", Case::kKeep), (Texts{"a\u0305\u0301"}));  // an equal class blocks
  EXPECT_EQ(texts("\u0344", Case::kKeep), (Texts{"\u0308\u0301"}));          // never composed again
}

TEST(LegacySplitter, ComposedPunctuationSplits) {
  EXPECT_EQ(texts("a=\u0338b", Case::kKeep), (Texts{"a\u2260b"}));  // a symbol, no punctuation
  EXPECT_EQ(texts("a=\u0338b"), (Texts{"a", "=", "b"}));
  EXPECT_EQ(texts("\u00BFa\u3002b"), (Texts{"\u00BF", "a", "\u3002", "b"}));
}

TEST(LegacySplitter, CjkCharactersStandAlone) {
  const std::vector<Seen> want = {{"x", 0, 1, 0, 1}, {"\u4E2D", 1, 4, 1, 2}, {"\u6587", 4, 7, 2, 3}, {"y", 7, 8, 3, 4}};
  EXPECT_EQ(words("x\u4E2D\u6587y"), want);
  EXPECT_EQ(texts("\uF900a"), (Texts{"\u8C48", "a"}));        // a compatibility ideograph becomes the unified one
  EXPECT_EQ(texts("\u304C\u304D"), (Texts{"\u304B\u304D"}));  // kana are no CJK ideographs; the voicing is a mark
}

TEST(LegacySplitter, SpecialTokensAreKeptWhole) {
  Collector collector;
  LegacySplitter(Case::kLower).split("a[MASK]b [[CLS]] [mask] [SE\x01P] x[SE\x01P]", collector);
  Texts got;
  for (const Seen& seen : collector.seen) got.push_back(seen.text);
  EXPECT_EQ(got, (Texts{"a", "[MASK]", "b", "[", "[CLS]", "]", "[", "mask", "]", "[SEP]", "x", "[", "sep", "]"}));
  EXPECT_EQ(collector.specials[1], Special::kMask);
  EXPECT_EQ(collector.specials[4], Special::kCls);
  EXPECT_EQ(collector.specials[7], Special::kNone);
  EXPECT_EQ(collector.specials[9], Special::kSep);
}

TEST(LegacySplitter, IllFormedUtf8IsReplacedDroppedAndCounted) {
  Collector collector;
  EXPECT_EQ(LegacySplitter(Case::kLower)
                .split("a\xFF b\xE4\xB8 c\xED\xA0\x80"
                       "d",
                       collector),
            5);
  const std::vector<Seen> want = {{"a", 0, 1, 0, 1}, {"b", 3, 4, 3, 4}, {"cd", 7, 12, 6, 11}};
  EXPECT_EQ(collector.seen, want);
}

TEST(LegacySplitterErrors, TextOf2GiB) {
  const size_t size = size_t{1} << 31;
  void* const pages = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const std::string message = message_of([pages, size] { words({static_cast<const char*>(pages), size}); });
  expect_contains(message, "smaller than 2^31 bytes, got 2147483648");
  munmap(pages, size);
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string bytes;
    append_utf8(code, bytes);
    const Decoded decoded = decode_utf8(bytes);
    ASSERT_TRUE(decoded.valid && decoded.code == code && decoded.length == static_cast<int32_t>(bytes.size()))
        << static_cast<uint32_t>(code);
  }
}

}  // namespace
}  // namespace rf::text
