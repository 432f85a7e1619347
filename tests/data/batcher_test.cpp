// Rows, packing, order and resumption. The documents hold each (document, token) as a unique number, written in three
// ids, so that a batch shows where its tokens come from.
#include "rf/data/batcher.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "fixtures.h"
#include "tolerances.h"

namespace rf::data {
namespace {

constexpr int64_t kVocab = 5 + 60000;

// [begin, end) of every chunk by the rule of batcher.h.
std::vector<std::vector<int64_t>> expected_chunks(const std::vector<int64_t>& document_sizes, int64_t max_length) {
  std::vector<std::vector<int64_t>> chunks;
  int64_t next = 5;
  for (const int64_t size : document_sizes) {
    for (int64_t begin = 0; begin < size; begin += max_length - 2) {
      auto& chunk = chunks.emplace_back();
      for (int64_t i = begin; i < std::min(size, begin + max_length - 2); ++i) chunk.push_back(next++);
    }
  }
  return chunks;
}

// The batch as it was before masking.
std::vector<int64_t> unmasked(const Batch& batch) {
  std::vector<int64_t> ids = batch.ids;
  for (size_t i = 0; i < batch.places.size(); ++i) ids[batch.places[i]] = batch.labels[i];
  return ids;
}

// The chunks of row b; fails when its segments, positions, special tokens or padding are wrong.
std::vector<std::vector<int64_t>> chunks_of(const Batch& batch, int64_t b) {
  const std::vector<int64_t> ids = unmasked(batch);
  EXPECT_TRUE(batch.types.empty() && batch.pair_places.empty() && batch.pair_labels.empty());  // without pairs
  std::vector<std::vector<int64_t>> chunks;
  int64_t t = 0;
  const auto at = [&](int64_t i) { return b * batch.length + i; };
  for (int32_t segment = 0; t < batch.length && batch.segments[at(t)] >= 0; ++segment) {
    const int64_t begin = t;
    EXPECT_EQ(ids[at(t)], kSpecial.cls);
    chunks.emplace_back();
    for (; t < batch.length && batch.segments[at(t)] == segment; ++t) {
      EXPECT_EQ(batch.positions[at(t)], t - begin);
      if (ids[at(t)] >= 5) chunks.back().push_back(ids[at(t)]);
    }
    EXPECT_EQ(ids[at(t - 1)], kSpecial.sep);
    EXPECT_EQ(std::ssize(chunks.back()), t - begin - 2);
    EXPECT_GT(t, begin + 2);
    if (t == begin) return chunks;
  }
  for (; t < batch.length; ++t) {
    EXPECT_EQ(ids[at(t)], kSpecial.pad);
    EXPECT_EQ(batch.segments[at(t)], -1);
    EXPECT_EQ(batch.positions[at(t)], 0);
  }
  return chunks;
}

// A run ends where a token's segment is not that of the token after it, or with a row.
int64_t count_runs(const Batch& batch) {
  int64_t runs = 0;
  const auto& segments = batch.segments;
  for (int64_t i = 1; i <= std::ssize(segments); ++i) {
    if (i % batch.length == 0 || segments[i] != segments[i - 1]) ++runs;
  }
  return runs;
}

bool same(const Batch& a, const Batch& b) {
  return a.batch_size == b.batch_size && a.length == b.length && a.ids == b.ids && a.segments == b.segments &&
         a.positions == b.positions && a.places == b.places && a.labels == b.labels && a.real_tokens == b.real_tokens;
}

class Packings : public testing::TestWithParam<Packing> {
 protected:
  BatchOptions options(int64_t max_length, int64_t batch_size) const {
    return {.max_length = max_length, .batch_size = batch_size, .packing = GetParam(), .seed = 5};
  }
  const Directory directory_;
};

// Documents are counted in groups of 64; shards, here of 37, end anywhere in a group.
TEST_P(Packings, InOrderEveryChunkOnce) {
  for (const int64_t count : {63, 64, 65, 128, 300}) {
    const auto document_sizes = sizes(count, 1, 41);
    for (const int64_t max_length : {3, 9, 60}) {
      const Directory directory;
      const Batcher batcher(make_split(directory, numbered(document_sizes), kVocab, 37), kSpecial,
                            options(max_length, 50));
      std::vector<std::vector<int64_t>> found;
      auto expected = expected_chunks(document_sizes, max_length);
      int64_t row = std::ssize(expected);
      Batch batch;
      EXPECT_FALSE(batcher.next_in_order(row, batch));
      for (const Batch& each : batches_in_order(batcher)) {
        EXPECT_TRUE(batch.batch_size == 0 || batch.batch_size == 50) << "only the last batch is shorter";
        batch = each;
        EXPECT_EQ(batch.runs, count_runs(batch));
        for (int64_t b = 0; b < batch.batch_size; ++b) {
          for (auto& chunk : chunks_of(batch, b)) found.push_back(chunk);
        }
      }
      if (GetParam() == Packing::kPadded) {
        EXPECT_EQ(batcher.rows_per_epoch(), std::ssize(expected));
        EXPECT_EQ(found, expected);
      }
      std::sort(found.begin(), found.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(found, expected);
    }
  }
}

TEST_P(Packings, EveryChunkOnceAnEpochInAnotherOrder) {
  const std::vector<int64_t> document_sizes = sizes(200, 1, 401);
  auto expected = expected_chunks(document_sizes, 66);
  const auto split = make_split(directory_, numbered(document_sizes), kVocab, 37);
  // One row a batch, so that epochs end where batches end.
  BatchOptions given = options(66, 1), other = given;
  other.seed = 6;
  const Batcher batcher(split, kSpecial, given);
  std::vector<std::vector<std::vector<int64_t>>> epochs(3);
  BatchCursor cursor, of_other;
  const Batch of_another_seed = Batcher(split, kSpecial, other).next(of_other);
  EXPECT_NE(chunks_of(of_another_seed, 0), chunks_of(batcher.next(cursor), 0));
  for (cursor = {}; cursor.epoch < 3;) {
    auto& epoch = epochs[cursor.epoch];
    const Batch batch = batcher.next(cursor);
    for (auto& chunk : chunks_of(batch, 0)) epoch.push_back(chunk);
  }
  EXPECT_NE(epochs[0], expected);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  std::sort(expected.begin(), expected.end());
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, expected);
  }
}

TEST_P(Packings, ShapesAndCounts) {
  const Batcher batcher(make_split(directory_, numbered({3, 10, 1, 30}), kVocab), kSpecial, options(14, 3));
  Batch batch;
  int64_t row = 0;
  ASSERT_TRUE(batcher.next_in_order(row, batch));
  EXPECT_EQ(batch.batch_size, 3);
  EXPECT_EQ(std::ssize(batch.ids), 3 * batch.length);
  if (GetParam() == Packing::kPadded) {
    EXPECT_EQ(batch.length, 12);  // the longest of 3 + 2, 10 + 2, 1 + 2
    EXPECT_EQ(batch.real_tokens, 20);
    EXPECT_EQ(batcher.rows_per_epoch(), 6);  // 30 = 12 + 12 + 6
  } else {
    EXPECT_EQ(batch.length, 14);
    EXPECT_EQ(batcher.rows_per_epoch(), 4);  // 44 + 6 * 2 tokens
  }
}

// A batcher of its own goes on from each cursor, also from one whose micro-batches nobody read.
TEST_P(Packings, MicroBatchesThatAreNotWantedAreSkipped) {
  const auto split = make_split(directory_, numbered(sizes(60, 1, 401)), kVocab);
  const Batcher batcher(split, kSpecial, options(66, 7));
  BatchCursor read, partly, skipped;
  while (read.epoch < 3) {
    std::vector<Batch> all;
    for (int i = 0; i < 3; ++i) all.push_back(batcher.next(read));
    const Batcher again(split, kSpecial, options(66, 7));
    BatchCursor resumed = skipped;
    EXPECT_TRUE(same(again.next(resumed), all[0]));
    const std::vector<Batch> odd = batcher.next_step(partly, 3, [](int64_t i) { return i == 1; });
    ASSERT_EQ(odd.size(), 1u);
    EXPECT_TRUE(same(odd[0], all[1]));
    EXPECT_TRUE(batcher.next_step(skipped, 3, [](int64_t) { return false; }).empty());
    ASSERT_EQ(std::pair(read.epoch, read.row), std::pair(partly.epoch, partly.row));
    ASSERT_EQ(std::pair(read.epoch, read.row), std::pair(skipped.epoch, skipped.row));
  }
}

// Packing makes the rows of a block in falling order of their longest chunk, which is their first. In the order of
// training, of two rows that follow each other either has the longer one as often.
TEST(Batcher, PackedRowsAreShuffledInABlock) {
  const Directory directory;
  const Batcher batcher(make_split(directory, numbered(sizes(1500, 1, 61)), kVocab), kSpecial,
                        {.max_length = 64, .batch_size = 1, .packing = Packing::kPacked});
  double rises = 0, changes = 0;
  int64_t before = 0;
  for (BatchCursor cursor; cursor.epoch == 0;) {
    const int64_t longest = std::ssize(chunks_of(batcher.next(cursor), 0).front());
    changes += before != 0 && longest != before ? 1 : 0;
    rises += before != 0 && longest > before ? 1 : 0;
    before = longest;
  }
  EXPECT_NEAR(rises / changes, 0.5, tests::kSigmas * std::sqrt(0.25 / changes));
}

TEST_P(Packings, ThreadsShareABatcher) {
  const Batcher batcher(make_split(directory_, numbered(sizes(100, 1, 401)), kVocab), kSpecial, options(34, 11));
  std::vector<std::vector<Batch>> made(2);
  std::vector<std::thread> threads;
  for (auto& batches : made) {
    threads.emplace_back([&batcher, &batches] {
      BatchCursor cursor;
      for (int i = 0; i < 50; ++i) batches.push_back(batcher.next(cursor));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(same(made[0][i], made[1][i]));
}

TEST_P(Packings, BatchesLargerThanAnEpoch) {
  const Batcher batcher(make_split(directory_, numbered({3, 2}), kVocab), kSpecial, options(8, 50));
  BatchCursor cursor;
  const Batch batch = batcher.next(cursor);
  EXPECT_EQ(batch.batch_size, 50);
  EXPECT_GT(cursor.epoch, 10);
  std::map<int64_t, int> first_ids;
  for (int64_t b = 0; b < 50; ++b) {
    for (const auto& chunk : chunks_of(batch, b)) first_ids[chunk.front()] += 1;
  }
  EXPECT_EQ(first_ids.size(), 2u);
}

TEST_P(Packings, OptionsOutOfRange) {
  const auto split = make_split(directory_, numbered({5}), kVocab);
  const auto message = [&](int64_t max_length, int64_t batch_size) {
    return error_of([&] { Batcher(split, kSpecial, options(max_length, batch_size)); });
  };
  expect_has(message(2, 1), "got 2");
  expect_has(message(-1, 1), "got -1");
  expect_has(message(8, 0), "got 0");
  expect_has(message(1 << 20, 1 << 20), "1048576");
  expect_has(message(int64_t{1} << 62, 1), "max_length");
  const Batcher batcher(split, kSpecial, options(8, 1));
  BatchCursor negative{.epoch = 0, .row = -1}, early{.epoch = -3, .row = 0}, beyond{.epoch = 0, .row = 1000};
  expect_has(error_of([&] { batcher.next(negative); }), "-1");
  expect_has(error_of([&] { batcher.next(early); }), "-3");
  EXPECT_EQ(batcher.next(beyond).batch_size, 1);  // past the end of an epoch: the next one
  int64_t row = -2;
  Batch batch;
  expect_has(error_of([&] { batcher.next_in_order(row, batch); }), "-2");
  BatchOptions causal = options(10, 1);  // needs the special tokens of rows alone
  causal.objective = Objective::kCausal;
  BatchCursor cursor;
  EXPECT_EQ(Batcher(split, {.pad = 0, .cls = 2, .sep = 3}, causal).next(cursor).labels.size(), 5u);
  expect_has(error_of([&] { Batcher(split, {.pad = 0, .cls = 2}, causal); }), "got -1");
  expect_has(error_of([&] { Batcher(split, {.pad = 0, .cls = 2, .sep = kVocab}, causal); }), "got 60005");
  const auto none = make_split(directory_, {}, kVocab);
  expect_has(error_of([&] { Batcher(none, kSpecial, {}); }),
             directory_.path() + ": train must have at least one token");
}

// Ids are those of the text, and the token after each place is its label: all tokens of the documents, in order where
// rows are, but no special token, whether the batcher's or the text's.
TEST_P(Packings, CausalPredictsEveryTokenOfTheText) {
  auto documents = numbered({1, 2, 3, 130, 64, 65});
  documents[3].ids[5] = kSpecial.unk;
  documents[3].ids[6] = kSpecial.mask;
  BatchOptions causal = options(10, 3);
  causal.objective = Objective::kCausal;
  causal.mask.probability = 7;  // of no use here, and not looked at
  const Batcher batcher(make_split(directory_, documents, kVocab), kSpecial, causal);
  std::multiset<int64_t> expected, found;
  for (const TestDocument& document : documents) expected.insert(document.ids.begin(), document.ids.end());
  expected.erase(kSpecial.unk);
  expected.erase(kSpecial.mask);
  for (const Batch& batch : batches_in_order(batcher)) {
    ASSERT_EQ(batch.places.size(), batch.labels.size());
    EXPECT_TRUE(std::is_sorted(batch.places.begin(), batch.places.end()));
    found.insert(batch.labels.begin(), batch.labels.end());
    for (size_t i = 0; i < batch.places.size(); ++i) {
      const auto at = static_cast<size_t>(batch.places[i]);
      EXPECT_EQ(batch.ids[at + 1], batch.labels[i]);
      EXPECT_EQ(batch.segments[at + 1], batch.segments[at]);
      EXPECT_EQ(batch.positions[at + 1], batch.positions[at] + 1);
    }
  }
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Batcher, Packings, testing::Values(Packing::kPadded, Packing::kPacked),
                         [](const auto& info) { return info.param == Packing::kPadded ? "padded" : "packed"; });

// What is masked among these documents, each one chunk with numbered ids, by the rule of masking.h: the draws below the
// probability, or the smallest one where there is none.
std::set<int64_t> expected_labels(const std::vector<int64_t>& chunks, const std::vector<int64_t>& document_sizes,
                                  double probability, uint64_t seed) {
  std::set<int64_t> below;
  std::pair<uint32_t, int64_t> least{UINT32_MAX, -1};
  for (const int64_t chunk : chunks) {
    const int64_t first = std::accumulate(document_sizes.begin(), document_sizes.begin() + chunk, int64_t{5});
    for (int64_t t = 0; t < document_sizes[chunk]; ++t) {
      const uint32_t word = draw(seed, Stream::kMask, uint32_t(t), 0, chunk)[0];
      if (double(word) < probability * 4294967296.0) below.insert(first + t);
      least = std::min(least, {word, first + t});
    }
  }
  return below.empty() ? std::set<int64_t>{least.second} : below;
}

// The number of the document that each chunk of a row is.
std::vector<int64_t> documents_of(const Batch& batch, const std::vector<int64_t>& document_sizes) {
  std::vector<int64_t> first(document_sizes.size()), found;
  std::exclusive_scan(document_sizes.begin(), document_sizes.end(), first.begin(), int64_t{5});
  for (int64_t b = 0; b < batch.batch_size; ++b) {
    for (const auto& chunk : chunks_of(batch, b)) {
      found.push_back(std::lower_bound(first.begin(), first.end(), chunk.front()) - first.begin());
    }
  }
  return found;
}

// However a step of eight rows is divided, its masks are those of its tokens, whether there are none, few or many, and
// a micro-batch has them whichever others its rank has.
TEST_P(Packings, MasksOfAStepDoNotDependOnItsMicroBatches) {
  const std::vector<int64_t> document_sizes = sizes(400, 1, 7);
  const auto split = make_split(directory_, numbered(document_sizes), kVocab);
  int64_t without = 0;
  for (const double probability : {0.004, 0.05, 0.4}) {
    for (const int64_t micro_batches : {1, 2, 8}) {
      BatchOptions given = options(8, 8 / micro_batches);
      given.mask.probability = probability;
      const Batcher batcher(split, kSpecial, given);
      for (BatchCursor cursor; cursor.row < 250;) {
        BatchCursor again = cursor;
        std::vector<int64_t> documents;
        std::set<int64_t> labels;
        const auto step = batcher.next_step(cursor, micro_batches, [](int64_t) { return true; });
        for (const Batch& batch : step) {
          labels.insert(batch.labels.begin(), batch.labels.end());
          for (const int64_t document : documents_of(batch, document_sizes)) documents.push_back(document);
          without += batch.places.empty() ? 1 : 0;
        }
        ASSERT_EQ(labels, expected_labels(documents, document_sizes, probability, given.seed)) << micro_batches;
        const auto last = batcher.next_step(again, micro_batches, [&](int64_t i) { return i == micro_batches - 1; });
        ASSERT_TRUE(same(last.at(0), step.back())) << micro_batches;
      }
    }
  }
  EXPECT_GT(without, 100);
}

// The same chunks with the same tokens masked, however they are packed and batched, also where batches have none.
TEST(Batcher, InOrderMasksDependOnTheTokensAlone) {
  for (const int64_t most : {6, 400}) {
    const Directory directory;
    const auto document_sizes = sizes(200, 1, most + 1);
    const auto split = make_split(directory, numbered(document_sizes), kVocab);
    const auto labels = [&](Packing packing, int64_t batch_size, double probability) {
      const Batcher batcher(
          split, kSpecial,
          {.max_length = 402, .batch_size = batch_size, .packing = packing, .mask = {.probability = probability}});
      std::set<int64_t> found;  // ids are unique
      const std::vector<Batch> batches = batches_in_order(batcher);
      for (const Batch& batch : batches) found.insert(batch.labels.begin(), batch.labels.end());
      if (!found.empty()) return found;
      const Batch least = batcher.least_in_order(std::ssize(batches));
      return std::set<int64_t>(least.labels.begin(), least.labels.end());
    };
    std::vector<int64_t> all(document_sizes.size());
    std::iota(all.begin(), all.end(), 0);
    for (const double probability : {1e-6, 0.15}) {
      const auto expected = expected_labels(all, document_sizes, probability, 1);
      EXPECT_EQ(labels(Packing::kPadded, 1, probability), expected);
      EXPECT_EQ(labels(Packing::kPadded, 50, probability), expected);
      EXPECT_EQ(labels(Packing::kPacked, 3, probability), expected);
    }
  }
}

TEST(Batcher, MasksChangeFromEpochToEpoch) {
  const Directory directory;
  const auto split = make_split(directory, numbered({5000}), kVocab);
  const Batcher batcher(split, kSpecial, {.max_length = 5002, .batch_size = 1});
  BatchCursor cursor;
  EXPECT_NE(batcher.next(cursor).places, batcher.next(cursor).places);
}

TEST(Batcher, PackingWastesLittle) {
  for (const int64_t most : {40, 400, 3000}) {
    const Directory directory;
    const auto split = make_split(directory, numbered(sizes(50000 / most, 1, most + 1)), kVocab);
    const Batcher batcher(split, kSpecial, {.max_length = 128, .batch_size = 1});
    double real = 0, slots = 0, rows = 0;
    for (BatchCursor cursor; cursor.epoch == 0;) {
      const Batch batch = batcher.next(cursor);
      real += double(batch.real_tokens);
      slots += double(batch.batch_size * batch.length);
      rows += 1;
    }
    EXPECT_GT(real / slots, tests::kMinPacked) << most;
    EXPECT_LE(double(batcher.rows_per_epoch()), rows) << most;
    EXPECT_GT(double(batcher.rows_per_epoch()), tests::kMinPacked * rows) << most;
  }
}

}  // namespace
}  // namespace rf::data
