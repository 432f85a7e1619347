// Every kind of call on every head, and sequences that grow step by step, for the sanitizers; Python tests compare
// values with those of transformers. Here numbers are finite, calls of a model allocate no memory once it has been
// called with as many tokens, and logits do not depend on the steps.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "core/allocation_count.h"
#include "engine/model_directory.h"
#include "rf/engine/decoder.h"
#include "tolerances.h"

namespace rf::tests {
namespace {

using engine::Decoder;
using engine::Model;
using engine::Pooling;
using engine::Precision;

void check_calls(const nlohmann::json& config, Precision precision) {
  const ModelDirectory directory(config);
  const Model model(directory.path(), {.precision = precision, .token_budget = 24});
  const Batch large = batch_of({16, 8, 15, 9, 12, 12, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const Batch small = batch_of({3, 16, 1});
  std::vector<float> out(large.ids.size() * 1000);
  const auto head = config["architectures"][0].get<std::string>();
  std::vector<Pooling> poolings = {Pooling::kMean, Pooling::kCls, Pooling::kLast, Pooling::kMax, Pooling::kMeanSqrtLen};
  if (head == "BertModel") poolings.push_back(Pooling::kPooler);
  std::vector<std::function<void(const Batch&)>> calls = {
      [&](const Batch& batch) { model.hidden(batch.tokens(), out.data()); }};
  for (const Pooling pooling : poolings)
    calls.push_back([&, pooling](const Batch& batch) { model.pooled(batch.tokens(), pooling, out.data()); });
  if (!head.ends_with("Model")) calls.push_back([&](const Batch& batch) { model.logits(batch.tokens(), out.data()); });
  for (size_t i = 0; i < calls.size(); ++i) {
    // The minimum of some rounds: a thread may have had nothing to do in the first ones.
    int64_t min = INT64_MAX;
    for (int round = 0; round < (counts_allocations() ? 20 : 1) && min > 0; ++round) {
      const int64_t before = allocations();
      for (const Batch* batch : {&large, &small}) calls[i](*batch);
      min = std::min(min, allocations() - before);
    }
    EXPECT_EQ(counts_allocations() ? min : 0, 0)
        << config << " call " << i << " precision " << static_cast<int>(precision);
    EXPECT_TRUE(std::ranges::all_of(out, [](float value) { return std::isfinite(value); })) << config << " call " << i;
  }
}

class EngineCalls : public ::testing::Test {
 protected:
  void SetUp() override { omp_set_num_threads(2); }
  void TearDown() override { omp_set_num_threads(threads_); }

 private:
  const int threads_ = omp_get_max_threads();
};

constexpr Precision kPrecisions[] = {Precision::kFloat32, Precision::kBfloat16, Precision::kInt8};

TEST_F(EngineCalls, EveryHead) {
  for (const Precision precision : kPrecisions) {
    for (const std::string family : {"RoFormer", "Bert"}) {
      for (const char* head : {"Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
                               "ForQuestionAnswering", "ForMultipleChoice"})
        check_calls(small_config(family == "Bert" ? "bert" : "roformer", family + head), precision);
    }
  }
}

TEST_F(EngineCalls, ActivationsAndSizes) {
  for (const char* activation : {"gelu_new", "relu", "relu2", "silu", "tanh"}) {
    check_calls(small_config("roformer", "RoFormerForMaskedLM", {{"hidden_act", activation}, {"embedding_size", 10}}),
                Precision::kFloat32);
  }
}

TEST_F(EngineCalls, LinearAttention) {
  for (const Precision precision : kPrecisions) {
    for (const char* site : {"before_map", "after_map"}) {
      for (const char* map : {"elu", "cosine", "shen"}) {
        for (const bool causal : {false, true}) {
          check_calls(linear_config("RfEncoderModel", map, {{"rope_site", site}}, {{"is_decoder", causal}}), precision);
        }
      }
    }
  }
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
