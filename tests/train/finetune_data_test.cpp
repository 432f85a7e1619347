// Batches of an epoch, and what is found out about files before they are trained on.
#include "finetune_data.h"

#include <algorithm>
#include <cmath>

#include "rf/train/finetune.h"
#include "support.h"
#include "tolerances.h"

namespace rf::train {
namespace {

using tasks::Example, tasks::task_kind, tasks::TaskKind, tasks::TaskSettings;

std::vector<Example> examples_of_lengths(size_t count) {
  std::vector<Example> examples(count);
  for (size_t i = 0; i < count; ++i) examples[i].rows = {{std::vector<int32_t>(i * 37 % 101 + 2, 5), {}, {}}};
  return examples;
}

data::Record record(const std::string& text, int64_t line) {
  return {std::make_shared<const std::string>("a.tsv"), line, {{"text", text}, {"label", "x"}}};
}

TEST(EpochBatches, HaveEveryExampleOnceAndDependOnSeedAndEpochAlone) {
  const std::vector<Example> examples = examples_of_lengths(1003);
  const auto batches = epoch_batches(examples, 8, /*seed=*/3, /*epoch=*/1);
  EXPECT_EQ(batches.size(), 126u);
  std::vector<size_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
  EXPECT_EQ(all.size(), 1003u);
  EXPECT_EQ(batches, epoch_batches(examples, 8, 3, 1));
  EXPECT_NE(batches, epoch_batches(examples, 8, 3, 2));
  EXPECT_NE(batches, epoch_batches(examples, 8, 4, 1));
}

TEST(EpochBatches, PutLikeLengthsTogetherAndMixTheirOrder) {
  const std::vector<Example> examples = examples_of_lengths(800);
  double padded = 0, tokens = 0, rises = 0;
  int64_t before = 0;
  const auto batches = epoch_batches(examples, 8, 1, 0);
  for (const auto& batch : batches) {
    int64_t longest = 0;
    for (const size_t i : batch) {
      longest = std::max(longest, examples[i].longest_row());
      tokens += static_cast<double>(examples[i].longest_row());
    }
    padded += static_cast<double>(longest) * static_cast<double>(batch.size());
    rises += longest >= before;
    before = longest;
  }
  EXPECT_LT(padded / tokens, 1 + tests::kPaddedShare);
  EXPECT_NEAR(rises / static_cast<double>(batches.size()), 0.5, tests::kRisesHalf);
}

TEST(Files, SharedInputsAreCounted) {
  TaskSettings settings;
  settings.columns = {{"text", "text"}, {"label", "label"}};
  const TaskKind& kind = task_kind("classification");
  const std::vector<data::Record> train = {record("a", 2), record("b", 3), record("b", 4)};
  std::vector<data::Record> valid = {record("b", 2), record("c", 3), record("a", 4), record("b", 5)};
  valid[0].fields["label"] = "another";  // the inputs count alone
  EXPECT_EQ(count_shared(train, valid, kind, settings), 3);
}

// A record's line says which it is.
std::vector<int64_t> lines_of(const std::vector<data::Record>& records) {
  std::vector<int64_t> lines;
  for (const data::Record& one : records) lines.push_back(one.line);
  return lines;
}

TEST(Files, AFractionIsDrawnWithTheSeedAndNothingIsLost) {
  const auto divided = [](int64_t count, double fraction, uint64_t seed) {
    std::vector<data::Record> records;
    for (int64_t i = 0; i < count; ++i) records.push_back(record("a", i));
    const std::vector<data::Record> taken = take_fraction(records, fraction, seed);
    return std::pair(lines_of(records), lines_of(taken));
  };
  const auto [kept, taken] = divided(1000, 0.2, 1);
  EXPECT_EQ(taken.size(), 200u);
  std::vector<int64_t> all;
  std::merge(kept.begin(), kept.end(), taken.begin(), taken.end(), std::back_inserter(all));  // both in order
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(all.at(static_cast<size_t>(i)), i);
  EXPECT_LT(taken.front(), 50);  // from everywhere
  EXPECT_GT(taken.back(), 950);
  EXPECT_EQ(divided(1000, 0.2, 1).second, taken);
  EXPECT_NE(divided(1000, 0.2, 2).second, taken);
  for (const double fraction : {0.01, 0.99}) {
    EXPECT_EQ(divided(2, fraction, 1).first.size(), 1u);
    EXPECT_EQ(divided(2, fraction, 1).second.size(), 1u);
  }
  expect_has(error_of([&] { divided(1, 0.5, 1); }), "at least two records");
}

TEST(Options, OutOfTheirRangesAreRefused) {
  using Change = void (*)(FinetuneOptions&);
  const std::pair<Change, const char*> cases[] = {
      {[](auto& o) { o.epochs = 0; }, "epochs must be from 1 to 1073741824, got 0"},
      {[](auto& o) { o.epochs = INT64_MAX; }, "epochs must be from 1 to 1073741824, got 92233720"},
      {[](auto& o) { o.batch = 0; }, "batch must be from 1"},
      {[](auto& o) { o.seeds = 0; }, "seeds must be from 1"},
      {[](auto& o) { o.patience = -1; }, "patience must be at least 0"},
      {[](auto& o) { o.evaluate_every_steps = -1; }, "evaluate-every-steps must be at least 0"},
      {[](auto& o) { o.weight_decay = -1; }, "weight-decay must be at least 0"},
      {[](auto& o) { o.clip_norm = NAN; }, "clip-norm must be at least 0, got nan"},
      {[](auto& o) { o.warmup = 1; }, "warmup must be in [0, 1), got 1"},
      {[](auto& o) { o.label_smoothing = 1.5; }, "label-smoothing must be in [0, 1), got 1.5"},
      {[](auto& o) { o.learning_rates = {}; }, "at least one learning rate"},
      {[](auto& o) { o.learning_rates = {0}; }, "above 0, got 0"},
      {[](auto& o) { o.learning_rates.assign(2, 1e-3); }, "learning rates must differ"},
  };
  io::Progress silent;
  for (const auto& [change, part] : cases) {
    FinetuneOptions options;
    options.task.kind = "classification";
    options.files.valid = {"valid.tsv"};
    change(options);
    expect_has(error_of([&] { finetune(options, silent); }), part);
  }
}

}  // namespace
}  // namespace rf::train
