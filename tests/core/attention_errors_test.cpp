// Every rule of attention over terms, broken once: the status, and the text "[attention] rule, got value".
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "rf/attention.h"

namespace rf::tests {
namespace {

// Arrays with all terms set: every one of them, three rotations of part of the head, tables that are shorter than the
// distances on either side, a mask, a window and a query without a key.
struct ReferenceCase {
  static constexpr int64_t kBatch = 2, kQueries = 3, kKeys = 4, kHeads = 4, kKeyHeads = 2, kDim = 6, kPairs = 2;
  static constexpr int64_t kPositions = 7;

  ReferenceCase() {
    args.struct_size = sizeof args;
    args.dtype = RF_F64;
    args.layout = RF_ROPE_PAIRS;
    args.batch = kBatch, args.queries = kQueries, args.keys = kKeys, args.heads = kHeads, args.key_heads = kKeyHeads;
    args.head_dim = kDim, args.value_dim = kDim;
    set_data();
    args.query_rotation_heads = kHeads, args.key_rotation_heads = args.value_rotation_heads = kKeyHeads;
    args.query = rotation(kBatch, kQueries * kHeads);
    args.key = rotation(kBatch, kKeys * kKeyHeads);
    args.value = rotation(kBatch, kKeys * kKeyHeads);
    args.content_bias = draw(kHeads * kDim), args.position_bias = draw(kHeads * kDim);
    args.key_table = table(-1, 2, kHeads, kDim);
    args.query_table = table(0, 1, kHeads, kDim);
    args.value_table = table(-2, 0, kHeads, kDim);
    args.bias = table(-3, 3, kHeads, 1);
    args.gate = table(-1, 1, kHeads, kDim);
    args.position_query = draw(kHeads * kPositions * kDim), args.position_key = draw(kHeads * kPositions * kDim);
    args.positions = kPositions;
    args.reset_row = draw(kHeads), args.reset_col = draw(kHeads);
    args.key_score = scores(kBatch, kHeads, 1);
    args.pair_bias = scores(kBatch, kHeads, kQueries);
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

  double* draw(int64_t count) {
    std::normal_distribution<double> normal;
    std::vector<double>& values = arrays.emplace_back(static_cast<size_t>(count));
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

  rf_attention_args args{};
  std::mt19937_64 generator{20241};
  std::vector<std::vector<double>> arrays = [] {
    std::vector<std::vector<double>> reserved;
    reserved.reserve(64);
    return reserved;
  }();
  uint8_t mask[kBatch * kQueries * kKeys];
  int64_t query_positions[kBatch * kQueries] = {0, 2, 5, 3, 1, 0};
  int64_t key_positions[kKeys] = {0, 4, 1, 6};
};

class AttentionErrors : public testing::Test {
 protected:
  // Changes one thing of a good call.
  void expect_refused(const std::function<void(rf_attention_args&)>& change, const std::string& rule,
                      const std::string& got) {
    ReferenceCase problem;
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
    ReferenceCase problem;
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
  ReferenceCase problem;
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
  ReferenceCase problem;
  rf_attention_grads grads{};
  EXPECT_EQ(rf_attention_backward(&problem.args, nullptr), RF_INVALID_ARGUMENT);
  EXPECT_EQ(rf_attention_backward(&problem.args, &grads), RF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rf_last_error()).find("struct_size of grads"), std::string::npos) << rf_last_error();
  grads.struct_size = sizeof grads;
  EXPECT_EQ(rf_attention_backward(&problem.args, &grads), RF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rf_last_error()).find("grads.out must not be NULL"), std::string::npos) << rf_last_error();
  std::vector<double> gradient(ReferenceCase::kHeads * ReferenceCase::kDim);
  grads.out = problem.args.out;
  grads.content_bias = gradient.data();
  problem.args.content_bias = nullptr;
  EXPECT_EQ(rf_attention_backward(&problem.args, &grads), RF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rf_last_error()).find("the gradient of content_bias must be NULL"), std::string::npos)
      << rf_last_error();
}

}  // namespace
}  // namespace rf::tests
