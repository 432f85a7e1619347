// The reference of all kernels: plain loops on one thread with float64 sums (core/ref), written from the equations in
// the C headers. Tests compare the kernels with them, and RF_KERNEL=ref runs them. The arguments must have passed the
// operator's checks.
#pragma once

#include "rf/attention.h"
#include "rf/dropout.h"
#include "rf/linear.h"
#include "rf/linear_attention.h"
#include "rf/listed_attention.h"
#include "rf/rope.h"
#include "rf/rows.h"

namespace rf::core {

struct BlockWeight;
struct Int8Weight;

// The element type of weight and its gradient.
inline rf_dtype weight_type(const rf_linear_args& args) {
  return args.weight_dtype == rf_dtype{} ? args.dtype : args.weight_dtype;
}

// The element type of residual, y and their gradients.
inline rf_dtype stream_type(const rf_norm_args& x) { return x.stream_dtype == rf_dtype{} ? x.dtype : x.stream_dtype; }

}  // namespace rf::core

namespace rf::ref {

// RoFormer Eq. 34 (R-CONV-05..07, R-ROPE-06). theta: hi[i] + lo[i], [num_freqs]. An angle is computed for every pair of
// elements, without tables.
void rope(const double* hi, const double* lo, int64_t num_freqs, double scale, const rf_rope_args& args);
// The same with the caller's rows of cosines and sines.
void rotate(const rf_rope_rows_args& args);

// All scores of one query at a time, so memory beyond the results is O(T + S) for each head. No tiles, no online
// softmax, no shortcuts for terms that are absent. dtype is RF_F64.
void attention(const rf_attention_args& args);
void attention_backward(const rf_attention_args& args, const rf_attention_grads& grads);

// Over all pairs, one row of weights at a time: neither chunks nor kept sums over keys, except for a state that the
// caller requests.
void linear_attention(const rf_linear_attention_args& args);
void linear_attention_backward(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads);

void listed_attention(const rf_listed_attention_args& args);

// args.packed must be NULL.
void linear(const rf_linear_args& args);
// The definition of rf_linear_pack_int8: computes its bytes in float32, and everything after them in float64.
void linear_int8(const rf_linear_args& args, const core::Int8Weight& weight);
// By weights in blocks.
void linear_blocks(const rf_linear_args& args, const core::BlockWeight& weight);
void linear_backward(const rf_linear_args& args, const rf_linear_grads& grads);

void norm(const rf_norm_args& x);
void norm_backward(const rf_norm_args& x, const rf_norm_grads& grads);

void gelu(const rf_gelu_args& x);
void gelu_backward(const rf_gelu_args& x, const rf_gelu_grads& grads);

void softmax(const rf_softmax_args& x);
void softmax_backward(const rf_softmax_args& x, const rf_softmax_grads& grads);

void cross_entropy(const rf_cross_entropy_args& x);
void cross_entropy_backward(const rf_cross_entropy_args& x, const rf_cross_entropy_grads& grads);

// Whether dropout keeps an element. threshold = round(65536 p).
bool keeps(int64_t element, uint32_t threshold, uint64_t seed, uint64_t stream);
void dropout(rf_dtype dtype, const void* x, void* y, int64_t count, uint32_t threshold, uint64_t seed, uint64_t stream);

}  // namespace rf::ref
