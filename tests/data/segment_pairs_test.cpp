// Pairs of segments: where A and B come from, their classes, lengths, words and types, in padded and packed rows. Every
// token of the documents is another number, so that a batch shows where it comes from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "fixtures.h"

namespace rf::data {
namespace {

constexpr int64_t kFirst = 5, kPairVocab = kFirst + 60000;

struct Documents {
  std::vector<TestDocument> made;
  std::map<int64_t, int64_t> document_of;  // by token
  std::set<int64_t> starts_word;

  explicit Documents(const std::vector<int64_t>& sizes, bool words = false) : made(numbered(sizes, words)) {
    for (const TestDocument& document : made) {
      for (size_t i = 0; i < document.ids.size(); ++i) {
        if (document.starts_word[i] != 0) starts_word.insert(document.ids[i]);
        document_of[document.ids[i]] = &document - made.data();
      }
    }
  }
};

struct Pair {
  std::vector<int64_t> first, second;
  int64_t label;
  auto operator<=>(const Pair&) const = default;
};

// The pairs of a batch; fails where special tokens, types, positions or segments are not those of [CLS] A [SEP] B
// [SEP].
std::vector<Pair> pairs_of(const Batch& batch) {
  std::vector<int64_t> ids = batch.ids;
  for (size_t i = 0; i < batch.places.size(); ++i) {
    EXPECT_GE(batch.labels[i], kFirst) << "a special token is predicted";
    ids[batch.places[i]] = batch.labels[i];
  }
  std::vector<Pair> pairs;
  EXPECT_EQ(batch.pair_places.size(), batch.pair_labels.size());
  int64_t tokens = 0;
  for (size_t i = 0; i < batch.pair_places.size(); ++i) {
    const int64_t begin = batch.pair_places[i];
    EXPECT_EQ(ids[begin], kSpecial.cls);
    Pair pair{{}, {}, batch.pair_labels[i]};
    int64_t at = begin;
    for (std::vector<int64_t>* part : {&pair.first, &pair.second}) {
      for (++at; ids[at] != kSpecial.sep; ++at) part->push_back(ids[at]);
    }
    const int64_t first_sep = begin + 1 + std::ssize(pair.first);
    for (int64_t t = begin; t <= at; ++t) {
      EXPECT_EQ(batch.types[t], t > first_sep ? 1 : 0);
      EXPECT_EQ(batch.positions[t], t - begin);
      EXPECT_EQ(batch.segments[t], batch.segments[begin]);
    }
    EXPECT_FALSE(pair.first.empty() || pair.second.empty());
    tokens += at - begin + 1;
    pairs.push_back(std::move(pair));
  }
  EXPECT_EQ(tokens, batch.real_tokens);
  EXPECT_EQ(std::count_if(batch.segments.begin(), batch.segments.end(), [](auto s) { return s >= 0; }), tokens);
  return pairs;
}

std::vector<Pair> epoch_pairs(const std::shared_ptr<const Split>& split, const BatchOptions& options,
                              int64_t epochs = 1) {
  const Batcher batcher(split, kSpecial, options);
  std::vector<Pair> all;
  for (BatchCursor cursor; cursor.epoch < epochs;) {
    for (Pair& pair : pairs_of(batcher.next(cursor))) all.push_back(std::move(pair));
  }
  return all;
}

bool is_run(const std::vector<int64_t>& ids) {
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] != ids[i - 1] + 1) return false;
  }
  return true;
}

class PairsOfSegments : public testing::TestWithParam<Packing> {
 protected:
  BatchOptions options(Pairs pairs, int64_t max_length = 35) const {
    return {.max_length = max_length, .batch_size = 1, .packing = GetParam(), .seed = 5, .pairs = pairs};
  }
  std::shared_ptr<const Split> split(const Documents& documents) {
    return make_split(directory_, documents.made, kPairVocab, 37);
  }
  const Directory directory_;
};

