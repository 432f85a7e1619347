// The float64 reference of attention over terms (core/ref/attention*.cpp): values by hand (spec R-ATT-02), every
// gradient by central differences of the forward (R-ATT-05), queries without keys, and the rules, each broken once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention/terms.h"
#include "attention_case.h"
#include "rf/attention.h"
#include "tolerances.h"

namespace rf::tests {
namespace {

using Values = std::vector<double>;

// Arrays with all terms set: every one of them, three rotations of part of the head, tables that are shorter than the
// distances on either side, a mask, a window and a query without a key.
struct ReferenceCase {
  static constexpr int64_t kBatch = 2, kQueries = 3, kKeys = 4, kHeads = 4, kKeyHeads = 2, kDim = 6, kPairs = 2;
  static constexpr int64_t kPositions = 7;

  explicit ReferenceCase(rf_rope_layout layout, int64_t table_heads = kHeads, int64_t rotation_batch = kBatch,
                         int64_t gate_width = kDim) {
    args.struct_size = sizeof args;
    args.dtype = RF_F64;
    args.layout = layout;
    args.batch = kBatch, args.queries = kQueries, args.keys = kKeys, args.heads = kHeads, args.key_heads = kKeyHeads;
    args.head_dim = kDim, args.value_dim = kDim;
    set_data();
    // Rows for each head where tables have them too.
    const bool of_heads = table_heads != 1;
    args.query_rotation_heads = of_heads ? kHeads : 0;
    args.key_rotation_heads = args.value_rotation_heads = of_heads ? kKeyHeads : 1;
    args.query = rotation(rotation_batch, kQueries * std::max<int64_t>(args.query_rotation_heads, 1));
    args.key = rotation(rotation_batch, kKeys * args.key_rotation_heads);
    args.value = rotation(rotation_batch, kKeys * args.value_rotation_heads);
    args.content_bias = draw(kHeads * kDim), args.position_bias = draw(kHeads * kDim);
    args.key_table = table(-1, 2, table_heads, kDim);
    args.query_table = table(0, 1, table_heads, kDim);
    args.value_table = table(-2, 0, table_heads, kDim);
    args.bias = table(-3, 3, table_heads, 1);
    args.gate = table(-1, 1, table_heads, gate_width);
    args.position_query = draw(kHeads * kPositions * kDim), args.position_key = draw(kHeads * kPositions * kDim);
    args.positions = kPositions;
    args.reset_row = draw(kHeads), args.reset_col = draw(kHeads);
    args.key_score = scores(rotation_batch, table_heads, 1);
    args.pair_bias = scores(rotation_batch, table_heads, kQueries);
    args.scale = 0.4;
    for (uint8_t& attend : mask) attend = 1;
    mask[1] = 0;                                                               // query 0 of the first entry
    for (int64_t n = 0; n < kKeys; ++n) mask[(kQueries + 1) * kKeys + n] = 0;  // query 1 of the second: no key
    args.mask = mask;
    args.mask_stride_b = kQueries * kKeys, args.mask_stride_t = kKeys, args.mask_stride_s = 1;
    args.window = RF_WINDOW_LEFT | RF_WINDOW_RIGHT, args.window_left = 2, args.window_right = 1;
  }

  void set_data() {
    args.q = draw(kBatch * kQueries * kHeads * kDim);
    args.q_stride_b = kQueries * kHeads * kDim, args.q_stride_t = kHeads * kDim, args.q_stride_h = kDim;
    args.k = draw(kBatch * kKeys * kKeyHeads * kDim);
    args.k_stride_b = kKeys * kKeyHeads * kDim, args.k_stride_t = kKeyHeads * kDim, args.k_stride_h = kDim;
    args.v = draw(kBatch * kKeys * kKeyHeads * kDim);
    args.v_stride_b = args.k_stride_b, args.v_stride_t = args.k_stride_t, args.v_stride_h = args.k_stride_h;
    args.out = draw(kBatch * kQueries * kHeads * kDim);
    args.out_stride_b = args.q_stride_b, args.out_stride_t = args.q_stride_t, args.out_stride_h = args.q_stride_h;
    args.query_positions = query_positions, args.query_position_stride_b = kQueries;
    args.key_positions = key_positions;
  }

