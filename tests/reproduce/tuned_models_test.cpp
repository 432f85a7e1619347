// Rates of tasks: the first body of an arm chooses among all of them, and the later ones take its choice.
#include "tuned_models.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/support.h"
#include "rf/io/files.h"
#include "rf/nn/model.h"
#include "rf/nn/seed_scope.h"
#include "silent_context.h"

namespace rf::reproduce {
namespace {

constexpr const char* kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n";

// A body of random weights with a vocabulary of four letters.
void make_body(const std::string& directory) {
  std::filesystem::create_directories(directory);
  io::write_file(directory + "/vocab.txt", kVocabulary);
  ModelConfig config;
  config.vocab_size = 9;
  config.hidden_size = config.embedding_size = config.intermediate_size = 8;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.max_position_embeddings = 16;
  const nn::SeedScope drawn(1);
  nn::save_model(nn::Model(config, Head::kMaskedLm), directory);
}

std::string records(int64_t count, const char* letters) {
  std::string lines;
  for (int64_t i = 0; i < count; ++i) {
    const std::string text = std::string(1, letters[i % 2]) + " " + letters[i / 2 % 2] + " " + letters[i / 4 % 2];
    lines += nlohmann::json{{"text", text}, {"label", std::string(1, letters[i % 2])}}.dump() + "\n";
  }
  return lines;
}

std::vector<double> rates_of(const std::string& directory) {
  const nlohmann::json report = io::read_json(directory + "/report.json");
  std::vector<double> rates;
  for (const nlohmann::json& rate : report.at("rates")) rates.push_back(rate.at("learning_rate"));
  return rates;
}

TEST(ArmTuner, TheFirstBodyOfAnArmChoosesTheRate) {
  const testing::TempDir folder;
  make_body(folder.file("body"));
  io::write_file(folder.file("train.jsonl"), records(16, "ab"));
  io::write_file(folder.file("valid.jsonl"), records(8, "ba"));
  const SilentContext silent(folder.path(), folder.path());
  const std::vector<double> rates = {1e-4, 1e-3, 1e-2};
  ArmTuner tuner(silent.context, {.name = "letters", .task = "classification", .metric = "accuracy"},
                 {.epochs = 1, .batch = 4, .learning_rates = rates, .max_length = 8},
                 {.train = {folder.file("train.jsonl")}, .valid = {folder.file("valid.jsonl")}, .test = {}});
  const auto tuned = [&](const std::string& arm, uint64_t seed) {
    const std::string directory = folder.file(arm + std::to_string(seed));
    const Tuned done = tuner.tune({arm, folder.file("body"), directory, seed});
    EXPECT_EQ(done.signal, 0);
    return std::pair{done.learning_rate, rates_of(directory)};
  };
  for (const char* arm : {"one", "other"}) {
    const auto [chosen, tried] = tuned(arm, 1);
    EXPECT_EQ(tried, rates);
    for (const uint64_t later : {2, 3}) {
      EXPECT_EQ(tuned(arm, later), (std::pair{chosen, std::vector<double>{chosen}}));
    }
  }
  ASSERT_EQ(silent.log.rates.size(), 2U);
  for (const TriedRates& of_arm : silent.log.rates) EXPECT_EQ(of_arm.rates, rates) << of_arm.arm;
  EXPECT_EQ(silent.log.training.size(), 6U);
}

}  // namespace
}  // namespace rf::reproduce
