// The float64 reference of attention over terms (core/ref/attention*.cpp): values by hand (spec R-ATT-02), every
// gradient by central differences of the forward (R-ATT-05), queries without keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/terms.h"
#include "attention_case.h"
#include "attention_reference_case.h"
#include "rf/attention.h"
#include "tolerances.h"

namespace rf::tests {
namespace {

using Values = std::vector<double>;

// Compares a gradient with (loss(x + h) - loss(x - h)) / 2h at each of its elements.
void expect_gradient(ReferenceCase& problem, const void* array, const Values& gradient, const std::string& name) {
  auto* x = const_cast<double*>(static_cast<const double*>(array));
  double largest = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + kDifferenceStep;
    const double above = problem.loss();
    x[i] = kept - kDifferenceStep;
    const double below = problem.loss();
    x[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kDifferenceStep), kDifferenceError) << name << '[' << i << ']';
    largest = std::max(largest, std::abs(gradient[i]));
  }
  // A reset row adds the same to all scores of its query, which softmax does not see.
  const bool invisible = array == problem.args.reset_row;
  EXPECT_EQ(largest > kDifferenceError, !invisible) << name;
}

void expect_every_gradient(ReferenceCase& problem) {
  using Case = ReferenceCase;
  const rf_attention_args& x = problem.args;
  Values dout(Case::kBatch * Case::kQueries * Case::kHeads * Case::kDim);
  for (size_t i = 0; i < dout.size(); ++i) dout[i] = Case::weight(static_cast<int64_t>(i));
  rf_attention_grads grads{};
  grads.struct_size = sizeof grads;
  grads.out = dout.data();
  grads.out_stride_b = x.out_stride_b, grads.out_stride_t = x.out_stride_t, grads.out_stride_h = x.out_stride_h;

  struct Tested {
    std::string name;
    const void* array;
    void** slot;
    int64_t count;
    Values gradient{};
  };
  const int64_t q = x.batch * x.q_stride_b, k = x.batch * x.k_stride_b;
  std::vector<Tested> all = {{"q", x.q, &grads.q, q}, {"k", x.k, &grads.k, k}, {"v", x.v, &grads.v, k}};
  for (const core::RotationTerm& t : core::kRotationTerms) {
    const auto& [cos, sin, batch, pairs] = x.*t.member;
    all.push_back({std::string(t.name) + "_cos", cos, &(grads.*t.cos_gradient), t.size(x)});
    all.push_back({std::string(t.name) + "_sin", sin, &(grads.*t.sin_gradient), t.size(x)});
  }
  for (const core::TableTerm& t : core::kTableTerms) {
    const rf_attention_table& table = x.*t.member;
    all.push_back({t.name, table.rows, &(grads.*t.gradient), table.heads * t.rows(x) * table.width});
  }
  for (const core::NumbersTerm& t : core::kNumbersTerms) {
    all.push_back({t.name, x.*t.member, &(grads.*t.gradient), x.heads * t.rows(x) * t.width(x)});
  }
  for (const core::ScoresTerm& t : core::kScoresTerms) {
    all.push_back({t.name, (x.*t.member).numbers, &(grads.*t.gradient), t.size(x)});
  }
  for (Tested& t : all) {
    t.gradient.assign(static_cast<size_t>(t.count), std::numeric_limits<double>::quiet_NaN());  // is overwritten
    *t.slot = t.gradient.data();
  }
  ASSERT_EQ(rf_attention_backward(&x, &grads), RF_OK) << rf_last_error();
  for (const Tested& t : all) expect_gradient(problem, t.array, t.gradient, t.name);
}

TEST(AttentionRef, EveryGradientIsTheDifferenceQuotient) {
  for (const rf_rope_layout layout : {RF_ROPE_PAIRS, RF_ROPE_HALVES}) {
    ReferenceCase problem(layout);
    expect_every_gradient(problem);
  }
}

TEST(AttentionRef, GradientsOfSharedTerms) {
  ReferenceCase problem(RF_ROPE_HALVES, /*table_heads=*/1, /*rotation_batch=*/1, /*gate_width=*/1);
  expect_every_gradient(problem);
}

TEST(AttentionRef, GradientsOfPackedSequences) {
  ReferenceCase problem(RF_ROPE_PAIRS);
  problem.pack();
  expect_every_gradient(problem);
}

