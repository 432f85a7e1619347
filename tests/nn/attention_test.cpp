// What Python does not reach of attention: dropout of the probabilities, and one context for several layers.
#include "rf/nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <gtest/gtest.h>

#include <vector>

#include "rf/ops/attention.h"
#include "temporary_files.h"

namespace rf::nn {
namespace {

using tests::error_of;

constexpr int64_t kTokens = 48;

AttentionContext context_of(TokenWindow window = {}, Kernel kernel = Kernel::kAuto) {
  return {make_positions(at::arange(kTokens)), at::Tensor(), window, kernel};
}

// With the identity as values the result is the probabilities.
at::Tensor probabilities(const at::Tensor& q_BTHD, const AttentionContext& context, double dropout = 0,
                         DropoutKey* key = nullptr) {
  const at::Tensor identity_BSHS =
      at::eye(kTokens, q_BTHD.options()).unsqueeze(1).unsqueeze(0).expand({q_BTHD.size(0), -1, q_BTHD.size(2), -1});
  return attention(q_BTHD, q_BTHD, identity_BSHS, {}, context, dropout, key);
}

TEST(Attention, EveryPathDropsTheSameProbabilities) {
  const at::Tensor q = at::randn({2, kTokens, 3, 8}, at::kFloat);
  const at::Tensor whole = probabilities(q, context_of());
  std::vector<at::Tensor> kept;
  for (const Kernel kernel : {Kernel::kFused, Kernel::kExplicit}) {
    DropoutKey key{.seed = 5, .step = 3};
    for (uint32_t layer = 0; layer < 2; ++layer) {
      const at::Tensor dropped = probabilities(q, context_of({}, kernel), 0.25, &key);
      EXPECT_EQ(key.calls, layer + 1);
      kept.push_back(dropped.ne(0));
      EXPECT_TRUE(at::where(kept.back(), whole / 0.75, whole.mul(0)).allclose(dropped));
    }
  }
  EXPECT_TRUE(kept[0].any().item<bool>());
  EXPECT_TRUE(kept[0].equal(kept[2]));
  EXPECT_TRUE(kept[1].equal(kept[3]));
  EXPECT_FALSE(kept[0].equal(kept[1])) << "the next stream";
}

TEST(Attention, TheLoopsKnowNoDropout) {
  DropoutKey key;
  const at::Tensor q = at::randn({1, kTokens, 1, 8}, at::kDouble);
  EXPECT_EQ(error_of([&] { probabilities(q, context_of({}, Kernel::kRef), 0.5, &key); }),
            "[attention] dropout must be 0 with kernel ref, got 0.5");
}

// Calls in C++ that Python code cannot make.
TEST(Attention, KernelsRefuseNothingAndTheFusedOneFloat64) {
  const at::Tensor q = at::ones({1, 2, 1, 2}, at::kDouble), ids = at::arange(2, at::kLong).unsqueeze(0);
  ops::AttentionCall call;
  call.q = call.k = call.v = q, call.query_positions = call.key_positions = ids;
  EXPECT_THROW(ops::attention_fused(call), c10::ValueError);
  EXPECT_TRUE(ops::attention_ref(call).equal(q));
  call.q = at::Tensor();
  EXPECT_THROW(ops::attention_ref(call), c10::ValueError);
}

// What a context keeps for one layer's terms and dtype must not be taken for another's.
TEST(Attention, LayersShareAContext) {
  const AttentionContext shared = context_of({.left = 5, .right = 0});
  for (const int64_t clip : {2, 7, 2}) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      Terms terms;
      terms.key_table = {at::randn({2, 2 * clip + 1, 8}, dtype), -clip, clip};
      terms.bias = {at::randn({2, clip + 1}, dtype), 0, clip};
      const at::Tensor q = at::randn({2, kTokens, 2, 8}, dtype);
      const at::Tensor alone = attention(q, q, q, terms, context_of({.left = 5, .right = 0}));
      EXPECT_TRUE(attention(q, q, q, terms, shared).equal(alone));
    }
  }
}

}  // namespace
}  // namespace rf::nn
