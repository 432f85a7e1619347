// A BatchEncoder's rows do not depend on its threads or on the batches before; what the rows are is
// tests/oracles/test_batch.py's.
#include "rf/text/batch.h"

#include <string>
#include "support.h"

namespace rf::text {
namespace {

Tokenizer make_tokenizer() { return {Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"}), {}}; }

// Texts of many lengths, pairs and an ill-formed one among them.
class Samples {
 public:
  explicit Samples(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t word = 0; word < i * 7 % 41; ++word) texts_[i % 3] += word % 3 == 0 ? "a " : "bc ";
      firsts_.push_back(texts_[i % 3] + (i % 11 == 0 ? "\xFF" : ""));
      texts_[i % 3].resize(texts_[i % 3].size() / 2);
    }
    for (size_t i = 0; i < count; ++i) {
      samples_.push_back({firsts_[i]});
      if (i % 4 == 1) samples_.back().second = firsts_[count - 1 - i];
    }
  }
  std::span<const TextPair> first(size_t count) const { return std::span(samples_).first(count); }

 private:
  std::string texts_[3];
  std::vector<std::string> firsts_;
  std::vector<TextPair> samples_;
};

BatchOptions overflowing(int threads) {
  return {.truncation = Truncation::kLongestFirst,
          .overflow = Overflow::kRows,
          .stride = 2,
          .max_length = 12,
          .padding = Padding::kLongest,
          .threads = threads};
}

void expect_same(std::span<const Row> rows, std::span<const Row> wanted) {
  ASSERT_EQ(rows.size(), wanted.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].sample, wanted[i].sample);
    EXPECT_EQ(rows[i].tokens.ids, wanted[i].tokens.ids);
    EXPECT_EQ(rows[i].tokens.char_begin, wanted[i].tokens.char_begin);
    EXPECT_EQ(rows[i].tokens.byte_end, wanted[i].tokens.byte_end);
    EXPECT_EQ(rows[i].tokens.starts_word, wanted[i].tokens.starts_word);
    EXPECT_EQ(rows[i].tokens.replaced_bytes, wanted[i].tokens.replaced_bytes);
    EXPECT_EQ(rows[i].types, wanted[i].types);
    EXPECT_EQ(rows[i].mask, wanted[i].mask);
    EXPECT_EQ(rows[i].text_index, wanted[i].text_index);
  }
}

TEST(BatchEncoder, RowsDependOnNeitherThreadsNorEarlierBatches) {
  const Tokenizer tokenizer = make_tokenizer();
  const Samples samples(300);
  for (const int threads : {0, 2, 5}) {
    BatchEncoder used(tokenizer, overflowing(threads));
    for (const size_t count : {size_t{300}, size_t{17}, size_t{0}, size_t{1}, size_t{150}}) {
      BatchEncoder fresh(tokenizer, overflowing(1));
      expect_same(used.encode(samples.first(count)), fresh.encode(samples.first(count)));
    }
  }
}

TEST(BatchEncoder, ThrowsTheErrorOfTheFirstSampleThatHasOneAndGoesOn) {
  const Tokenizer tokenizer = make_tokenizer();
  std::vector<TextPair> samples(200, TextPair{"a a a a a a", "b"});
  samples[50].first = "a";    // two tokens too many, and one to give
  samples[150].first = "aa";  // [UNK]: the same
  samples[150].second = "b b b b b b b b";
  samples[50].second = "b b b b";
  BatchEncoder encoder(tokenizer, {.truncation = Truncation::kOnlyFirst, .max_length = 6, .threads = 3});
  expect_contains(message_of([&] { encoder.encode(samples); }), "first text must have more than the 2 tokens");
  EXPECT_EQ(encoder.encode(std::span(samples).first(50)).size(), 50U);
}

}  // namespace
}  // namespace rf::text
