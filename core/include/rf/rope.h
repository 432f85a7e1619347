/* Rotary position embedding (RoFormer, arXiv 2104.09864, Eq. 14-15 and 34).
 *
 * For pair i of a head vector at position p, with theta_i = base^(-2i/R):
 *
 *   y_a = c x_a - s x_b        c = scale cos(p theta_i),  s = scale sin(p theta_i)     counter-clockwise by +p theta_i
 *   y_b = s x_a + c x_b
 *
 * where (a, b) = (2i, 2i+1) in layout RF_ROPE_PAIRS (RoFormer, GPT-J) and (i, i + R/2) in RF_ROPE_HALVES (GPT-NeoX,
 * Llama). The first R = rotary_dim elements of each head are rotated, the others copied. The caller must choose a
 * layout.
 *
 * Accuracy: the angle is the exact product of a frequency in double-double and an exact position, reduced modulo 2 pi
 * with a three-part constant; cos and sin are rounded once: error at most 6e-8 in float32 tables (half an ulp of 1) to
 * position 2^31. float64 data uses float64 tables; bfloat16 and float16 data use float32 tables and float32 arithmetic,
 * rounded once to nearest even. (bfloat16 results below 2^-126 in magnitude may become 0: the processors' own
 * conversion does that.) Positions times frequencies are limited to 2^60 in magnitude.
 */
#ifndef RF_ROPE_H_
#define RF_ROPE_H_

#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rf_rope_layout { RF_ROPE_PAIRS = 1, RF_ROPE_HALVES = 2 } rf_rope_layout;

/* FORWARD applies R; TRANSPOSE applies R^T, the backward; INVERSE applies R^-1. The last two coincide for scale 1. */
typedef enum rf_rope_direction { RF_ROPE_FORWARD = 1, RF_ROPE_TRANSPOSE = 2, RF_ROPE_INVERSE = 3 } rf_rope_direction;

/* theta_i = base^(-2i/rotary_dim), i < rotary_dim/2, as unevaluated sums hi[i] + lo[i].
 * base: finite and > 0. rotary_dim: even, 2..2^20. */
RF_API rf_status rf_rope_frequencies(double base, int64_t rotary_dim, double* hi, double* lo);

/* cos and sin of positions[t] * (hi[i] + lo[i]), times scale, into rows [T, num_freqs]. lo may be NULL (zeros).
 * positions: float64, so that integers are exact to 2^53; finite. */
RF_API rf_status rf_rope_table_f32(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                   const double* positions, int64_t tokens, float* cos_rows, float* sin_rows);
RF_API rf_status rf_rope_table_f64(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                   const double* positions, int64_t tokens, double* cos_rows, double* sin_rows);

/* Frequencies, scale and table rows by position. Rows are computed when a call first needs them and then kept, so a
 * call with known positions computes none. Thread-safe. Integers of any size and sign are kept in blocks of up to 256
 * neighbours, other positions as single rows. The rows of all rf_rope objects together take at most 256 MiB; beyond
 * that, the least recently used table is released (rf_release_memory, rf/status.h).
 */
typedef struct rf_rope rf_rope;

/* hi, lo: [num_freqs], copied; lo may be NULL; |lo| <= |hi|. scale: finite, not 0, within 2^-100..2^100 in magnitude.
 * max_cached_rows: at most 2^24; this many rows are kept and others are computed for the call; 0: only bounded in
 * bytes. A row takes 2 num_freqs elements of float, for float64 data of double; a scale other than 1 doubles that once
 * the inverse is used. */
RF_API rf_status rf_rope_create(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                int64_t max_cached_rows, rf_rope** out);
RF_API void rf_rope_destroy(rf_rope* rope);

/* One call rotates a [B, T, H, D] view; [.., H, T, D] data is the same with other strides. The last dimension is
 * contiguous. y == x (with equal strides) works in place; any other overlap is undefined. Elements past rotary_dim =
 * 2 num_freqs are copied when y != x. Any extent may be 0.
 *
 * Positions of token (b, t), the first that is not NULL of:
 *   positions_i64[b * position_stride_b + t]        |value| <= 2^53
 *   positions_f64[b * position_stride_b + t]        finite
 *   position_offset + t
 * position_stride_b is 0 for positions shared by the batch, T for [B, T]. Packed sequences restart their positions. */
typedef struct rf_rope_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_rope_layout layout;
  rf_rope_direction direction;
  int64_t batch, tokens, heads, head_dim;
  const void* x;
  int64_t x_stride_b, x_stride_t, x_stride_h;
  void* y;
  int64_t y_stride_b, y_stride_t, y_stride_h;
  const int64_t* positions_i64;
  const double* positions_f64;
  int64_t position_stride_b;
  int64_t position_offset;
} rf_rope_args;

RF_API rf_status rf_rope_apply(rf_rope* rope, const rf_rope_args* args);

/* The same rotation by rows that the caller provides: c and s above are
 *   cos[b * row_stride_b + t * row_stride_t + i] and sin[the same], i < num_freqs,
 * double for RF_F64 data, otherwise float; of any magnitude. row_stride_b is 0 for rows shared by the batch. direction:
 * RF_ROPE_FORWARD or RF_ROPE_TRANSPOSE. x, y, their strides and the elements from 2 num_freqs on: as for rf_rope_apply.
 * Rows must not overlap y. */
typedef struct rf_rope_rows_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_rope_layout layout;
  rf_rope_direction direction;
  int64_t batch, tokens, heads, head_dim;
  const void* x;
  int64_t x_stride_b, x_stride_t, x_stride_h;
  void* y;
  int64_t y_stride_b, y_stride_t, y_stride_h;
  int64_t num_freqs;
  const void* cos;
  const void* sin;
  int64_t row_stride_b, row_stride_t;
} rf_rope_rows_args;

RF_API rf_status rf_rope_rotate(const rf_rope_rows_args* args);

#ifdef __cplusplus
}
#endif
#endif
