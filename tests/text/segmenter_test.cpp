// Cutting into words: the interface, odd values and long texts. Against rjieba and jieba:
// tests/oracles/test_segmenter.py.
#include <gtest/gtest.h>

#include "rf/text/segmenter.h"
#include "temp_dir.h"

namespace rf::text {
namespace {

using Ends = std::vector<uint32_t>;

class SegmenterTest : public ::testing::Test {
 protected:
  // jin tian, tian qi, fei chang, jin tian tian qi
  SegmenterTest()
      : dictionary_(Dictionary::load(dir_.write("dict.txt",
                                                "\xE4\xBB\x8A\xE5\xA4\xA9 20\n\xE5\xA4\xA9\xE6\xB0\x94 20\n"
                                                "\xE4\xBB\x8A\xE5\xA4\xA9\xE5\xA4\xA9\xE6\xB0\x94 9\nC++ 3\nb3 2\n"),
                                     {}, {""})),
        segmenter_(dictionary_) {}

  Ends cut(std::u32string_view text) {
    Ends ends = {77};
    segmenter_.cut(text, ends);
    return ends;
  }

  TempDir dir_;
  std::shared_ptr<const Dictionary> dictionary_;
  Segmenter segmenter_;
};

TEST_F(SegmenterTest, TheMostProbablePathWins) {
  EXPECT_EQ(cut(U"\u4ECA\u5929\u5929\u6C14"), (Ends{4}));  // 9/54 > (20/54)^2
  EXPECT_EQ(cut(U"\u4ECA\u5929\u6C14"), (Ends{2, 3}));     // a character that begins a word is none by itself
}

TEST_F(SegmenterTest, WordsOfOneLetterOrDigitAreJoined) {
  EXPECT_EQ(cut(U"ab12C++x+y"), (Ends{4, 7, 8, 9, 10}));
  EXPECT_EQ(cut(U"ab3c"), (Ends{1, 3, 4}));
  EXPECT_EQ(cut(U"a b"), (Ends{1, 2, 3}));
}

TEST_F(SegmenterTest, OutsideRunsEveryCharacterIsAWord) {
  EXPECT_EQ(cut(U""), Ends{});
  EXPECT_EQ(cut(U"  \r\n\n\r\u3002\U0001F600"), (Ends{1, 2, 4, 5, 6, 7, 8}));
}

TEST_F(SegmenterTest, NoUnicodeCharacterIsAWordOfItsOwn) {
  const char32_t odd[] = {0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF, 'a', 0};
  EXPECT_EQ(cut({odd, 6}), (Ends{1, 2, 3, 4, 5, 6}));
}

TEST_F(SegmenterTest, PartsCutByThemselves) {
  for (const char32_t c : {U'\n', U' ', U'\u3002', U'\u0130', U'\U0001F600'}) EXPECT_TRUE(Segmenter::may_part_after(c));
  for (const char32_t c : {U'\r', U'-', U'7', U'x', U'\u4ECA', U'\U00020000'})
    EXPECT_FALSE(Segmenter::may_part_after(c));
}

TEST_F(SegmenterTest, ARunOfMillions) {
  std::u32string text;
  constexpr size_t kWords = 1'000'000;
  for (size_t i = 0; i < kWords; ++i) text += i % 2 == 0 ? U"\u4ECA\u5929" : U"\u5929\u6C14";
  const Ends ends = cut(text);
  ASSERT_EQ(ends.size(), kWords / 2);
  for (size_t i = 0; i < ends.size(); ++i) ASSERT_EQ(ends[i], 4 * (i + 1));
}

TEST_F(SegmenterTest, MovesAndOutlivesTheCallersPointer) {
  Segmenter moved = std::move(segmenter_);
  dictionary_.reset();
  Ends ends;
  moved.cut(U"C++", ends);
  EXPECT_EQ(ends, (Ends{3}));
}

}  // namespace
}  // namespace rf::text
