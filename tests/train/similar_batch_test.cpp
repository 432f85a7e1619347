// Masks and targets of pairs for `train-similar`.
#include "similar_batch.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rf/data/random.h"
#include "tolerances.h"

namespace rf::train {
namespace {

constexpr int64_t kTextWords = 40000, kRowLength = kTextWords + 4;

// [CLS] 40000 words [SEP] one word [SEP], twice.
SimilarPair long_pair(const text::Vocabulary& vocabulary) {
  const auto special = vocabulary.special();
  SimilarPair::Row row;
  row.ids.push_back(special.cls);
  for (int32_t i = 0; i < kTextWords; ++i) row.ids.push_back(5 + i % 1000);
  row.ids.insert(row.ids.end(), {special.sep, 5, special.sep});
  row.types.assign(kRowLength, 0);
  row.types[kRowLength - 2] = row.types[kRowLength - 1] = 1;
  row.starts_word.assign(kRowLength, 1);
  row.starts_word[0] = row.starts_word[kRowLength - 3] = row.starts_word[kRowLength - 1] = 0;
  return {{row, row}};
}

// Words of the first text that the model reads as [MASK], and as any other token.
struct Changes {
  int64_t masked = 0, changed = 0;
};

Changes changes(const SimilarBatch& batch, const SimilarPair& pair, int64_t side, int32_t mask_id) {
  Changes found;
  const int64_t* read = batch.input.ids_BT.const_data_ptr<int64_t>() + side * kRowLength;
  const std::vector<int32_t>& ids = pair.rows[side].ids;
  for (int64_t t = 0; t < kRowLength; ++t) {
    if (read[t] == ids[t]) continue;
    EXPECT_TRUE(t > 0 && t <= kTextWords) << t;  // never a special token or the second text
    ++found.changed;
    found.masked += read[t] == mask_id ? 1 : 0;
  }
  return found;
}

TEST(SimilarBatch, SharesOfRowsAndOfWords) {
  std::vector<std::string> words{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 1000; ++i) words.push_back(std::to_string(i));
  const text::Vocabulary vocabulary(words);
  const std::vector<SimilarPair> pairs{long_pair(vocabulary)};
  const int64_t index = 0;
  for (int64_t side = 0; side < 2; ++side) {
    const double share = data::draw(3, data::Stream::kMask, 0, 0, side)[3] * 0x1p-32;
    const auto changes_at = [&](double rows) {
      const SimilarMasking masking{.rows = rows, .seed = 3, .vocabulary = &vocabulary};
      const SimilarBatch batch = similar_batch(pairs, {&index, 1}, masking, vocabulary.special().pad);
      const auto sep = int64_t{vocabulary.special().sep};
      EXPECT_TRUE(at::equal(batch.labels_N, at::tensor({int64_t{5}, sep, int64_t{5}, sep}, at::kLong)));
      const int64_t last = kRowLength - 1;
      const std::vector<int64_t> tokens{last - 2, last - 1, kRowLength + last - 2, kRowLength + last - 1};
      EXPECT_TRUE(at::equal(batch.tokens_N, at::tensor(tokens, at::kLong)));
      return changes(batch, pairs[0], side, vocabulary.special().mask);
    };
    EXPECT_EQ(changes_at(share).changed, 0);
    const Changes found = changes_at(share + 0x1p-32);
    const auto expect_share = [](int64_t hits, double p) {
      EXPECT_NEAR(double(hits) / kTextWords, p, tests::kSigmas * std::sqrt(p * (1 - p) / kTextWords));
    };
    expect_share(found.masked, 0.15 * 0.8);
    expect_share(found.changed, 0.15 * (0.8 + 0.1 * (1 - 1.0 / 1005)));
  }
}

}  // namespace
}  // namespace rf::train