  // The tokens of both entries as one row of three sequences, the second of them without queries.
  void pack() {
    args.batch = 1, args.queries = kBatch * kQueries, args.keys = kBatch * kKeys;
    for (int64_t* stride : {&args.q_stride_b, &args.k_stride_b, &args.v_stride_b, &args.out_stride_b})
      *stride *= kBatch;
    args.query.batch = args.key.batch = args.value.batch = 1;
    args.query_position_stride_b = 0, args.key_positions = packed_key_positions;
    args.key_score = scores(1, kHeads, 1);
    args.pair_bias = scores(1, kHeads, args.queries);
    for (uint8_t& attend : packed_mask) attend = generator() % 5 != 0;
    args.mask = packed_mask, args.mask_stride_t = kBatch * kKeys;
    args.cu_seqlens_q = query_ends, args.cu_seqlens_k = key_ends, args.sequences = 3;
  }

  double* draw(int64_t count) {
    std::normal_distribution<double> normal;
    Values& values = arrays.emplace_back(static_cast<size_t>(count));
    for (double& value : values) value = normal(generator);
    return values.data();
  }
  rf_attention_rotation rotation(int64_t batch, int64_t tokens) {
    return {draw(batch * tokens * kPairs), draw(batch * tokens * kPairs), batch, kPairs};
  }
  rf_attention_table table(int64_t lo, int64_t hi, int64_t heads, int64_t width) {
    return {draw(heads * (hi - lo + 1) * width), lo, hi, heads, width};
  }

  rf_attention_scores scores(int64_t batch, int64_t heads, int64_t rows) {
    return {draw(batch * heads * rows * args.keys),
            batch,
            heads,
            heads * rows * args.keys,
            rows * args.keys,
            rows == 1 ? 0 : args.keys};
  }

  // The scalar whose gradients are taken: sum of weights * out.
  double loss() {
    EXPECT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
    const auto* out = static_cast<const double*>(args.out);
    double sum = 0;
    for (int64_t i = 0; i < kBatch * kQueries * kHeads * kDim; ++i) sum += weight(i) * out[i];
    return sum;
  }
  static double weight(int64_t i) { return std::cos(3.0 * static_cast<double>(i)); }

