// Shapes and dtypes that rf::ops::attention_ref refuses, each broken once; values and gradients are tested from Python.
#include "rf/ops/attention_ref.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace rf::ops {
namespace {

// B 2, T 3, S 4, H 4, Hk 2, D 6.
struct Case {
  at::Tensor q = at::ones({2, 3, 4, 6}), k = at::ones({2, 4, 2, 6}), v = at::ones({2, 4, 2, 6});
  at::Tensor query_positions = at::arange(3, at::kLong).unsqueeze(0);
  at::Tensor key_positions = at::arange(4, at::kLong).unsqueeze(0);
  at::Tensor attend;
  Terms terms;

  at::Tensor run() const { return attention_ref(q, k, v, terms, query_positions, key_positions, attend, {}); }
};

void expect_refused(const std::function<void(Case&)>& change, const std::string& rule, const std::string& got) {
  Case problem;
  change(problem);
  try {
    problem.run();
    ADD_FAILURE() << "taken in silence: " << rule;
  } catch (const c10::ValueError& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_EQ(text.find("[attention] "), 0u) << text;
    EXPECT_NE(text.find(rule), std::string::npos) << text;
    EXPECT_NE(text.find("got " + got), std::string::npos) << text;
  }
}

TEST(AttentionRefOperator, MeansOfEqualScores) {
  Case problem;
  problem.v.select(1, 0).fill_(5);  // a fourth of the keys
  EXPECT_TRUE(problem.run().eq(2).all().item<bool>());
}

TEST(AttentionRefOperator, RefusesData) {
  expect_refused([](Case& x) { x.q = at::Tensor(); }, "q must be floating-point", "nothing");
  expect_refused([](Case& x) { x.k = x.k[0]; }, "k must be floating-point [batch, tokens", "CPUFloatType");
  expect_refused([](Case& x) { x.v = x.v.to(at::kInt); }, "v must be floating-point", "CPUIntType");
  expect_refused([](Case& x) { x.v = x.v.to(at::kMeta); }, "q, k and v must be on the CPU", "meta");
  expect_refused([](Case& x) { x.k = at::ones({2, 4, 2, 4}); }, "k must be [batch, keys", "[2, 4, 2, 4]");
  expect_refused([](Case& x) { x.v = at::ones({2, 5, 2, 6}); }, "v must be [batch, keys", "[2, 5, 2, 6]");
  expect_refused([](Case& x) { x.k = x.v = at::ones({2, 4, 3, 6}); }, "multiple of key_heads = 3", "4");
}

TEST(AttentionRefOperator, RefusesPositionsAndMasks) {
  expect_refused([](Case& x) { x.query_positions = x.query_positions.to(at::kInt); }, "query_positions must be int64",
                 "CPUIntType");
  expect_refused([](Case& x) { x.key_positions = at::arange(5, at::kLong).unsqueeze(0); },
                 "key_positions must be [1 or 2, 4]", "[1, 5]");
  expect_refused([](Case& x) { x.attend = at::ones({1, 1, 3, 4}); }, "attend must be bool", "Float");
}

TEST(AttentionRefOperator, RefusesTerms) {
  expect_refused([](Case& x) { x.terms.layout = "both"; }, "layout must be", "\"both\"");
  expect_refused([](Case& x) { x.terms.query.cos = at::ones({1, 3, 2}); }, "must have both cos and sin", "cos alone");
  expect_refused(
      [](Case& x) {
        x.terms.key = {at::ones({1, 3, 2}), at::ones({1, 3, 2})};
      },
      "keys must be rotated", "[1, 3, 2]");
  expect_refused(
      [](Case& x) {
        x.terms.value = {at::ones({1, 4, 2}), at::ones({1, 4, 1})};
      },
      "of the shape of cos", "[1, 4, 1]");
  expect_refused([](Case& x) { x.terms.key_table = {at::ones({4, 3, 6}), -1, 2}; }, "key_table must have", "[4, 3, 6]");
  expect_refused([](Case& x) { x.terms.bias = {at::ones({4, 3, 1}), -1, 1}; }, "bias must have", "[4, 3, 1]");
  expect_refused([](Case& x) { x.terms.gate = {at::ones({4, 3, 2}), -1, 1}; }, "gate.width must be 6", "2");
  expect_refused(
      [](Case& x) {
        x.terms.gate = {at::ones({1, 1, 1}).to(at::kMeta), 0, 0};
      },
      "terms must be on the CPU", "meta");
  expect_refused([](Case& x) { x.terms.content_bias_HD = at::ones({2, 6}); }, "content_bias must be [4, 6]", "[2, 6]");
  expect_refused([](Case& x) { x.terms.position_query_HPD = at::ones({4, 6}); }, "position_query must be", "[4, 6]");
  expect_refused(
      [](Case& x) {
        x.terms.position_query_HPD = at::ones({4, 9, 6});
        x.terms.position_key_HPD = at::ones({4, 8, 6});
      },
      "position_key must be [4, 9, 6]", "[4, 8, 6]");
  expect_refused([](Case& x) { x.terms.position_key_HPD = at::ones({4, 8, 6}); }, "given together", "c alone");
  expect_refused([](Case& x) { x.terms.reset_row_H = at::ones({1}); }, "reset_row must be [4]", "[1]");
}

}  // namespace
}  // namespace rf::ops
