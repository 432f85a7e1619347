// Rules of attention over terms, each broken once: the status, and the text "[attention] rule, got value". Those that
// Python reaches too are in tests/nn/test_attention_errors.py.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "attention_case.h"

namespace rf::tests {
namespace {

// A call with all terms, a mask and a window.
struct EveryTerm : AttentionCase {
  EveryTerm() : AttentionCase(shape(), 1), args(tiles()) {
    args.gate = {args.key_table.rows, -1, 1, 4, 6};
    args.positions = 7;
    args.key_position_stride_b = 0;
  }
  static AttentionShape shape() {
    AttentionShape s;
    s.batch = 2, s.queries = 3, s.keys = 4, s.heads = 4, s.key_heads = 2, s.head_dim = s.value_dim = 6;
    s.query = s.key = s.value = s.rotation_of_heads = s.content_bias = s.position_bias = s.position_query = true;
    s.key_table = s.query_table = s.value_table = s.bias = s.reset_row = s.reset_col = s.key_score = s.pair_bias = true;
    s.lo = -1, s.hi = 2, s.window_left = 2, s.window_right = 1, s.mask = AttentionShape::Mask::kFull;
    return s;
  }
  rf_attention_args& args;
};

// Changes one thing of a good call.
void refused(const std::function<void(rf_attention_args&)>& change, const std::string& rule, const std::string& got) {
  EveryTerm problem;
  change(problem.args);
  expect_refused(rf_attention_forward(&problem.args), rule, got, "[attention] ");
}

TEST(AttentionErrors, WhatOneSideAloneComputes) {
  refused([](auto& x) { x.dtype = static_cast<rf_dtype>(0); }, "dtype must be RF_F32", "0");
  refused([](auto& x) { x.dropout = -0.5; }, "dropout must be in [0, 1 - 2^-17)", "-0.5");
  EveryTerm problem;
  problem.args.dtype = RF_F64, problem.args.dropout = 0.1;
  EXPECT_EQ(rf_attention_forward(&problem.args), RF_NOT_IMPLEMENTED);
  EXPECT_STREQ(rf_last_error(), "[attention] dropout must be 0 with dtype RF_F64");
}

TEST(AttentionErrors, ArgumentsAndExtents) {
  refused([](auto& x) { x.batch = -1; }, "batch must be >= 0", "-1");
  refused([](auto& x) { x.queries = -2; }, "queries must be >= 0", "-2");
  refused([](auto& x) { x.keys = -3; }, "keys must be >= 0", "-3");
  refused([](auto& x) { x.heads = -4; }, "heads must be >= 0", "-4");
  refused([](auto& x) { x.key_heads = 0; }, "key_heads must be >= 1", "0");
  refused([](auto& x) { x.value_dim = 4; }, "value_dim must be head_dim = 6", "4");
  refused([](auto& x) { x.batch = INT64_MAX; }, "the size of q in bytes must fit in int64", "9223372036854775807");
  for (const void* rf_attention_args::*pointer :
       {&rf_attention_args::q, &rf_attention_args::k, &rf_attention_args::v}) {
    refused([=](auto& x) { x.*pointer = nullptr; }, "must not be NULL", "NULL");
  }
  refused([](auto& x) { x.out = nullptr; }, "out must not be NULL", "NULL");
  refused([](auto& x) { x.window_left = -2; }, "window_left must be >= 0", "-2");
  refused([](auto& x) { x.window_right = -2; }, "window_right must be >= 0", "-2");
  static const int64_t prefix[] = {1, -3, 0, 0};
  refused([](auto& x) { x.prefix = prefix, x.window = RF_WINDOW_RIGHT, x.window_left = 0; }, "prefix must be >= 0",
          "-3 at 1");
  refused([](auto& x) { x.prefix = prefix, x.window = 0, x.window_left = x.window_right = 0; },
          "prefix needs a window that is limited on the right side alone", "no window");
  refused([](auto& x) { x.prefix = prefix; }, "prefix needs a window", "a limit on the left");
  refused([](auto& x) { x.score_cap = -1; }, "score_cap must be finite and >= 0", "-1");
  refused([](auto& x) { x.cache_type = static_cast<rf_cache_type>(3); }, "cache_type must be in 0..2", "3");
  refused([](auto& x) { x.window = 4; }, "window must be 0, RF_WINDOW_LEFT", "4");
  refused([](auto& x) { x.window = RF_WINDOW_RIGHT; }, "window_left must be 0 unless window limits that side", "2");
  refused([](auto& x) { x.window = RF_WINDOW_LEFT; }, "window_right must be 0 unless window limits that side", "1");
}

TEST(AttentionErrors, StridesAndAlignment) {
  static constexpr int64_t kFar = int64_t{1} << 61;
  const std::string far = "a stride of " + std::to_string(kFar);
  refused([](auto& x) { x.q_stride_t = kFar; }, "extents times strides of q", far);
  refused([](auto& x) { x.k_stride_b = -kFar; }, "strides of k", "a stride of " + std::to_string(-kFar));
  refused([](auto& x) { x.v_stride_h = INT64_MIN; }, "strides of v", "a stride of -9223372036854775808");
  refused([](auto& x) { x.out_stride_t = kFar; }, "strides of out", far);
  refused([](auto& x) { x.mask_stride_s = kFar; }, "strides of mask", far);
  const auto shifted = [](const void* data) { return static_cast<const void*>(static_cast<const char*>(data) + 1); };
  refused([&](auto& x) { x.k = shifted(x.k); }, "k must be aligned to its element of 4", "0x");
  refused([&](auto& x) { x.content_bias = shifted(x.content_bias); },
          "content_bias must be aligned to its element of 4", "0x");
  refused([&](auto& x) { x.bias.rows = shifted(x.bias.rows); }, "bias must be aligned", "0x");
  refused([&](auto& x) { x.query.cos = shifted(x.query.cos); }, "query must be aligned", "0x");
}

TEST(AttentionErrors, Positions) {
  static const int64_t far[] = {0, 1, (int64_t{1} << 53) + 1, 0}, beyond[] = {0, 7, 0, 0}, negative[] = {0, 0, -1, 0};
  refused([](auto& x) { x.key_positions = far; }, "key_positions must be within 2^53", "9007199254740993");
  refused([](auto& x) { x.key_positions = beyond; }, "key_positions must be in 0..6", "7");
  refused([](auto& x) { x.key_positions = negative; }, "key_positions must be in 0..6", "-1");
  refused([](auto& x) { x.query_positions = nullptr; }, "query_positions must not be NULL", "NULL");
  refused([](auto& x) { x.key_positions = nullptr; }, "key_positions must not be NULL", "NULL");
  refused([](auto& x) { x.key_position_stride_b = -1; }, "key_positions_stride_b must be >= 0", "-1");
}

TEST(AttentionErrors, Terms) {
  refused([](auto& x) { x.layout = static_cast<rf_rope_layout>(0); }, "layout must be RF_ROPE_PAIRS", "0");
  refused([](auto& x) { x.query.sin = nullptr; }, "query must have both cos and sin", "cos alone");
  refused([](auto& x) { x.key_rotation_heads = 4; }, "key_rotation_heads must be 0, 1 or 2", "4");
  refused([](auto& x) { x.query_rotation_heads = -1; }, "query_rotation_heads must be 0, 1 or 4", "-1");
  refused([](auto& x) { x.key_table.lo = 3; }, "key_table.lo must be <= hi = 2", "3");
  refused([](auto& x) { x.query_table.lo = INT64_MIN; }, "query_table.lo and hi must be within 2^53", "-9223");
  refused([](auto& x) { x.bias.width = 6; }, "bias.width must be 1", "6");
  refused([](auto& x) { x.positions = 0; }, "positions must be >= 1", "0");
  refused([](auto& x) { x.pair_bias.stride_t = INT64_MIN; }, "strides of pair_bias",
          "a stride of -9223372036854775808");
  refused([](auto& x) { x.key_score.stride_t = 1; }, "key_score.stride_t must be 0", "1");
  refused([](auto& x) { x.key_score.stride_b = INT64_MIN; }, "strides of key_score",
          "a stride of -9223372036854775808");
}

TEST(AttentionErrors, PackedSequences) {
  static const int64_t ends[] = {0, 2, 3}, key_ends[] = {0, 2, 4}, late[] = {1, 2, 3}, falling[] = {0, 5, 3};
  const auto expect = [&](const int64_t* q, const int64_t* k, int64_t sequences, const char* rule, const char* got) {
    const auto pack = [=](auto& x) {
      x.batch = x.query.batch = x.key.batch = x.value.batch = x.key_score.batch = x.pair_bias.batch = 1;
      x.cu_seqlens_q = q, x.cu_seqlens_k = k, x.sequences = sequences;
    };
    refused(pack, rule, got);
  };
  expect(ends, nullptr, 2, "cu_seqlens_q and cu_seqlens_k must be given together", "cu_seqlens_q alone");
  expect(nullptr, ends, 2, "cu_seqlens_q and cu_seqlens_k must be given together", "cu_seqlens_k alone");
  expect(ends, key_ends, -1, "sequences must be >= 0", "-1");
  expect(ends, key_ends, INT64_MAX, "the size of cu_seqlens_q in bytes must fit in int64", "9223372036854775807");
  expect(ends, late, 2, "cu_seqlens_k must begin with 0", "1");
  expect(ends, falling, 2, "cu_seqlens_k must not decrease", "3 after 5");
  expect(ends, ends, 2, "cu_seqlens_k must end with keys = 4", "3");
  const auto* shifted = reinterpret_cast<const int64_t*>(reinterpret_cast<const char*>(ends) + 4);
  expect(shifted, key_ends, 2, "cu_seqlens_q must be aligned to its element of 8", "0x");
  expect(ends, shifted, 2, "cu_seqlens_k must be aligned to its element of 8", "0x");
  refused([](auto& x) { x.cu_seqlens_q = ends, x.cu_seqlens_k = key_ends, x.sequences = 2; },
          "batch must be 1 with packed sequences", "2");
}

// Other implementations of the equation know what the kernels here do not, and have results of their own.
TEST(AttentionErrors, CheckForOthers) {
  EveryTerm problem;
  rf_attention_args& x = problem.args;
  x.dtype = RF_F64, x.dropout = 0.1, x.out = nullptr;
  x.value_dim = 4, x.value_table.width = 4;
  EXPECT_EQ(rf_attention_check(&x), RF_OK) << rf_last_error();
  EXPECT_EQ(rf_attention_forward(&x), RF_NOT_IMPLEMENTED);
  x.value_table.width = 6;
  EXPECT_EQ(rf_attention_check(&x), RF_INVALID_ARGUMENT);
  EXPECT_STREQ(rf_last_error(), "[attention] value_table.width must be 4, got 6");
}

TEST(AttentionErrors, Gradients) {
  EveryTerm problem;
  rf_attention_grads grads = problem.tile_grads();
  grads.out = nullptr;
  expect_refused(rf_attention_backward(&problem.args, &grads), "[attention] grads.out must not be NULL", "NULL");
  problem.args.content_bias = nullptr;
  expect_refused(rf_attention_backward(&problem.args, &problem.tile_grads()),
                 "[attention] the gradient of content_bias must be NULL");
}

}  // namespace
}  // namespace rf::tests
