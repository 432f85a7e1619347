// Shared by the fused attention kernels, forward and backward: the call, its terms and widths of rows in work space.
// Nothing here depends on the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/tile.h"
#include "common/arena.h"
#include "common/element.h"
#include "rf/attention.h"

namespace rf::core {

struct AttentionProblem {
  explicit AttentionProblem(const rf_attention_args& x);
  // The same terms in a part of the call: `part` of `whole`, which outlives it.
  AttentionProblem(const AttentionProblem& whole, const rf_attention_args& part, int64_t first_element);
  AttentionProblem(const AttentionProblem&) = delete;
  AttentionProblem& operator=(const AttentionProblem&) = delete;

  const rf_attention_args& args;
  int64_t width;                      // floats of a row of q or k
  int64_t inner;                      // of a row of [q, a] or [k, c], whose product is a score's: width, or twice that
  int64_t value_width;                // of a row of v
  int64_t group;                      // query heads that share a key head
  std::vector<float> padded_rows[4];  // of K, Q, V and G, if the caller's are not whole vectors
  TermTable key_table, query_table, value_table, bias, gate;
  // Q with a row for each element and a column for each distance, kRowFloats columns of zeros behind the last.
  const float* query_columns = nullptr;
  int64_t query_column_stride = 0;
  std::vector<float> query_column_rows;
  int64_t rotation_heads[3];      // of queries, keys and values; 1: shared
  int64_t all_queries, all_keys;  // of the whole call: strides of [.., T] and [.., S]
  int64_t first_element = 0;      // first index of the elements that dropout numbers
  bool amx;                       // whether products of bfloat16 may use its tiles

  bool is_gated() const { return gate.rows != nullptr; }
  bool is_gated_by_vectors() const { return is_gated() && gate.stride > 1; }
  bool has_tables() const {
    return key_table.rows != nullptr || query_table.rows != nullptr || value_table.rows != nullptr;
  }
};

// Bytes of an element of k or v.
inline int64_t cache_element_bytes(const rf_attention_args& x) {
  return x.cache_type == RF_CACHE_INT8 ? 1 : element_bytes(x.cache_type == RF_CACHE_BF16 ? RF_BF16 : x.dtype);
}

// Keys at the start of an entry that the window does not exclude.
inline int64_t prefix_of(const rf_attention_args& x, int64_t b) { return x.prefix == nullptr ? 0 : x.prefix[b]; }

// Whether the window has a limit on that side: RF_WINDOW_LEFT or RF_WINDOW_RIGHT.
inline bool is_limited(const rf_attention_args& x, uint32_t side) { return (x.window & side) != 0; }

// Whether the mask is the same for every query and every head, as a mask of padding is.
inline bool is_padding_mask(const rf_attention_args& x) {
  return x.mask != nullptr && x.mask_stride_h == 0 && x.mask_stride_t == 0;
}
inline bool is_padding(const rf_attention_args& x, int64_t b, int64_t key) {
  return x.mask[b * x.mask_stride_b + key * x.mask_stride_s] == 0;
}

}  // namespace rf::core
