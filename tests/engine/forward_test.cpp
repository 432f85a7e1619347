// Every kind of call on every head, for the sanitizers; values are compared with transformers' in Python. What is
// checked here: the numbers are finite, and do not depend on the budget or the order.
#include <cmath>
#include <thread>

#include "engine/batch.h"
#include "engine/model_directory.h"
#include "rf/engine/model.h"

namespace rf::tests {
namespace {

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
      for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
        call_all(Model(directory.path(), {.precision = precision, .token_budget = 7}), batch);
      }
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

}  // namespace
}  // namespace rf::tests
