// Masked-LM decisions (R-TRN-01): proportions, words, special tokens, padding, and what the decisions depend on.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "fixtures.h"
#include "rf/data/batcher.h"
#include "tolerances.h"

namespace rf::data {
namespace {

constexpr int64_t kVocabularySize = 1005;

// One document of `tokens` tokens; a word every `word` tokens. The ids change from one token to the next.
TestDocument document(int64_t tokens, int64_t word = 1) {
  TestDocument made;
  for (int64_t i = 0; i < tokens; ++i) {
    made.ids.push_back(static_cast<int32_t>(5 + i % (kVocabularySize - 5)));
    made.starts_word.push_back(i % word == 0);
  }
  return made;
}

void expect_proportion(double hits, double n, double p, const char* what) {
  EXPECT_NEAR(hits / n, p, tests::kSigmas * std::sqrt(p * (1 - p) / n)) << what;
}

TEST(Masking, ProportionsOverAMillionTokens) {
  const Directory directory;
  const int64_t tokens = 1000000;
  const Batcher batcher(make_split(directory, {document(tokens)}, kVocabularySize), kSpecial, {.max_length = 512});
  double chosen = 0, masked = 0, same = 0, random = 0, random_sum = 0;
  std::array<double, 10> tenths{};
  for (const Batch& batch : batches_in_order(batcher)) {
    ASSERT_EQ(batch.places.size(), batch.labels.size());
    ASSERT_TRUE(std::is_sorted(batch.places.begin(), batch.places.end()));
    for (size_t i = 0; i < batch.places.size(); ++i) {
      const int64_t seen = batch.ids[batch.places[i]], label = batch.labels[i];
      chosen += 1;
      if (seen == kSpecial.mask) {
        masked += 1;
      } else if (seen == label) {
        same += 1;
      } else {
        ASSERT_TRUE(seen >= 5 && seen < kVocabularySize) << seen;
        random += 1;
        random_sum += double(seen);
        tenths[(seen - 5) * 10 / (kVocabularySize - 5)] += 1;
      }
    }
  }
  const double chance_same = 0.1 / double(kVocabularySize - 5);  // a random id that is the token's own
  expect_proportion(chosen, tokens, 0.15, "chosen");
  expect_proportion(masked, chosen, 0.8, "masked");
  expect_proportion(same, chosen, 0.1 + chance_same, "unchanged");
  expect_proportion(random, chosen, 0.1 - chance_same, "random");
  for (const double hits : tenths) expect_proportion(hits, random, 0.1, "random ids");
}

TEST(Masking, RandomIdsSkipSpecialTokensAnywhere) {
  const Directory directory;
  const text::SpecialIds special{.pad = 8, .unk = 2, .cls = 4, .sep = 5, .mask = 0};
  TestDocument made;
  for (int i = 0; i < 4000; ++i) made.ids.push_back(1);
  made.starts_word.assign(made.ids.size(), 1);
  const BatchOptions options{.max_length = 102, .mask = {.probability = 1, .mask_fraction = 0, .random_fraction = 1}};
  const Batcher batcher(make_split(directory, {made}, 10), special, options);
  std::set<int64_t> seen;
  for (const Batch& batch : batches_in_order(batcher)) {
    EXPECT_EQ(std::ssize(batch.places), batch.real_tokens * 100 / 102);
    for (const int64_t at : batch.places) seen.insert(batch.ids[at]);
  }
  EXPECT_EQ(seen, (std::set<int64_t>{1, 3, 6, 7, 9}));
}

// A special token inside a word ends it: what follows is a word of its own, and the special token stays.
TEST(Masking, SpecialTokensAreNeverChosen) {
  const Directory directory;
  const TestDocument words{{0, 7, 1, 7, 2, 7, 3, 7, 4, 7}, std::vector<uint8_t>(10, 1)};
  const TestDocument one{{7, 8, kSpecial.unk, 8, 9, kSpecial.mask}, {1, 0, 0, 0, 0, 0}};
  const std::tuple<TestDocument, std::vector<int64_t>, std::vector<int64_t>> cases[] = {
      {words, {2, 4, 6, 8, 10}, {7, 7, 7, 7, 7}}, {one, {1, 2, 4, 5}, {7, 8, 8, 9}}};
  for (const auto& [made, places, labels] : cases) {
    for (const MaskUnit unit : {MaskUnit::kToken, MaskUnit::kWholeWord}) {
      const BatchOptions options{.max_length = 16, .batch_size = 1, .mask = {.probability = 1, .unit = unit}};
      BatchCursor cursor;
      const Batch batch = Batcher(make_split(directory, {made}, 10), kSpecial, options).next(cursor);
      EXPECT_EQ(batch.places, places);
      EXPECT_EQ(batch.labels, labels);
      EXPECT_EQ(batch.ids[3], made.ids[2]);
    }
  }
}

TEST(Masking, WholeWords) {
  const Directory directory;
  const int64_t word = 3;
  const TestDocument made = document(60000, word);
  const BatchOptions options{.max_length = 101, .mask = {.unit = MaskUnit::kWholeWord}};
  const Batcher batcher(make_split(directory, {made}, kVocabularySize), kSpecial, options);
  int64_t in_order = 0, words = 0, chosen_words = 0;
  for (const Batch& batch : batches_in_order(batcher)) {
    const std::set<int64_t> masked(batch.places.begin(), batch.places.end());
    for (int64_t b = 0; b < batch.batch_size; ++b) {
      // 99 tokens a chunk: 33 whole words; the last chunk is shorter.
      for (int64_t t = 1; t < batch.length - 1 && batch.segments[b * batch.length + t + 1] >= 0; t += word, ++words) {
        const int64_t at = b * batch.length + t;
        const bool first = masked.contains(at);
        EXPECT_EQ(masked.contains(at + 1), first);
        EXPECT_EQ(masked.contains(at + 2), first);
        chosen_words += first ? 1 : 0;
      }
    }
    in_order += std::ssize(batch.places);
  }
  EXPECT_EQ(words, 20000);
  EXPECT_EQ(in_order, word * chosen_words);
  expect_proportion(double(chosen_words), double(words), 0.15, "words");
}

// The fates inside one word differ: 80/10/10 holds by token.
TEST(Masking, FatesAreByToken) {
  const Directory directory;
  const BatchOptions options{.max_length = 102, .mask = {.probability = 1, .unit = MaskUnit::kWholeWord}};
  const Batcher batcher(make_split(directory, {document(20000, 100)}, kVocabularySize), kSpecial, options);
  double masked = 0, all = 0;
  for (const Batch& batch : batches_in_order(batcher)) {
    all += double(batch.places.size());
    for (const int64_t at : batch.places) masked += batch.ids[at] == kSpecial.mask ? 1 : 0;
  }
  EXPECT_EQ(all, 20000);
  expect_proportion(masked, all, 0.8, "masked");
}

// A draw below threshold(p) has probability p; a draw equal to the threshold is outside.
TEST(Masking, DrawsAtAThreshold) {
  const Directory directory;
  const TestDocument made = document(8);
  const auto sorted_draws = [&](int word) {
    std::vector<double> draws;
    for (uint32_t t = 0; t < made.ids.size(); ++t) draws.push_back(draw(1, Stream::kMask, t, 0, 0)[word] * 0x1p-32);
    std::sort(draws.begin(), draws.end());
    return draws;
  };
  const auto batch = [&](const MaskOptions& mask) {
    const BatchOptions options{.max_length = 16, .mask = mask, .seed = 1};
    return batches_in_order(Batcher(make_split(directory, {made}, kVocabularySize), kSpecial, options)).at(0);
  };
  const double fourth = sorted_draws(0)[3], fourth_of_fates = sorted_draws(1)[3];
  EXPECT_EQ(batch({.probability = fourth}).places.size(), 3u);
  const Batch masked = batch({.probability = 1, .mask_fraction = fourth_of_fates, .random_fraction = 0});
  EXPECT_EQ(std::count(masked.ids.begin(), masked.ids.end(), kSpecial.mask), 3);
  const Batch random = batch({.probability = 1, .mask_fraction = 0, .random_fraction = fourth_of_fates});
  int64_t changed = 0;
  for (size_t i = 0; i < random.places.size(); ++i) changed += random.ids[random.places[i]] != random.labels[i];
  EXPECT_EQ(changed, 3);
}

TEST(Masking, AtLeastOneTokenInAStep) {
  const Directory directory;
  for (const MaskUnit unit : {MaskUnit::kToken, MaskUnit::kWholeWord}) {
    const BatchOptions options{.max_length = 8, .batch_size = 1, .mask = {.probability = 1e-9, .unit = unit}};
    const Batcher batcher(make_split(directory, {document(600, 3)}, kVocabularySize), kSpecial, options);
    std::set<int64_t> places;
    BatchCursor cursor;
    while (cursor.epoch == 0) {
      const Batch batch = batcher.next(cursor);
      ASSERT_EQ(batch.places.size(), unit == MaskUnit::kToken ? 1u : 3u);
      places.insert(batch.places.front());
    }
    EXPECT_EQ(places.size(), unit == MaskUnit::kToken ? 6u : 2u);  // not always the same place
  }
}

TEST(Masking, ABatchOfSpecialTokensHasNone) {
  const Directory directory;
  const Batcher batcher(make_split(directory, {{{1, 1}, {1, 1}}}, 10), kSpecial, {.max_length = 8, .batch_size = 2});
  BatchCursor cursor;
  EXPECT_TRUE(batcher.next(cursor).places.empty());
}

TEST(Masking, OptionsOutOfRange) {
  const Directory directory;
  const auto split = make_split(directory, {document(10)}, kVocabularySize);
  const auto message = [&](MaskOptions mask, text::SpecialIds special = kSpecial) {
    return error_of([&] { Batcher(split, special, {.mask = mask}); });
  };
  expect_has(message({.probability = 0}), "got 0");
  expect_has(message({.probability = 1.5}), "got 1.5");
  expect_has(message({.probability = std::nan("")}), "nan");
  expect_has(message({.mask_fraction = -0.5}), "got -0.5");
  expect_has(message({.random_fraction = 2}), "got 2");
  expect_has(message({.mask_fraction = 0.75, .random_fraction = 0.5}), "got 1.25");
  text::SpecialIds outside = kSpecial;
  outside.mask = kVocabularySize;
  expect_has(message({}, outside), "got 1005");
  const Directory small;
  expect_has(error_of([&] { Batcher(make_split(small, {{{1}, {1}}}, 5), kSpecial, {}); }), "got 5");
}

}  // namespace
}  // namespace rf::data