TEST(AttentionRef, APackedSequenceIsACallOfItsOwn) {
  ReferenceCase problem(RF_ROPE_HALVES);
  problem.pack();
  problem.loss();
  const auto* out = static_cast<const double*>(problem.args.out);
  const Values packed(out, out + problem.args.out_stride_b);
  for (int64_t i = 0; i < problem.args.sequences; ++i) {
    const rf_attention_args alone = sequence_alone(problem.args, i, nullptr);
    std::fill_n(static_cast<double*>(alone.out), alone.queries * alone.out_stride_t, 77.0);
    ASSERT_EQ(rf_attention_forward(&alone), RF_OK) << rf_last_error();
  }
  EXPECT_TRUE(std::equal(packed.begin(), packed.end(), out));
}

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

// Distances are query minus key: with b = ln 3 at distance 1 and 0 elsewhere, query 1 prefers key 0.
TEST(AttentionRef, BiasByHand) {
  const double q[4] = {}, k[4] = {}, v[] = {8, 16, -8, 0}, rows[] = {0, 0, std::log(3.0)};
  double out[4];
  rf_attention_args args = two_by_two(q, k, v, out);
  args.bias = {rows, -1, 1, 1, 1};
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  const double expected[] = {0, 8, 4, 12};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], kHandAttention) << i;
}

// A number by key: ln 3 on key 1 makes it three times as heavy for both queries.
TEST(AttentionRef, KeyScoreByHand) {
  const double q[4] = {}, k[4] = {}, v[] = {8, 16, -8, 0}, kappa[] = {0, std::log(3.0)};
  double out[4];
  rf_attention_args args = two_by_two(q, k, v, out);
  args.key_score = {kappa, 1, 1, 0, 0, 0};
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], i % 2 == 0 ? -4 : 4, kHandAttention) << i;
}

// A number by pair: ln 3 for query 0 and key 1, ln 7 for query 1 and key 0.
TEST(AttentionRef, PairBiasByHand) {
  const double q[4] = {}, k[4] = {}, v[] = {8, 16, -8, 0}, pairs[] = {0, std::log(3.0), std::log(7.0), 0};
  double out[4];
  rf_attention_args args = two_by_two(q, k, v, out);
  args.pair_bias = {pairs, 1, 1, 0, 0, 2};
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  const double expected[] = {-4, 4, 6, 14};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], kHandAttention) << i;
}

// Quarter turns, counter-clockwise by position: R q = q at 0, (x, y) -> (-y, x) at 1. Only equal positions score.
TEST(AttentionRef, RotationByHand) {
  const double root = std::sqrt(2.0);
  const double q[] = {root * std::log(3.0), 0, root * std::log(3.0), 0}, k[] = {1, 0, 1, 0}, v[] = {8, 16, -8, 0};
  const double cos[] = {1, 0}, sin[] = {0, 1};
  double out[4];
  rf_attention_args args = two_by_two(q, k, v, out);
  args.layout = RF_ROPE_PAIRS;
  args.query = args.key = {cos, sin, 1, 1};
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  const double expected[] = {4, 12, -4, 4};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], kHandAttention) << i;
  args.value = args.key;  // the second value becomes (0, -8)
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  const double turned[] = {6, 10, 2, -2};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], turned[i], kHandAttention) << i;
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

TEST(AttentionRef, AMaskedQueryHasOutputAndGradientZero) {
  ReferenceCase problem(RF_ROPE_PAIRS);
  problem.loss();
  const auto* out = static_cast<const double*>(problem.args.out);
  Values dq(static_cast<size_t>(problem.args.batch * problem.args.q_stride_b));
  rf_attention_grads grads{};
  grads.struct_size = sizeof grads;
  grads.out = out;
  grads.out_stride_b = problem.args.out_stride_b, grads.out_stride_t = problem.args.out_stride_t;
  grads.out_stride_h = problem.args.out_stride_h, grads.q = dq.data();
  ASSERT_EQ(rf_attention_backward(&problem.args, &grads), RF_OK) << rf_last_error();
  const int64_t dead = problem.args.out_stride_b + problem.args.out_stride_t;  // entry 1, query 1
  for (int64_t i = dead; i < dead + problem.args.out_stride_t; ++i) {
    EXPECT_EQ(out[i], 0);
    EXPECT_EQ(dq[static_cast<size_t>(i)], 0);
  }
}

}  // namespace
}  // namespace rf::tests
