// Checkpoints: written while training goes on, the number kept, and leftovers of a killed process. Their way back is
// tests/cli/test_resume.py's, one that cannot be written tests/cli/test_bad_input.py's.
#include "checkpoint_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "rf/io/files.h"
#include "rf/model/run_checkpoints.h"
#include "support.h"
#include "tensor_memory.h"
#include "train_step.h"

namespace rf::train {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    ModelConfig config;
    config.vocab_size = 7;
    config.hidden_size = config.embedding_size = config.intermediate_size = 4;
    config.num_hidden_layers = config.num_attention_heads = 1;
    config.max_position_embeddings = 4;
    model_ = std::make_shared<nn::Model>(config, Head::kMaskedLm);
    optimizer_ = std::make_unique<AdamW>(trained_parameters(*model_), AdamWOptions{});
    run_ = directory_ / "run";
    data_ = directory_ / "data";
    fs::create_directory(run_);
    fs::create_directory(data_);
    std::ofstream(data_ + "/vocab.txt") << "[PAD]\n";
    std::ofstream(data_ + "/tokenizer_config.json") << "{}\n";
    tokenizer_.emplace(data_);
  }
  CheckpointPlan plan(int64_t keep = 2) const { return {.run_dir = run_, .tokenizer = *tokenizer_, .keep = keep}; }
  void begin(CheckpointWriter& writer, int64_t step) const {
    TrainState state;
    state.step = step;
    state.run = nlohmann::json::object();
    state.cursor = {3, 17};
    state.interval = {0.1, 2, 3};
    state.evaluation = {1.5, 0.25, 2.5, 40};
    state.train_loss = 1.0 / 3;
    writer.begin(*model_, *optimizer_, to_json(state));
  }
  void save(int64_t step, int64_t keep = 2) const {
    CheckpointWriter writer(plan(keep));
    begin(writer, step);
    writer.finish();
  }
  std::shared_ptr<nn::Model> saved(int64_t step) const {
    return nn::load_model(fmt::format("{}/checkpoint-{}", run_, step), Head::kMaskedLm, at::kFloat);
  }
  // As training does.
  void fill(float value) const {
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : model_->parameters()) weight.fill_(value);
    for (const MomentPart& part : optimizer_->moments()) part.values.fill_(value);
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryPath directory_;
  std::string run_, data_;
  std::optional<TokenizerFiles> tokenizer_;
  std::shared_ptr<nn::Model> model_;
  std::unique_ptr<AdamW> optimizer_;
};

void wait_for(const CheckpointWriter& writer) {
  while (!writer.is_done()) std::this_thread::yield();
}

TEST_F(CheckpointTest, HasTheValuesOfItsStepWhileTrainingGoesOn) {
  std::promise<void> go;  // the writing stops until it has a value
  CheckpointPlan waiting = plan();
  waiting.sync = [done = go.get_future().share()] { done.wait(); };
  CheckpointWriter writer(waiting);
  fill(1);
  begin(writer, 1);
  fill(2);
  EXPECT_FALSE(writer.is_done());
  EXPECT_EQ(entries(), (std::vector<std::string>{".checkpoint-1.tmp"}));
  go.set_value();
  wait_for(writer);
  EXPECT_EQ(entries(), (std::vector<std::string>{".checkpoint-1.tmp"}));  // not published before all ranks have agreed
  writer.go_on();
  wait_for(writer);
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-1"}));
  writer.go_on();
  EXPECT_FALSE(writer.is_done());
  AdamW other(trained_parameters(*model_), {});
  load_moments(run_ + "/checkpoint-1", other);
  for (const MomentPart& part : other.moments()) EXPECT_TRUE(part.values.eq(1).all().item<bool>()) << part.name;
  for (const Parameter& each : trained_parameters(*saved(1))) EXPECT_TRUE(each.weight.eq(1).all().item<bool>());
}

TEST_F(CheckpointTest, TheNextOneWaitsForTheOneBefore) {
  CheckpointWriter writer(plan());
  fill(1);
  begin(writer, 1);
  fill(2);
  begin(writer, 2);
  EXPECT_TRUE(fs::exists(run_ + "/checkpoint-1/state.json"));
  writer.finish();
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-1", "checkpoint-2"}));
  EXPECT_TRUE(trained_parameters(*saved(1))[0].weight.eq(1).all().item<bool>());
}

TEST_F(CheckpointTest, TheCopyTakesItsMemoryOnce) {
  CheckpointWriter writer(plan());
  const auto bytes_of = [&](int64_t step) {
    const TensorMemoryScope memory;
    begin(writer, step);
    return memory.peak_bytes();
  };
  int64_t weights = 0;
  for (const Parameter& each : trained_parameters(*model_)) weights += int64_t(each.weight.nbytes());
  EXPECT_GE(bytes_of(1), 3 * weights);  // and two moments
  EXPECT_LT(bytes_of(2), weights);
}