TEST_P(PairsOfSegments, NextSentenceIsOfTheDocumentOrOfAnother) {
  const Documents documents(sizes(200, 20, 300));
  const std::vector<Pair> pairs = epoch_pairs(split(documents), options(Pairs::kNextSentence));
  ASSERT_GT(pairs.size(), 900u);
  double replaced = 0, lengths[2] = {}, squares[2] = {};
  std::set<int64_t> others;
  for (const Pair& pair : pairs) {
    ASSERT_TRUE(is_run(pair.first) && is_run(pair.second));
    const int64_t own = documents.document_of.at(pair.first.front()),
                  of_second = documents.document_of.at(pair.second.front());
    EXPECT_EQ(documents.document_of.at(pair.first.back()), own);
    EXPECT_EQ(documents.document_of.at(pair.second.back()), of_second);
    if (pair.label == 0) {
      EXPECT_EQ(pair.second.front(), pair.first.back() + 1);
    } else {
      EXPECT_NE(own, of_second);
      others.insert(of_second);
    }
    const auto length = static_cast<double>(pair.second.size());
    replaced += static_cast<double>(pair.label);
    lengths[pair.label] += length;
    squares[pair.label] += length * length;
  }
  const auto count = static_cast<double>(pairs.size());
  EXPECT_LE(std::abs(replaced - count / 2), 4 * std::sqrt(count) / 2) << "four standard deviations";
  EXPECT_GT(others.size(), 120u) << "of 200 documents";
  // The length of B says nothing of its class.
  const double counts[2] = {count - replaced, replaced};
  const double means[2] = {lengths[0] / counts[0], lengths[1] / counts[1]};
  double variance = 0;
  for (const int i : {0, 1}) variance += (squares[i] / counts[i] - means[i] * means[i]) / counts[i];
  EXPECT_LE(std::abs(means[0] - means[1]), 4 * std::sqrt(variance));
}

TEST_P(PairsOfSegments, SentenceOrderIsExchanged) {
  const Documents documents(sizes(150, 3, 300));
  const std::vector<Pair> pairs = epoch_pairs(split(documents), options(Pairs::kSentenceOrder));
  double exchanged = 0;
  std::multiset<int64_t> seen;
  for (const Pair& pair : pairs) {
    const auto& [earlier, later] =
        pair.label == 0 ? std::tie(pair.first, pair.second) : std::tie(pair.second, pair.first);
    ASSERT_TRUE(is_run(pair.first) && is_run(pair.second));
    EXPECT_EQ(later.front(), earlier.back() + 1);
    EXPECT_EQ(documents.document_of.at(later.back()), documents.document_of.at(earlier.front()));
    exchanged += static_cast<double>(pair.label);
    for (const auto& part : {pair.first, pair.second}) seen.insert(part.begin(), part.end());
  }
  const auto count = static_cast<double>(pairs.size());
  EXPECT_LE(std::abs(exchanged - count / 2), 4 * std::sqrt(count) / 2);
  // Every token once, but one that is left over behind pieces of 32.
  std::multiset<int64_t> expected;
  for (const TestDocument& document : documents.made) {
    const size_t kept = document.ids.size() - (document.ids.size() % 32 == 1 ? 1 : 0);
    expected.insert(document.ids.begin(), document.ids.begin() + static_cast<std::ptrdiff_t>(kept));
  }
  EXPECT_EQ(seen, expected);
}

TEST_P(PairsOfSegments, SegmentsBeginWithWords) {
  for (const Pairs task : {Pairs::kNextSentence, Pairs::kSentenceOrder}) {
    const Directory directory;
    const Documents documents(sizes(100, 40, 300), /*words=*/true);
    int64_t labels = 0;
    for (const Pair& pair : epoch_pairs(make_split(directory, documents.made, kPairVocab), options(task))) {
      if (pair.first.size() + pair.second.size() < 16) continue;  // a rest may have no word of its own
      EXPECT_TRUE(documents.starts_word.contains(pair.first.front()));
      EXPECT_TRUE(documents.starts_word.contains(pair.second.front()));
      EXPECT_LE(pair.first.size() + pair.second.size(), 32u);
      labels += pair.label;
    }
    EXPECT_GT(labels, 100);
  }
}

