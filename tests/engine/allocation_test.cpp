// Calls of a model allocate no memory once it has been called with as many tokens.
#include <omp.h>

#include <functional>

#include "core/allocation_count.h"
#include "engine/model_directory.h"

namespace rf::tests {
namespace {

using engine::Model;
using engine::Pooling;
using engine::Precision;

void expect_no_allocations(const nlohmann::json& config, Precision precision) {
  const ModelDirectory directory(config);
  const Model model(directory.path(), {.precision = precision, .token_budget = 24});
  const Batch large = batch_of({16, 8, 15, 9, 12, 12, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const Batch small = batch_of({3, 16, 1});
  std::vector<float> out(large.ids.size() * 1000);
  const auto head = config["architectures"][0].get<std::string>();
  std::vector<std::function<void(const Batch&)>> calls = {
      [&](const Batch& batch) { model.hidden(batch.tokens(), out.data()); },
      [&](const Batch& batch) { model.pooled(batch.tokens(), Pooling::kMean, out.data()); }};
  if (head == "BertModel")
    calls.push_back([&](const Batch& batch) { model.pooled(batch.tokens(), Pooling::kPooler, out.data()); });
  if (!head.ends_with("Model")) calls.push_back([&](const Batch& batch) { model.logits(batch.tokens(), out.data()); });
  for (size_t i = 0; i < calls.size(); ++i) {
    // The minimum of some rounds: a thread may have had nothing to do in the first ones.
    int64_t min = INT64_MAX;
    for (int round = 0; round < 20 && min > 0; ++round) {
      const int64_t before = allocations();
      for (const Batch* batch : {&large, &small}) calls[i](*batch);
      min = std::min(min, allocations() - before);
    }
    EXPECT_EQ(min, 0) << config << " call " << i << " precision " << static_cast<int>(precision);
  }
}

class EngineAllocations : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!counts_allocations()) GTEST_SKIP() << "calls of malloc cannot be counted here";
    omp_set_num_threads(2);
  }
  void TearDown() override { omp_set_num_threads(threads_); }

 private:
  const int threads_ = omp_get_max_threads();
};

constexpr Precision kPrecisions[] = {Precision::kFloat32, Precision::kBfloat16, Precision::kInt8};

TEST_F(EngineAllocations, NoneAfterTheFirstCall) {
  for (const Precision precision : kPrecisions) {
    for (const std::string family : {"RoFormer", "Bert"}) {
      for (const char* head : {"Model", "ForMaskedLM", "ForSequenceClassification"})
        expect_no_allocations(small_config(family == "Bert" ? "bert" : "roformer", family + head), precision);
    }
  }
}

TEST_F(EngineAllocations, NoneWithLinearAttention) {
  for (const Precision precision : kPrecisions) {
    for (const char* site : {"before_map", "after_map"}) {
      for (const char* map : {"elu", "cosine", "shen"}) {
        for (const bool causal : {false, true}) {
          expect_no_allocations(linear_config("RfEncoderModel", map, {{"rope_site", site}}, {{"is_decoder", causal}}),
                                precision);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rf::tests