TEST_F(CheckpointTest, OneThatWasBegunIsKeptWhenTheRunFails) {
  {
    CheckpointWriter writer(plan());
    begin(writer, 1);
  }
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-1"}));
}

TEST_F(CheckpointTest, AnErrorOfTheThreadIsThrownOnce) {
  CheckpointPlan failing = plan();
  failing.sync = [] { fail("disk", "there must be space, got none"); };
  {
    CheckpointWriter writer(failing);
    begin(writer, 1);
    wait_for(writer);
    EXPECT_EQ(error_of([&] { writer.go_on(); }), "[disk] there must be space, got none");
    writer.finish();
  }
  EXPECT_TRUE(entries().empty());
}

TEST_F(CheckpointTest, TheSameStepIsWrittenOnce) {
  save(1);
  CheckpointWriter writer(plan());
  fill(3);
  begin(writer, 1);
  EXPECT_FALSE(writer.is_done());
  EXPECT_FALSE(trained_parameters(*saved(1))[0].weight.eq(3).all().item<bool>());
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  for (const int64_t step : {5, 10, 100, 20}) save(step, 2);
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-100", "checkpoint-20"}));
  EXPECT_EQ(newest_checkpoint(run_), run_ + "/checkpoint-100");
  drop_checkpoints(run_, 0);
  EXPECT_TRUE(entries().empty());
}

TEST_F(CheckpointTest, OneOfASignalIsKeptUntilTheNext) {
  const auto save_for = [&](int64_t step, CheckpointCause cause) {
    CheckpointWriter writer(plan());
    writer.begin(*model_, *optimizer_, {{"step", step}}, cause);
    writer.finish();
  };
  for (const int64_t step : {5, 10}) save_for(step, CheckpointCause::kRunFile);
  for (const int64_t step : {11, 12}) save_for(step, CheckpointCause::kSignal);
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-10", "checkpoint-12"}));
  save_for(15, CheckpointCause::kRunFile);
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-10", "checkpoint-15"}));
}

TEST_F(CheckpointTest, LeftoversAreNoCheckpointsAndGo) {
  fs::create_directory(run_ + "/.checkpoint-9.tmp");
  fs::create_directory(run_ + "/checkpoint-x");
  std::ofstream(run_ + "/run.json.tmp.12.0") << "{";
  std::ofstream(run_ + "/notes.tmp.txt") << "not ours";
  EXPECT_EQ(newest_checkpoint(run_), std::nullopt);
  remove_temporaries(run_);
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-x", "notes.tmp.txt"}));
}

TEST_F(CheckpointTest, TheTokenizerIsWrittenWhenItsDirectoryIsGone) {
  const TokenizerFiles tokenizer(data_);
  fs::remove_all(data_);
  fs::create_directory(directory_ / "copy");
  tokenizer.write(directory_ / "copy");
  EXPECT_EQ(io::read_file(directory_ / "copy/vocab.txt"), "[PAD]\n");
  EXPECT_EQ(io::read_file(directory_ / "copy/tokenizer_config.json"), "{}\n");
  expect_has(error_of([&] { const TokenizerFiles none(run_); }), "vocab.txt");
}

TEST_F(CheckpointTest, EveryKeyOfAStateIsChecked) {
  save(1);
  const std::string path = run_ + "/checkpoint-1/state.json";
  const nlohmann::json whole = io::read_json(path);
  const auto message_with = [&](const nlohmann::json& state) {
    io::write_file(path, state.dump());
    return error_of([&] { load_state(run_ + "/checkpoint-1", train_state); });
  };
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json state = whole;
    state.erase(key);
    expect_has(message_with(state), key + " must be there");
    if (key == "data") continue;  // compared as it is
    for (const nlohmann::json& wrong : {nlohmann::json("x"), nlohmann::json::array({1}), nlohmann::json()}) {
      state[key] = wrong;
      tests::expect_parts(message_with(state), {path, key + " must be "});
    }
  }
}

TEST_F(CheckpointTest, ADamagedOneIsNamed) {
  save(1);
  const std::string folder = run_ + "/checkpoint-1", moments = folder + "/optimizer.safetensors";
  std::ofstream(folder + "/state.json") << "{\"version\":2}";
  expect_has(error_of([&] { load_state(folder, train_state); }), "remove " + folder + " to continue");
  io::write_file(moments, io::read_file(moments).substr(0, 100));
  expect_has(error_of([&] { load_moments(folder, *optimizer_); }), "optimizer.safetensors");
}

}  // namespace
}  // namespace rf::train