  rf_attention_args args{};
  std::mt19937_64 generator{20241};
  std::vector<Values> arrays = [] {
    std::vector<Values> reserved;
    reserved.reserve(64);
    return reserved;
  }();
  uint8_t mask[kBatch * kQueries * kKeys];
  int64_t query_positions[kBatch * kQueries] = {0, 2, 5, 3, 1, 0};
  int64_t key_positions[kKeys] = {0, 4, 1, 6};
  uint8_t packed_mask[kBatch * kQueries * kBatch * kKeys];
  int64_t packed_key_positions[kBatch * kKeys] = {0, 4, 1, 6, 2, 3, 0, 5};
  int64_t query_ends[4] = {0, 4, 4, 6}, key_ends[4] = {0, 3, 4, 8};
};

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

class AttentionErrors : public testing::Test {
 protected:
  // Changes one thing of a good call.
  void expect_refused(const std::function<void(rf_attention_args&)>& change, const std::string& rule,
                      const std::string& got) {
    ReferenceCase problem(RF_ROPE_PAIRS);
    change(problem.args);
    EXPECT_EQ(rf_attention_forward(&problem.args), RF_INVALID_ARGUMENT) << rule;
    const std::string text = rf_last_error();
    EXPECT_EQ(text.find("[attention] "), 0u) << text;
    EXPECT_NE(text.find(rule), std::string::npos) << text;
    EXPECT_NE(text.find("got " + got), std::string::npos) << text;
  }
};

TEST_F(AttentionErrors, WhatOneSideAloneComputes) {
  expect_refused([](rf_attention_args& x) { x.dtype = static_cast<rf_dtype>(0); }, "dtype must be RF_F32", "0");
  expect_refused([](rf_attention_args& x) { x.dropout = -0.5; }, "dropout must be in [0, 1 - 2^-17)", "-0.5");
  const auto expect_not_implemented = [](auto change, const char* text) {
    ReferenceCase problem(RF_ROPE_PAIRS);
    change(problem.args);
    EXPECT_EQ(rf_attention_forward(&problem.args), RF_NOT_IMPLEMENTED);
    EXPECT_STREQ(rf_last_error(), text);
  };
  expect_not_implemented([](rf_attention_args& x) { x.dropout = 0.1; },
                         "[attention] dropout must be 0 with dtype RF_F64");
}

TEST_F(AttentionErrors, ArgumentsAndExtents) {
  EXPECT_EQ(rf_attention_forward(nullptr), RF_INVALID_ARGUMENT);
  expect_refused([](rf_attention_args& x) { x.struct_size = 8; }, "struct_size of args must be in", "8");
  expect_refused([](rf_attention_args& x) { x.batch = -1; }, "batch must be >= 0", "-1");
  expect_refused([](rf_attention_args& x) { x.queries = -2; }, "queries must be >= 0", "-2");
  expect_refused([](rf_attention_args& x) { x.keys = -3; }, "keys must be >= 0", "-3");
  expect_refused([](rf_attention_args& x) { x.heads = -4; }, "heads must be >= 0", "-4");
  expect_refused([](rf_attention_args& x) { x.key_heads = 0; }, "key_heads must be >= 1", "0");
  expect_refused([](rf_attention_args& x) { x.key_heads = 3; }, "heads must be a multiple of key_heads = 3", "4");
  expect_refused([](rf_attention_args& x) { x.head_dim = 0; }, "head_dim must be >= 1", "0");
  expect_refused([](rf_attention_args& x) { x.value_dim = 4; }, "value_dim must be head_dim = 6", "4");
  expect_refused([](rf_attention_args& x) { x.batch = INT64_MAX; }, "the size of q in bytes must fit in int64",
                 "9223372036854775807");
  for (const void* rf_attention_args::*pointer :
       {&rf_attention_args::q, &rf_attention_args::k, &rf_attention_args::v}) {
    expect_refused([=](rf_attention_args& x) { x.*pointer = nullptr; }, "must not be NULL", "NULL");
  }
  expect_refused([](rf_attention_args& x) { x.out = nullptr; }, "out must not be NULL", "NULL");
  expect_refused([](rf_attention_args& x) { x.scale = std::numeric_limits<double>::infinity(); },
                 "scale must be finite", "inf");
  expect_refused([](rf_attention_args& x) { x.window_left = -2; }, "window_left must be >= 0", "-2");
  expect_refused([](rf_attention_args& x) { x.window_right = -2; }, "window_right must be >= 0", "-2");
  static const int64_t prefix[] = {1, -3, 0, 0};
  expect_refused([](rf_attention_args& x) { x.prefix = prefix, x.window = RF_WINDOW_RIGHT, x.window_left = 0; },
                 "prefix must be >= 0", "-3 at 1");
  expect_refused([](rf_attention_args& x) { x.prefix = prefix, x.window = 0, x.window_left = x.window_right = 0; },
                 "prefix needs a window that is limited on the right side alone", "no window");
  expect_refused([](rf_attention_args& x) { x.prefix = prefix; }, "prefix needs a window", "a limit on the left");
  expect_refused([](rf_attention_args& x) { x.window = 4; }, "window must be 0, RF_WINDOW_LEFT", "4");
  expect_refused([](rf_attention_args& x) { x.window = RF_WINDOW_RIGHT; },
                 "window_left must be 0 unless window limits that side", "2");
  expect_refused([](rf_attention_args& x) { x.window = RF_WINDOW_LEFT; },
                 "window_right must be 0 unless window limits that side", "1");
}

TEST_F(AttentionErrors, StridesAndAlignment) {
  constexpr int64_t kFar = int64_t{1} << 61;
  expect_refused([](rf_attention_args& x) { x.q_stride_t = kFar; }, "extents times strides of q",
                 "a stride of " + std::to_string(kFar));
  expect_refused([](rf_attention_args& x) { x.k_stride_b = -kFar; }, "strides of k",
                 "a stride of " + std::to_string(-kFar));
  expect_refused([](rf_attention_args& x) { x.v_stride_h = INT64_MIN; }, "strides of v",
                 "a stride of " + std::to_string(INT64_MIN));
  expect_refused([](rf_attention_args& x) { x.out_stride_t = kFar; }, "strides of out",
                 "a stride of " + std::to_string(kFar));
  expect_refused([](rf_attention_args& x) { x.mask_stride_s = kFar; }, "strides of mask",
                 "a stride of " + std::to_string(kFar));
  const auto shifted = [](const void* data) { return static_cast<const void*>(static_cast<const char*>(data) + 1); };
  expect_refused([&](rf_attention_args& x) { x.k = shifted(x.k); }, "k must be aligned to its element of 8", "0x");
  expect_refused([&](rf_attention_args& x) { x.content_bias = shifted(x.content_bias); },
                 "content_bias must be aligned to its element of 8", "0x");
  expect_refused([&](rf_attention_args& x) { x.bias.rows = shifted(x.bias.rows); }, "bias must be aligned", "0x");
  expect_refused([&](rf_attention_args& x) { x.query.cos = shifted(x.query.cos); }, "query must be aligned", "0x");
}

TEST_F(AttentionErrors, Positions) {
  static const int64_t far[] = {0, 1, (int64_t{1} << 53) + 1, 0}, beyond[] = {0, 7, 0, 0}, negative[] = {0, 0, -1, 0};
  expect_refused([](rf_attention_args& x) { x.query_positions = nullptr; }, "query_positions must not be NULL", "NULL");
  expect_refused([](rf_attention_args& x) { x.key_positions = nullptr; }, "key_positions must not be NULL", "NULL");
  expect_refused([](rf_attention_args& x) { x.key_position_stride_b = -1; }, "key_positions_stride_b must be >= 0",
                 "-1");
  expect_refused([](rf_attention_args& x) { x.key_positions = far; }, "key_positions must be within 2^53",
                 "9007199254740993");
  expect_refused([](rf_attention_args& x) { x.key_positions = beyond; }, "key_positions must be in 0..6", "7");
  expect_refused([](rf_attention_args& x) { x.key_positions = negative; }, "key_positions must be in 0..6", "-1");
}

TEST_F(AttentionErrors, Terms) {
  expect_refused([](rf_attention_args& x) { x.layout = static_cast<rf_rope_layout>(0); },
                 "layout must be RF_ROPE_PAIRS", "0");
  expect_refused([](rf_attention_args& x) { x.query.sin = nullptr; }, "query must have both cos and sin", "cos alone");
  expect_refused([](rf_attention_args& x) { x.key.batch = 3; }, "key.batch must be 1 or batch = 2", "3");
  expect_refused([](rf_attention_args& x) { x.value.pairs = 4; }, "value.pairs must be in 1..3", "4");
  expect_refused([](rf_attention_args& x) { x.key_rotation_heads = 4; }, "key_rotation_heads must be 0, 1 or 2", "4");
  expect_refused([](rf_attention_args& x) { x.query_rotation_heads = -1; }, "query_rotation_heads must be 0, 1 or 4",
                 "-1");
  expect_refused([](rf_attention_args& x) { x.key_table.lo = 3; }, "key_table.lo must be <= hi = 2", "3");
  expect_refused([](rf_attention_args& x) { x.query_table.lo = INT64_MIN; },
                 "query_table.lo and hi must be within 2^53", "-9223");
  expect_refused([](rf_attention_args& x) { x.value_table.heads = 2; }, "value_table.heads must be 1 or heads = 4",
                 "2");
  expect_refused([](rf_attention_args& x) { x.bias.width = 6; }, "bias.width must be 1", "6");
  expect_refused([](rf_attention_args& x) { x.gate.width = 3; }, "gate.width must be 6", "3");
  expect_refused([](rf_attention_args& x) { x.position_key = nullptr; },
                 "position_query and position_key must be given together", "position_query alone");
  expect_refused([](rf_attention_args& x) { x.positions = 0; }, "positions must be >= 1", "0");
  expect_refused([](rf_attention_args& x) { x.key_score.batch = 3; }, "key_score.batch must be 1 or batch = 2", "3");
  expect_refused([](rf_attention_args& x) { x.key_score.heads = 2; }, "key_score.heads must be 1 or heads = 4", "2");
  expect_refused([](rf_attention_args& x) { x.pair_bias.batch = 0; }, "pair_bias.batch must be 1 or batch = 2", "0");
  expect_refused([](rf_attention_args& x) { x.pair_bias.heads = 3; }, "pair_bias.heads must be 1 or heads = 4", "3");
  expect_refused([](rf_attention_args& x) { x.pair_bias.stride_t = INT64_MIN; }, "strides of pair_bias",
                 "a stride of " + std::to_string(INT64_MIN));
  expect_refused([](rf_attention_args& x) { x.key_score.stride_t = 1; }, "key_score.stride_t must be 0", "1");
  expect_refused([](rf_attention_args& x) { x.key_score.stride_b = INT64_MIN; }, "strides of key_score",
                 "a stride of " + std::to_string(INT64_MIN));
}

TEST_F(AttentionErrors, PackedSequences) {
  static const int64_t ends[] = {0, 2, 3}, key_ends[] = {0, 2, 4}, late[] = {1, 2, 3}, falling[] = {0, 5, 3};
  const auto expect = [&](const int64_t* q, const int64_t* k, int64_t sequences, const char* rule, const char* got) {
    const auto pack = [=](rf_attention_args& x) {
      x.batch = x.query.batch = x.key.batch = x.value.batch = x.key_score.batch = x.pair_bias.batch = 1;
      x.cu_seqlens_q = q, x.cu_seqlens_k = k, x.sequences = sequences;
    };
    expect_refused(pack, rule, got);
  };
  expect(ends, nullptr, 2, "cu_seqlens_q and cu_seqlens_k must be given together", "cu_seqlens_q alone");
  expect(nullptr, ends, 2, "cu_seqlens_q and cu_seqlens_k must be given together", "cu_seqlens_k alone");
  expect(ends, key_ends, -1, "sequences must be >= 0", "-1");
  expect(ends, key_ends, INT64_MAX, "the size of cu_seqlens_q in bytes must fit in int64", "9223372036854775807");
  expect(late, key_ends, 2, "cu_seqlens_q must begin with 0", "1");
  expect(ends, late, 2, "cu_seqlens_k must begin with 0", "1");
  expect(falling, key_ends, 2, "cu_seqlens_q must not decrease", "3 after 5");
  expect(ends, falling, 2, "cu_seqlens_k must not decrease", "3 after 5");
  expect(ends, key_ends, 1, "cu_seqlens_q must end with queries = 3", "2");
  expect(ends, ends, 2, "cu_seqlens_k must end with keys = 4", "3");
  const auto* shifted = reinterpret_cast<const int64_t*>(reinterpret_cast<const char*>(ends) + 4);
  expect(shifted, key_ends, 2, "cu_seqlens_q must be aligned to its element of 8", "0x");
  expect(ends, shifted, 2, "cu_seqlens_k must be aligned to its element of 8", "0x");
  expect_refused([](rf_attention_args& x) { x.cu_seqlens_q = ends, x.cu_seqlens_k = key_ends, x.sequences = 2; },
                 "batch must be 1 with packed sequences", "2");
}

// Other implementations of the equation know what the kernels here do not, and have results of their own.
TEST_F(AttentionErrors, CheckForOthers) {
  ReferenceCase problem(RF_ROPE_PAIRS);
  rf_attention_args& x = problem.args;
  x.dropout = 0.1, x.out = nullptr;
  x.value_dim = 4, x.value_table.width = 4;
  EXPECT_EQ(rf_attention_check(&x), RF_OK) << rf_last_error();
  EXPECT_EQ(rf_attention_forward(&x), RF_NOT_IMPLEMENTED);
  x.value_table.width = 6;
  EXPECT_EQ(rf_attention_check(&x), RF_INVALID_ARGUMENT);
  EXPECT_STREQ(rf_last_error(), "[attention] value_table.width must be 4, got 6");
}

TEST_F(AttentionErrors, Gradients) {
  ReferenceCase problem(RF_ROPE_PAIRS);
  rf_attention_grads grads{};
  EXPECT_EQ(rf_attention_backward(&problem.args, nullptr), RF_INVALID_ARGUMENT);
  EXPECT_EQ(rf_attention_backward(&problem.args, &grads), RF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rf_last_error()).find("struct_size of grads"), std::string::npos) << rf_last_error();
  grads.struct_size = sizeof grads;
  EXPECT_EQ(rf_attention_backward(&problem.args, &grads), RF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rf_last_error()).find("grads.out must not be NULL"), std::string::npos) << rf_last_error();
  Values gradient(ReferenceCase::kHeads * ReferenceCase::kDim);
  grads.out = problem.args.out;
  grads.content_bias = gradient.data();
  problem.args.content_bias = nullptr;
  EXPECT_EQ(rf_attention_backward(&problem.args, &grads), RF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rf_last_error()).find("the gradient of content_bias must be NULL"), std::string::npos)
      << rf_last_error();
}

}  // namespace
}  // namespace rf::tests
