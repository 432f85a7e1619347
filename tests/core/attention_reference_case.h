// A float64 call of attention with every term set, for the reference's tests (core/ref/attention*.cpp).
#ifndef RF_TESTS_CORE_ATTENTION_REFERENCE_CASE_H_
#define RF_TESTS_CORE_ATTENTION_REFERENCE_CASE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "rf/attention.h"

namespace rf::tests {

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
  std::vector<std::vector<double>> arrays = [] {
    std::vector<std::vector<double>> reserved;
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

}  // namespace rf::tests

#endif  // RF_TESTS_CORE_ATTENTION_REFERENCE_CASE_H_
