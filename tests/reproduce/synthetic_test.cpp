// The arms of experiments on every encoding, and training on labelled rows. The rows themselves are compared with
// NumPy's in test_synthetic.py.
#include <gtest/gtest.h>

#include <algorithm>

#include "encoding_arms.h"
#include "experiment.h"
#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "rf/train/compare.h"
#include "rf/train/labelled_rows.h"
#include "synthetic_tasks.h"

namespace rf::reproduce {
namespace {

using train::LabelledRows;

// Every encoding of the table, in its order, can be made for the body of each experiment.
TEST(EncodingArms, AreTheTable) {
  for (const int64_t head_dim : {32, 64, 80}) {
    const std::vector<std::string> arms = encoding_arms(head_dim, 64);
    const std::vector<nn::EncodingInfo> infos = nn::encoding_infos();
    ASSERT_EQ(arms.size(), infos.size());
    for (size_t i = 0; i < arms.size(); ++i) {
      EXPECT_EQ(encoding_of(arms[i]), infos[i].name);
      EXPECT_NO_THROW(nn::make_encoding(train::parse_arm(arms[i]), {.heads = 2,
                                                                    .head_dim = head_dim,
                                                                    .hidden_size = 2 * head_dim,
                                                                    .input_size = 2 * head_dim,
                                                                    .max_position_embeddings = 64,
                                                                    .causal = true,
                                                                    .vocab_size = 8}))
          << arms[i];
    }
  }
}

TEST(EncodingArms, AreThoseOfTheExperiments) {
  for (const Experiment& experiment : table()) {
    if (experiment.name != "synthetic" && experiment.name != "atlas") continue;
    const nlohmann::json settings = experiment.settings_at(Scale::kSmall);
    const nlohmann::json& arms = settings.contains("arms") ? settings.at("arms") : settings.at("design").at("arms");
    const bool is_atlas = experiment.name == "atlas";
    std::vector<std::string> expected = encoding_arms(32, is_atlas ? 128 : 64);
    if (is_atlas) expected.insert(std::find(expected.begin(), expected.end(), "t5") + 1, "t5:scale=sqrt");
    EXPECT_EQ(arms.get<std::vector<std::string>>(), expected) << experiment.name;
  }
}

TEST(SyntheticRows, AreFunctionsOfSeedAndStep) {
  for (const SyntheticTask& task : synthetic_tasks()) {
    const LabelledRows rows = synthetic_rows(task, 1, 1, 4, 64);
    EXPECT_EQ(rows.ids, synthetic_rows(task, 1, 1, 4, 64).ids);
    EXPECT_NE(rows.ids, synthetic_rows(task, 2, 1, 4, 64).ids) << task.name;
    EXPECT_NE(rows.ids, synthetic_rows(task, 1, 2, 4, 64).ids) << task.name;
    EXPECT_NE(rows.ids, held_out_synthetic_rows(task, 4, 64).ids) << task.name;
    EXPECT_THROW(synthetic_rows(task, 1, 1, 1, kPlaces), std::logic_error);
  }
}

// A run on rows whose label is their id: what is learned in a hundred steps.
train::LabelledRun easy_run() {
  train::LabelledRun run{.config = train::compare_defaults(), .rows = {}, .held_out = {}};
  run.config.objective = data::Objective::kCausal;
  ModelConfig& model = run.config.model;
  model.is_decoder = true;
  model.vocab_size = 9;
  model.hidden_size = model.embedding_size = model.intermediate_size = 32;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 2;
  model.max_position_embeddings = 8;
  model.position_encodings = {train::parse_arm("learned")};
  run.config.stages = {{.max_length = 8, .batch = 8, .steps = 100, .accumulate = 1}};
  run.config.schedule.learning_rate = 1e-2;
  run.config.schedule.warmup_steps = 10;
  run.rows = [](int64_t step) {
    LabelledRows rows{.rows = 8, .tokens = 8, .ids = {}, .labels = {}};
    for (int64_t i = 0; i < 64; ++i) {
      rows.ids.push_back(1 + (i * 5 + step * 3) % 8);
      rows.labels.push_back(i % 2 == 0 ? rows.ids.back() : LabelledRows::kNoLabel);
    }
    return rows;
  };
  LabelledRows longer{.rows = 1, .tokens = 16, .ids = std::vector<int64_t>(16, 3), .labels = {}};
  longer.labels = longer.ids;
  run.held_out = {run.rows(1000), longer};
  return run;
}

TEST(LabelledRows, AreLearnedAndMeasured) {
  io::Progress silent;
  const train::LabelledReport report = train::train_labelled(easy_run(), silent);
  ASSERT_EQ(report.scores.size(), 2U);
  ASSERT_TRUE(report.scores[0]);
  EXPECT_GT(report.scores[0]->accuracy, 0.99);  // one of 8 by chance
  EXPECT_LT(report.scores[0]->loss, 0.5);
  EXPECT_FALSE(report.scores[1]);  // beyond the learned table
  EXPECT_EQ(report.signal, 0);
  const train::LabelledReport again = train::train_labelled(easy_run(), silent);
  EXPECT_EQ(again.scores[0]->loss, report.scores[0]->loss);
}

TEST(LabelledRows, RefusesWhatCannotBeTrained) {
  io::Progress silent;
  const auto message = [&](const auto& change) {
    train::LabelledRun run = easy_run();
    change(run);
    try {
      train::train_labelled(run, silent);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto rows_of = [](LabelledRows rows) { return [rows](int64_t) { return rows; }; };
  EXPECT_NE(message([](auto& run) { run.config.objective = data::Objective::kMasked; }).find("must be causal"),
            std::string::npos);
  EXPECT_NE(message([](auto& run) { run.config.stages.push_back(run.config.stages[0]); }).find("got 2 stages"),
            std::string::npos);
  EXPECT_NE(message([&](auto& run) {
              run.rows = rows_of({.rows = 1, .tokens = 2, .ids = {1, 9}, .labels = {1, 1}});
            }).find("below the vocabulary's size of 9, got 9"),
            std::string::npos);
  EXPECT_NE(message([&](auto& run) {
              run.rows = rows_of({.rows = 1, .tokens = 2, .ids = {1}, .labels = {1}});
            }).find("got 1 and 1"),
            std::string::npos);
  EXPECT_NE(message([&](auto& run) {
              run.held_out = {{.rows = 1, .tokens = 1, .ids = {1}, .labels = {-1}}};
            }).find("at least one label"),
            std::string::npos);
}

}  // namespace
}  // namespace rf::reproduce
