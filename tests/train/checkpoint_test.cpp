// Checkpoints: there and back, the number kept, leftovers of a killed process, and one that cannot be written.
#include "checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "rf/io/files.h"
#include "rf/model/run_checkpoints.h"
#include "support.h"
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
    model_ = std::make_shared<nn::Model>(config, Head::kMaskedLm);
    optimizer_ = std::make_unique<AdamW>(trained_parameters(*model_), AdamWOptions{});
    run_ = directory_ / "run";
    data_ = directory_ / "data";
    fs::create_directory(run_);
    fs::create_directory(data_);
    std::ofstream(data_ + "/vocab.txt") << "[PAD]\n";
    std::ofstream(data_ + "/tokenizer_config.json") << "{}\n";
  }
  void save(int64_t step, int64_t keep = 2) {
    TrainState state;
    state.step = step;
    state.run = nlohmann::json::object();
    state.cursor = {3, 17};
    state.interval = {0.1, 2, 3};
    state.evaluation = {1.5, 0.25, 2.5, 40};
    state.train_loss = 1.0 / 3;
    save_checkpoint({run_, TokenizerFiles(data_), keep}, *model_, *optimizer_, to_json(state));
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryPath directory_;
  std::string run_, data_;
  std::shared_ptr<nn::Model> model_;
  std::unique_ptr<AdamW> optimizer_;
};

TEST_F(CheckpointTest, ThereAndBack) {
  for (double own = 0; const MomentPart& part : optimizer_->moments()) part.values.fill_(own += 0.5);
  save(40);
  TrainState state;
  load_state(run_ + "/checkpoint-40", [&](io::StrictObject& json) { state = train_state(json); });
  EXPECT_EQ(state.step, 40);
  EXPECT_EQ(state.cursor.epoch, 3);
  EXPECT_EQ(state.cursor.row, 17);
  EXPECT_EQ(state.interval.loss_sum, 0.1);
  EXPECT_EQ(state.train_loss, 1.0 / 3);
  EXPECT_EQ(state.evaluation.unigram_loss, 2.5);
  AdamW other(trained_parameters(*model_), {});
  load_moments(run_ + "/checkpoint-40", other);
  ASSERT_GT(other.moments().size(), 2U);
  for (size_t i = 0; i < other.moments().size(); ++i) {
    EXPECT_EQ(other.moments()[i].values.max().item<float>(), 0.5f * static_cast<float>(i + 1));
    EXPECT_TRUE(other.moments()[i].values.equal(optimizer_->moments()[i].values));
  }
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  for (const int64_t step : {5, 10, 100, 20}) save(step, 2);
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-100", "checkpoint-20"}));
  EXPECT_EQ(newest_checkpoint(run_), run_ + "/checkpoint-100");
}

TEST_F(CheckpointTest, AllButTheNewestGo) {
  for (const int64_t step : {5, 10, 20}) save(step, 3);
  drop_checkpoints(run_, 2);
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-10", "checkpoint-20"}));
  drop_checkpoints(run_, 0);
  EXPECT_TRUE(entries().empty());
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

TEST_F(CheckpointTest, OneThatCannotBeWrittenLeavesTheOldOne) {
  save(1);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit full_disk{100, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full_disk);
  const std::string message = message_of([&] { save(2); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  EXPECT_EQ(entries(), (std::vector<std::string>{"checkpoint-1"}));
}

TEST_F(CheckpointTest, TheTokenizerIsWrittenWhenItsDirectoryIsGone) {
  const TokenizerFiles tokenizer(data_);
  fs::remove_all(data_);
  fs::create_directory(directory_ / "copy");
  tokenizer.write(directory_ / "copy");
  EXPECT_EQ(io::read_file(directory_ / "copy/vocab.txt"), "[PAD]\n");
  EXPECT_EQ(io::read_file(directory_ / "copy/tokenizer_config.json"), "{}\n");
  EXPECT_NE(message_of([&] { const TokenizerFiles none(run_); }).find("vocab.txt"), std::string::npos);
}

// Every key with a value of a wrong type, and without it.
TEST_F(CheckpointTest, EveryKeyOfAStateIsChecked) {
  save(1);
  const std::string path = run_ + "/checkpoint-1/state.json";
  const nlohmann::json whole = io::read_json(path);
  const auto message_with = [&](const nlohmann::json& state) {
    io::write_file(path, state.dump());
    return message_of([&] { load_state(run_ + "/checkpoint-1", train_state); });
  };
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json state = whole;
    state.erase(key);
    EXPECT_NE(message_with(state).find(key + " must be there"), std::string::npos) << key;
    if (key == "data") continue;  // compared as it is
    for (const nlohmann::json& wrong : {nlohmann::json("x"), nlohmann::json::array({1}), nlohmann::json()}) {
      state[key] = wrong;
      const std::string message = message_with(state);
      EXPECT_NE(message.find(path), std::string::npos) << message;
      EXPECT_NE(message.find(key + " must be "), std::string::npos) << message;
    }
  }
}

TEST_F(CheckpointTest, ADamagedOneIsNamed) {
  save(1);
  std::ofstream(run_ + "/checkpoint-1/state.json") << "{\"version\":2}";
  EXPECT_NE(message_of([&] {
              load_state(run_ + "/checkpoint-1", train_state);
            }).find("remove " + run_ + "/checkpoint-1 to continue"),
            std::string::npos);
  io::write_file(run_ + "/checkpoint-1/optimizer.safetensors",
                 io::read_file(run_ + "/checkpoint-1/optimizer.safetensors").substr(0, 100));
  EXPECT_NE(message_of([&] { load_moments(run_ + "/checkpoint-1", *optimizer_); }).find("optimizer.safetensors"),
            std::string::npos);
}

}  // namespace
}  // namespace rf::train
