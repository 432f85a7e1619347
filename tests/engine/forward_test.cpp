// Every kind of call on every head, and sequences that grow step by step, for the sanitizers; Python tests compare
// values with those of transformers. Here numbers are finite, and do not depend on the budget, the order or the steps.
#include <algorithm>
#include <cmath>
#include <span>
#include <thread>

#include "engine/model_directory.h"
#include "rf/engine/decoder.h"
#include "tolerances.h"

namespace rf::tests {
namespace {

using engine::Decoder;
using engine::Model;
using engine::ModelOptions;
using engine::Pooling;
using engine::Precision;

void expect_finite(const std::vector<float>& values) {
  for (const float value : values) ASSERT_TRUE(std::isfinite(value));
}

void call_all(const Model& model, const Batch& batch) {
  const auto width = static_cast<size_t>(model.info().hidden_size), sequences = batch.offsets.size() - 1;
  std::vector<float> hidden(batch.ids.size() * width), pooled(sequences * width);
  model.hidden(batch.tokens(), hidden.data());
  expect_finite(hidden);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kCls, Pooling::kLast, Pooling::kMax, Pooling::kMeanSqrtLen}) {
    model.pooled(batch.tokens(), pooling, pooled.data());
    expect_finite(pooled);
  }
  if (model.info().task == engine::Task::kNone) return;
  const size_t rows = model.logits_of_tokens() ? batch.ids.size() : sequences;
  std::vector<float> logits(rows * static_cast<size_t>(model.logits_per_row()));
  model.logits(batch.tokens(), logits.data());
  expect_finite(logits);
}

TEST(EngineForward, EveryHead) {
  const Batch batch = batch_of({1, 5, 16, 2, 3});
  for (const std::string family : {"RoFormer", "Bert"}) {
    for (const char* head : {"Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
                             "ForQuestionAnswering", "ForMultipleChoice"}) {
      SCOPED_TRACE(family + head);
      const ModelDirectory directory(small_config(family == "Bert" ? "bert" : "roformer", family + head));
      for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16})
        call_all(Model(directory.path(), {.precision = precision, .token_budget = 7}), batch);
    }
  }
}

TEST(EngineForward, ActivationsAndSizes) {
  const Batch batch = batch_of({4, 1});
  for (const char* activation : {"gelu", "gelu_new", "relu", "silu", "tanh"}) {
    const ModelDirectory directory(
        small_config("roformer", "RoFormerForMaskedLM", {{"hidden_act", activation}, {"embedding_size", 10}}));
    call_all(Model(directory.path()), batch);
  }
}

TEST(EngineForward, ThreadsMayShareAModel) {
  const ModelDirectory directory(small_config("bert", "BertModel"));
  const Model model(directory.path(), {.token_budget = 5});
  const Batch batch = batch_of({3, 9, 1, 6});
  std::vector<std::vector<float>> results(4, std::vector<float>(4 * 24));
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) model.pooled(batch.tokens(), Pooling::kMean, result.data());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(EngineForward, AMovedModel) {
  const ModelDirectory directory(small_config("bert", "BertModel"));
  Model first(directory.path());
  Model second(std::move(first));
  first = std::move(second);
  call_all(first, batch_of({2}));
}

constexpr int32_t kIds[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};

std::vector<float> append(Decoder& decoder, std::vector<int64_t> sequences, std::span<const int32_t> each,
                          int64_t vocab_size) {
  std::vector<int64_t> offsets = {0};
  std::vector<int32_t> ids;
  for (size_t i = 0; i < sequences.size(); ++i) {
    ids.insert(ids.end(), each.begin(), each.end());
    offsets.push_back(std::ssize(ids));
  }
  std::vector<float> logits(sequences.size() * static_cast<size_t>(vocab_size));
  decoder.append(sequences, offsets, ids, logits.data());
  return logits;
}

// Three sequences of the same tokens: one at once, one in two steps, and a copy of that over others. tolerance: of
// their logits, relative to the largest.
void expect_equal_logits(const nlohmann::json& config, double tolerance) {
  SCOPED_TRACE(config.dump());
  const ModelDirectory directory(config);
  const Model model(directory.path());
  const int64_t vocab_size = model.info().vocab_size;
  const std::span<const int32_t> ids(kIds), first = ids.first(7), rest = ids.subspan(7);
  Decoder decoder(model, 3, std::ssize(ids));
  const std::vector<float> whole = append(decoder, {0}, ids, vocab_size);
  append(decoder, {1}, first, vocab_size);
  append(decoder, {2}, rest, vocab_size);
  decoder.truncate(2, 0);
  decoder.copy(1, 2);
  const std::vector<float> both = append(decoder, {1, 2}, rest, vocab_size);
  const std::span<const float> grown = std::span(both).first(whole.size()), copied = std::span(both).last(whole.size());
  EXPECT_TRUE(std::ranges::equal(grown, copied));
  const float largest = std::abs(*std::ranges::max_element(whole, {}, [](float x) { return std::abs(x); }));
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_LE(std::abs(whole[i] - grown[i]), tolerance * largest) << i;
}

TEST(EngineDecoder, KeysAndValues) {
  expect_equal_logits(small_config("roformer", "RoFormerForCausalLM", {{"is_decoder", true}}), 0);
  expect_equal_logits(small_config("bert", "BertLMHeadModel", {{"is_decoder", true}}), 0);
}

TEST(EngineDecoder, SumsOfLinearAttention) {
  for (const char* map : {"elu", "cosine", "shen"}) {
    for (const char* site : {"before_map", "after_map"}) {
      expect_equal_logits(linear_config("RfEncoderForCausalLM", map, {{"rope_site", site}}, {{"is_decoder", true}}),
                          kFloat32Model);
    }
  }
}

}  // namespace
}  // namespace rf::tests
