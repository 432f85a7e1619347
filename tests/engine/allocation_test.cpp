// Calls of a model allocate no memory once it has been called with as many tokens.
#include <omp.h>

#include <functional>

#include "core/allocation_count.h"
#include "engine/model_directory.h"
#include "rf/engine/model.h"

namespace rf::tests {
namespace {

using engine::Model;
using engine::Pooling;
using engine::Precision;

struct Batch {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets = {0};
  engine::Tokens tokens() const { return {.ids = ids, .offsets = offsets}; }
};

Batch batch_of(std::initializer_list<int> lengths) {
  Batch batch;
  for (const int length : lengths) {
    for (int i = 0; i < length; ++i) batch.ids.push_back((5 * i + length) % 31);
    batch.offsets.push_back(static_cast<int64_t>(batch.ids.size()));
  }
  return batch;
}

void expect_no_allocations(const std::string& family, const std::string& head, Precision precision) {
  const ModelDirectory directory(small_config(family == "Bert" ? "bert" : "roformer", family + head));
  const Model model(directory.path(), {.precision = precision, .token_budget = 24});
  const Batch large = batch_of({16, 8, 15, 9, 12, 12, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const Batch small = batch_of({3, 16, 1});
  std::vector<float> out(large.ids.size() * 1000);
  const bool has_head = head != "Model";
  std::vector<std::function<void(const Batch&)>> calls = {
      [&](const Batch& batch) { model.hidden(batch.tokens(), out.data()); },
      [&](const Batch& batch) { model.pooled(batch.tokens(), Pooling::kMean, out.data()); }};
  if (!has_head && family == "Bert") {
    calls.push_back([&](const Batch& batch) { model.pooled(batch.tokens(), Pooling::kPooler, out.data()); });
  }
  if (has_head) calls.push_back([&](const Batch& batch) { model.logits(batch.tokens(), out.data()); });
  for (size_t i = 0; i < calls.size(); ++i) {
    // The least of some rounds: a thread may have had nothing to do in the first ones.
    int64_t least = INT64_MAX;
    for (int round = 0; round < 20 && least > 0; ++round) {
      const int64_t before = allocations();
      for (const Batch* batch : {&large, &small}) calls[i](*batch);
      least = std::min(least, allocations() - before);
    }
    EXPECT_EQ(least, 0) << family << head << " call " << i << " precision " << static_cast<int>(precision);
  }
}

TEST(EngineAllocations, NoneAfterTheFirstCall) {
  if (!counts_allocations()) GTEST_SKIP() << "calls of malloc cannot be counted here";
  const int threads = omp_get_max_threads();
  omp_set_num_threads(2);
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16, Precision::kInt8}) {
    for (const std::string family : {"RoFormer", "Bert"}) {
      for (const char* head : {"Model", "ForMaskedLM", "ForSequenceClassification"}) {
        expect_no_allocations(family, head, precision);
      }
    }
  }
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace rf::tests
