// Shapes, dtypes and devices that rf::ops::attention_fused and attention_ref refuse, each broken once; values and
// gradients are tested from Python.
#include "rf/ops/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace rf::ops {
namespace {

// B 2, T 3, S 4, H 4, Hk 2, D 6.
struct Case : AttentionCall {
  Case() {
    q = at::ones({2, 3, 4, 6}), k = at::ones({2, 4, 2, 6}), v = at::ones({2, 4, 2, 6});
    query_positions = at::arange(3, at::kLong).unsqueeze(0), key_positions = at::arange(4, at::kLong).unsqueeze(0);
  }

  at::Tensor run() const { return attention_ref(*this); }
  at::Tensor run_fused() const { return attention_fused(*this); }
};

void expect_error(const std::function<void()>& run, const std::string& rule, const std::string& got) {
  try {
    run();
    ADD_FAILURE() << "taken in silence: " << rule;
  } catch (const c10::ValueError& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_EQ(text.find("[attention] "), 0u) << text;
    EXPECT_NE(text.find(rule), std::string::npos) << text;
    EXPECT_NE(text.find("got " + got), std::string::npos) << text;
  }
}

// By both, and by the check for others.
void expect_refused(const std::function<void(Case&)>& change, const std::string& rule, const std::string& got) {
  Case problem;
  change(problem);
  expect_error([&] { problem.run(); }, rule, got);
  expect_error([&] { problem.run_fused(); }, rule, got);
  expect_error([&] { check_attention(problem); }, rule, got);
}

TEST(AttentionOperator, MeansOfEqualScores) {
  Case problem;
  problem.v.select(1, 0).fill_(5);  // a fourth of the keys
  EXPECT_TRUE(problem.run().eq(2).all().item<bool>());
  EXPECT_TRUE(problem.run_fused().eq(2).all().item<bool>());
}

TEST(AttentionOperator, RefusesData) {
  expect_refused([](Case& x) { x.q = at::Tensor(); }, "q must be [batch, tokens, heads, size]", "nothing");
  expect_refused([](Case& x) { x.k = x.k[0]; }, "k must be [batch, tokens, heads, size] of ", "");
  expect_refused([](Case& x) { x.v = x.v.to(at::kInt); }, "v must be floating-point", "Int");
  expect_refused([](Case& x) { x.v = x.v.to(at::kMeta); }, "v must be on the device of q, cpu", "meta");
  expect_refused([](Case& x) { x.k = at::ones({2, 4, 2, 4}); }, "k must be [batch, keys", "[2, 4, 2, 4]");
  expect_refused([](Case& x) { x.v = at::ones({2, 5, 2, 6}); }, "v must be [batch, keys", "[2, 5, 2, 6]");
  expect_refused([](Case& x) { x.k = x.v = at::ones({2, 4, 3, 6}); }, "multiple of key_heads = 3", "4");
}

TEST(AttentionOperator, FusedRefusesWhatOnlyTheLoopsKnow) {
  Case problem;
  problem.q = problem.q.to(at::kDouble);
  expect_error([&] { problem.run_fused(); }, "q must be float32, bfloat16 or float16 for the fused kernel", "Double");
  problem = {};
  problem.k = problem.k.to(at::kHalf);
  expect_error([&] { problem.run_fused(); }, "k must be [batch, tokens, heads, size] of Float", "Half");
  problem = {};
  problem.dropout.p = 1;
  expect_error([&] { problem.run_fused(); }, "dropout must be in [0, 1 - 2^-17)", "1");
}

TEST(AttentionOperator, TrainedRotationsHaveTheGradientsOfTheLoops) {
  Case problem;
  problem.k = at::arange(2 * 4 * 2 * 6, at::kFloat).sin().view({2, 4, 2, 6});
  problem.v = at::arange(2 * 4 * 2 * 6, at::kFloat).cos().view({2, 4, 2, 6});
  std::vector<at::Tensor> gradients;
  for (const bool fused : {true, false}) {
    const at::Tensor cos = at::full({1, 3, 2}, 0.8f).requires_grad_(), sin = at::full({1, 3, 2}, 0.6f);
    problem.terms.query = {cos, sin};
    (fused ? problem.run_fused() : problem.run()).pow(2).sum().backward();
    gradients.push_back(cos.grad());
  }
  EXPECT_TRUE(gradients[0].allclose(gradients[1], 1e-5, 1e-6)) << gradients[0] << gradients[1];
  EXPECT_GT(gradients[1].abs().min().item<float>(), 1e-3f);
}

TEST(AttentionOperator, RefusesPositionsAndMasks) {
  expect_refused([](Case& x) { x.query_positions = x.query_positions.to(at::kInt); }, "query_positions must be int64",
                 "Int");
  expect_refused([](Case& x) { x.key_positions = at::arange(5, at::kLong).unsqueeze(0); },
                 "key_positions must be [1 or 2, 4]", "[1, 5]");
  expect_refused([](Case& x) { x.mask = at::ones({1, 1, 3, 4}); }, "mask must be bool", "Float");
  expect_refused(
      [](Case& x) {
        x.mask = at::ones({3, 4, 3, 4}, at::kBool);
      },
      "broadcast to [batch, heads, queries, keys] = [2, 4, 3, 4]", "Bool [3, 4, 3, 4]");
}

TEST(AttentionOperator, RefusesPackedSequences) {
  const auto ends = [](std::initializer_list<int64_t> numbers) { return at::tensor(numbers, at::kLong); };
  const auto expect = [&](const at::Tensor& q, const at::Tensor& k, const char* rule, const char* got) {
    expect_refused(
        [&](Case& x) {
          x.q = x.q.narrow(0, 0, 1), x.k = x.k.narrow(0, 0, 1), x.v = x.v.narrow(0, 0, 1);
          x.packed = {q, k};
        },
        rule, got);
  };
  const at::Tensor good = ends({0, 1, 3}), good_k = ends({0, 2, 4});
  expect(good.to(at::kFloat), good_k, "cu_seqlens_q must be int32 or int64 [sequences + 1]", "Float [3]");
  expect(good, good_k.unsqueeze(0), "cu_seqlens_k must be int32 or int64 [sequences + 1]", "Long [1, 3]");
  expect(ends({}), good_k, "cu_seqlens_q must be int32 or int64 [sequences + 1]", "Long [0]");
  expect(good, good_k.to(at::kMeta), "cu_seqlens_k must be on the device of q, cpu", "meta");
  expect(good, ends({0, 4}), "cu_seqlens_k must have the shape of cu_seqlens_q, [3]", "[2]");
  expect(good, at::Tensor(), "cu_seqlens_q and cu_seqlens_k must be given together", "cu_seqlens_q alone");
  expect(ends({0, 3, 1}).to(at::kInt), good_k, "cu_seqlens_q must not decrease", "1 after 3");
  expect_refused([&](Case& x) { x.packed = {good, good_k}; }, "batch must be 1 with packed sequences", "2");
}

TEST(AttentionOperator, RefusesTerms) {
  expect_refused([](Case& x) { x.terms.layout = "both"; }, "layout must be", "\"both\"");
  expect_refused(
      [](Case& x) {
        x.terms.query.cos = at::ones({1, 3, 2});
      },
      "query_cos and query_sin must be given", "query_cos alone");
  expect_refused(
      [](Case& x) {
        x.terms.key = {at::ones({1, 3, 2}), at::ones({1, 3, 2})};
      },
      "key_cos and key_sin must be [1 or batch, 4, R/2]", "[1, 3, 2]");
  expect_refused(
      [](Case& x) {
        x.terms.value = {at::ones({1, 4, 2}), at::ones({1, 4, 1})};
      },
      "value_cos and value_sin must be", "[1, 4, 2] and [1, 4, 1]");
  expect_refused(
      [](Case& x) {
        x.terms.key_table = {at::ones({4, 3, 6}), -1, 2};
      },
      "key_table must have 3 dimensions", "[4, 3, 6]");
  expect_refused([](Case& x) { x.terms.key_table = {at::ones({4, 3, 6}), 1, -1}; }, "must be lo <= hi", "1..-1");
  expect_refused([](Case& x) { x.terms.bias = {at::ones({4, 3, 1}), -1, 1}; }, "bias must have", "[4, 3, 1]");
  expect_refused([](Case& x) { x.terms.bias = {at::ones({2, 3}), -1, 1}; }, "bias.heads must be 1 or heads = 4", "2");
  expect_refused(
      [](Case& x) {
        x.terms.bias = {at::ones({1, 1}).to(at::kMeta), 0, 0};
      },
      "bias must be on the device of q", "meta");
  expect_refused([](Case& x) { x.terms.content_bias = at::ones({2, 6}); }, "content_bias must be [4, 6]", "[2, 6]");
  expect_refused(
      [](Case& x) {
        x.terms.position_query = x.terms.position_key = at::ones({4, 6});
      },
      "position_query must be", "[4, 6]");
  expect_refused(
      [](Case& x) {
        x.terms.position_query = at::ones({4, 9, 6});
        x.terms.position_key = at::ones({4, 8, 6});
      },
      "position_key must be [4, 9, 6]", "[4, 8, 6]");
  expect_refused([](Case& x) { x.terms.position_key = at::ones({4, 8, 6}); }, "given together", "position_key alone");
  expect_refused([](Case& x) { x.terms.reset_row = at::ones({1}); }, "reset_row must be [4]", "[1]");
  Case problem;
  problem.terms.gate = {at::ones({4, 3, 2}), -1, 1};
  expect_error([&] { problem.run(); }, "gate.width must be 6", "2");
}

}  // namespace
}  // namespace rf::ops