// In short documents the end of a document would tell: each B ends one, whatever its class.
TEST_P(PairsOfSegments, BothClassesEndDocuments) {
  const Documents documents(sizes(300, 20, 32));
  std::set<int64_t> last;
  for (const TestDocument& document : documents.made) last.insert(document.ids.back());
  for (const Pair& pair : epoch_pairs(split(documents), options(Pairs::kNextSentence))) {
    EXPECT_TRUE(last.contains(pair.second.back())) << pair.label;
  }
}

TEST_P(PairsOfSegments, EpochsAndSeedsDiffer) {
  const auto data = split(Documents(sizes(60, 20, 200)));
  BatchOptions given = options(Pairs::kSentenceOrder);
  const auto two = epoch_pairs(data, given, 2), again = epoch_pairs(data, given);
  const auto count = std::ssize(again);
  const std::multiset<Pair> first(two.begin(), two.begin() + count), second(two.begin() + count, two.end());
  given.seed = 6;
  const auto other = epoch_pairs(data, given);
  EXPECT_EQ(first, std::multiset<Pair>(again.begin(), again.end()));
  EXPECT_NE(first, second);
  EXPECT_NE(first, std::multiset<Pair>(other.begin(), other.end()));
}

TEST_P(PairsOfSegments, BadInputIsNamed) {
  const auto message = [&](const std::vector<int64_t>& document_sizes, const BatchOptions& given) {
    const Directory directory;
    const Documents documents(document_sizes);
    const auto data = make_split(directory, documents.made, kPairVocab);
    return error_of([&] { Batcher(data, kSpecial, given); });
  };
  expect_has(message({1, 1}, options(Pairs::kSentenceOrder)), "must have a document of at least 2 tokens");
  expect_has(message({300}, options(Pairs::kNextSentence)), "at least two documents");
  expect_has(message({300}, options(Pairs::kSentenceOrder, 4)), "max_length must be in [5, 2^24] with pairs, got 4");
  BatchOptions causal = options(Pairs::kSentenceOrder);
  causal.objective = Objective::kCausal;
  expect_has(message({300}, causal), "pairs go with the masked objective");
}

// Two documents, one of a single token: all that B can be.
TEST_P(PairsOfSegments, AShortDocumentServesWhereThereIsNoOther) {
  const Documents documents({200, 1});
  int64_t replaced = 0;
  for (const Pair& pair : epoch_pairs(split(documents), options(Pairs::kNextSentence), 8)) {
    if (pair.label == 0) continue;
    EXPECT_EQ(pair.second, std::vector<int64_t>{kFirst + 200});
    ++replaced;
  }
  EXPECT_GT(replaced, 10);
}

INSTANTIATE_TEST_SUITE_P(Batcher, PairsOfSegments, testing::Values(Packing::kPadded, Packing::kPacked),
                         [](const auto& info) { return info.param == Packing::kPadded ? "padded" : "packed"; });

// The same pairs and masks, however they are packed.
TEST(SegmentPairs, PaddedAndPackedAreTheSame) {
  const Directory directory;
  const Documents documents(sizes(60, 2, 200), /*words=*/true);
  const auto data = make_split(directory, documents.made, kPairVocab);
  std::multiset<Pair> found[2];
  std::multiset<int64_t> masked[2];
  for (const Packing packing : {Packing::kPadded, Packing::kPacked}) {
    const Batcher batcher(data, kSpecial,
                          {.max_length = 35, .batch_size = 4, .packing = packing, .pairs = Pairs::kNextSentence});
    for (const Batch& batch : batches_in_order(batcher)) {
      for (const Pair& pair : pairs_of(batch)) found[packing == Packing::kPacked].insert(pair);
      masked[packing == Packing::kPacked].insert(batch.labels.begin(), batch.labels.end());
    }
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(masked[0], masked[1]);
  EXPECT_GT(masked[0].size(), 500u);
}

}  // namespace
}  // namespace rf::data
