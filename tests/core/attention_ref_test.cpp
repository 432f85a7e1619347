// The float64 reference of attention over terms (core/ref/attention*.cpp): values by hand (spec R-ATT-02) and queries
// without keys. tests/ops/test_attention_ref.py compares every term with loops in Python, and gradients with
// differences.
#include "rf/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tolerances.h"

namespace rf::tests {
namespace {

// One head, D = 2, two queries and keys: arguments of the hand-made cases.
rf_attention_args two_by_two(const double* q, const double* k, const double* v, double* out) {
  static const int64_t positions[] = {0, 1};
  rf_attention_args args{};
  args.struct_size = sizeof args;
  args.dtype = RF_F64;
  args.batch = args.heads = args.key_heads = 1;
  args.queries = args.keys = args.head_dim = args.value_dim = 2;
  args.q = q, args.k = k, args.v = v, args.out = out;
  args.q_stride_t = args.k_stride_t = args.v_stride_t = args.out_stride_t = 2;
  args.query_positions = args.key_positions = positions;
  args.scale = 1 / std::sqrt(2.0);
  return args;
}

// R-ATT-02. Scores of query 0: sqrt(2) ln 3 / sqrt(2) = ln 3 and 0, so probabilities 3/4 and 1/4; of query 1: 0 and
// ln 7: 1/8 and 7/8.
TEST(AttentionRef, TwoByTwoByHand) {
  const double root = std::sqrt(2.0);
  const double q[] = {root * std::log(3.0), 0, 0, root * std::log(7.0)}, k[] = {1, 0, 0, 1}, v[] = {8, 16, -8, 0};
  double out[4];
  rf_attention_args args = two_by_two(q, k, v, out);
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  const double expected[] = {4, 12, -6, 2};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], kHandAttention) << i;

  args.window = RF_WINDOW_RIGHT;  // causal: query 0 sees key 0 alone
  ASSERT_EQ(rf_attention_forward(&args), RF_OK);
  const double causal[] = {8, 16, -6, 2};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], causal[i], kHandAttention) << i;
}

TEST(AttentionRef, NoKeysGiveZero) {
  double out[] = {1, 1, 1, 1}, dq[] = {1, 1, 1, 1};
  const double q[] = {1, 2, 3, 4}, dout[] = {1, 1, 1, 1};
  rf_attention_args args = two_by_two(q, nullptr, nullptr, out);
  args.keys = 0;
  args.key_positions = nullptr;
  rf_attention_grads grads{};
  grads.struct_size = sizeof grads;
  grads.out = dout, grads.out_stride_t = 2, grads.q = dq;
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  ASSERT_EQ(rf_attention_backward(&args, &grads), RF_OK) << rf_last_error();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(out[i], 0);
    EXPECT_EQ(dq[i], 0);
  }
}

}  // namespace
}  // namespace rf::tests
