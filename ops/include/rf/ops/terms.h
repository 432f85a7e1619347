// What attention knows of position. Every encoding of the literature is a choice of these terms in one formula; for
// head h, query m at position p_m and key n at position p_n (arXiv 2104.09864 Eq. 2-16 and the papers they name):
//
//   score(m,n) = s * [ ((R^q_m q_m + u) * G[r]) . (R^k_n k_n)  +  (q_m + w) . K[r]  +  k_n . Q[r] ]  +  pos(m,n)
//   pos(m,n)   = row[h] if row is set and p_m = 0,  else col[h] if col is set and p_n = 0,
//                else b[r] + s * a[p_m] . c[p_n]
//   out_m      = sum_n softmax_n(score(m,n)) * ( R^v_n v_n + V[r] )
//   r          = clamp(p_m - p_n, lo, hi) - lo                       each of K, Q, V, b and G has its own lo and hi
//
// A term that is not set is absent: R and G are 1, everything else 0. Attention never knows the name of an encoding.
// Letters: H query heads (also under grouped keys), D head size, R rotated dims, T queries, S keys, B batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace rf::ops {

// Rows of a rotation: pair i of a token's vectors is rotated counter-clockwise by the angle whose cosine and sine these
// are; a magnitude other than 1 (xPos, attention factors) is in both. float32, or float64 for float64 data.
struct Rotation {
  at::Tensor cos, sin;  // [B or 1, T or S, R/2]; both undefined: no rotation
  bool defined() const { return cos.defined(); }
};
// The dtype of rows and tables that are computed for queries and keys of a dtype.
inline at::ScalarType row_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Rows by distance, query minus key: rows[.., d - lo] belongs to distance d; nearer than lo and farther than hi take
// the first and the last row.
struct DistanceTable {
  at::Tensor rows;  // [H or 1, hi - lo + 1, D]; b: [H or 1, hi - lo + 1]; G: [H or 1, hi - lo + 1, D or 1]
  int64_t lo = 0, hi = 0;
  bool defined() const { return rows.defined(); }
};

struct Terms {
  Rotation query, key, value;           // R^q, R^k, R^v
  std::string layout = "pairs";         // of all three: "pairs" or "halves", as in rf/ops/ops.h
  at::Tensor content_bias_HD;           // u
  at::Tensor position_bias_HD;          // w
  DistanceTable key_table;              // K
  DistanceTable query_table;            // Q
  DistanceTable value_table;            // V
  DistanceTable bias;                   // b
  DistanceTable gate;                   // G
  at::Tensor position_query_HPD;        // a, [H, positions, D]: indexed by p, which must be in 0..positions-1
  at::Tensor position_key_HPD;          // c
  at::Tensor reset_row_H, reset_col_H;  // row, col
  std::optional<double> scale;          // s; absent: 1/sqrt(D)

  // p_m and p_n that the terms were made for, int64 [1 or B, T] and [1 or B, S]; undefined: they hold for any.
  at::Tensor query_positions, key_positions;
};

// Sequences of a batch of one, one after the other: sequence i is the queries cu_seqlens_q[i] .. cu_seqlens_q[i+1]-1
// and the keys cu_seqlens_k[i] .. cu_seqlens_k[i+1]-1. A query meets the keys of its own sequence only, whose T and S
// are those of the window; positions, rotations and masks are of tokens, as without packing.
struct PackedSequences {
  at::Tensor cu_seqlens_q, cu_seqlens_k;  // int32 or int64 [sequences+1], non-decreasing from 0 to the tokens of a side
  bool defined() const { return cu_seqlens_q.defined(); }
};

// Which keys a query may attend to, besides a mask: token indices, never positions. With T queries and S keys, query i
// and key j: -left <= j - (i + S - T) <= right, -1 meaning no limit (bottom-right aligned). Causal is right = 0.
struct TokenWindow {
  int64_t left = -1, right = -1;
};

}  // namespace rf::ops
