/* Attention over terms: every position encoding of the literature as a choice of the terms of one formula. For batch
 * entry b, query head h, query m at position p_m and key n at position p_n:
 *
 *   score(m,n) = s * [ ((R^q_m q_m + u) * G[r]) . (R^k_n k_n)  +  (q_m + w) . K[r]  +  k_n . Q[r] ]  +  pos(m,n)
 *   pos(m,n)   = row[h] if row is set and p_m = 0,  else col[h] if col is set and p_n = 0,
 *                else b[r] + s * a[p_m] . c[p_n]
 *   out_m      = sum_n softmax_n(score(m,n)) * ( R^v_n v_n + V[r] )
 *   r          = clamp(p_m - p_n, lo, hi) - lo                       each of K, Q, V, b and G has its own lo and hi
 *
 * A term that is NULL is absent: R and G are 1, everything else 0. The sum runs over the keys that mask and window
 * leave; a query that they leave no key has output 0 and gradient 0. In tiles, so has a query whose scores are all
 * -infinity; a score that is NaN or +infinity makes the output of its query NaN, and of no other.
 *
 * Letters: B batch, T queries, S keys, H query heads, Hk key heads (H a multiple; query head h reads key head
 * h / (H/Hk)), D head_dim, Dv value_dim, R rotated elements, P positions.
 *
 * RF_F64 is computed by plain loops on one thread, the reference for all other kernels. RF_F32, RF_BF16 and
 * RF_F16 are computed in tiles with sums in float32 and memory that does not grow with T * S; there G is answered with
 * RF_NOT_IMPLEMENTED, and cos and sin have no gradients. Outputs and the gradients of q, k and v have the same bits for
 * any number of threads and whatever else is in the batch or packed with a sequence; gradients of terms for any
 * number of threads. Limits of float32 in tiles: a score has a relative error of some 2^-24, and so has its weight an
 * error of |score| 2^-24; sums over values may be 2^8 S times the largest value before they are divided; below -2^127
 * scores count as -infinity. RF_BF16 without a and c, where the CPU has AVX512_BF16 or AMX: products round rotated
 * vectors, weights and gradients of scores to bfloat16, and take numbers below 2^-126 for zero.
 */
#ifndef RF_ATTENTION_H_
#define RF_ATTENTION_H_

#include "rf/rope.h"
#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a rotation, contiguous [batch, T or S, pairs]: pair i of a token's vectors is rotated counter-clockwise by
 * the angle whose cosine and sine these are (any magnitude in both); elements from 2 pairs on are copied. */
typedef struct rf_attention_rotation {
  const void* cos;
  const void* sin; /* both NULL: no rotation */
  int64_t batch;   /* B, or 1: shared by the batch */
  int64_t pairs;   /* R/2, at most half the size of the vectors */
} rf_attention_rotation;

/* Rows by distance, query minus key, contiguous [heads, hi - lo + 1, width]. */
typedef struct rf_attention_table {
  const void* rows; /* NULL: absent */
  int64_t lo, hi;   /* lo <= hi */
  int64_t heads;    /* H, or 1: shared by the heads */
  int64_t width;    /* K and Q: D; V: Dv; b: 1; G: D or 1 */
} rf_attention_table;

/* Sides of a window that are limited; their sum is both. */
enum { RF_WINDOW_LEFT = 1, RF_WINDOW_RIGHT = 2 };

/* Strides in elements; the last dimension of q, k, v and out is contiguous. Any of B, T, S and H may be 0. Terms, cos
 * and sin are double for RF_F64 data and float for all other. */
typedef struct rf_attention_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_rope_layout layout; /* of all three rotations; read only where there is one */
  int64_t batch, queries, keys, heads, key_heads, head_dim, value_dim;

  const void* q; /* [B,T,H,D] */
  int64_t q_stride_b, q_stride_t, q_stride_h;
  const void* k; /* [B,S,Hk,D] */
  int64_t k_stride_b, k_stride_t, k_stride_h;
  const void* v; /* [B,S,Hk,Dv]; Dv = D where rotation_v or table_v is set */
  int64_t v_stride_b, v_stride_t, v_stride_h;
  void* out; /* [B,T,H,Dv]; what the backward in tiles reads, and the one in loops does not */
  int64_t out_stride_b, out_stride_t, out_stride_h;

  /* [B,H,T] contiguous, or NULL: log of the sum of exp(score) over a query's keys; -infinity without keys. Written by
   * the forward and needed by the backward, both in tiles. */
  float* log_sum;

  /* Token (b, t) is at position positions[b * stride_b + t], |value| <= 2^53; stride_b is 0 for positions shared by the
   * batch. */
  const int64_t* query_positions;
  int64_t query_position_stride_b;
  const int64_t* key_positions;
  int64_t key_position_stride_b;

  rf_attention_rotation rotation_q, rotation_k, rotation_v; /* R^q, R^k, R^v */
  const void* u;                                            /* [H,D] */
  const void* w;                                            /* [H,D] */
  rf_attention_table table_k, table_q, table_v, bias, gate; /* K, Q, V, b, G */
  const void* a;                                            /* [H,P,D]; set together with c */
  const void* c;                                            /* [H,P,D] */
  int64_t positions;                                        /* P; with a and c, positions must be in 0..P-1 */
  const void* row;                                          /* [H] */
  const void* col;                                          /* [H] */
  double scale;                                             /* s, finite */

  /* mask[b * stride_b + h * stride_h + t * stride_t + s * stride_s] != 0: the query may attend to the key; strides of 0
   * broadcast. NULL: to every key. */
  const uint8_t* mask;
  int64_t mask_stride_b, mask_stride_h, mask_stride_t, mask_stride_s;
  /* Dropout of the probabilities, after the softmax: of element ((b H + h) T + t) S + s of [B,H,T,S] as by rf_dropout.
   * Only in tiles. */
  double dropout; /* in [0, 1 - 2^-17) */
  uint64_t seed, stream;
  /* By token index: -left <= j - (i + S - T) <= right for query i and key j, each where window names the side, as
   * RF_WINDOW_RIGHT with 0 for causal attention. A limit that is not named must be 0. */
  uint32_t window; /* 0: all keys */
  int64_t window_left, window_right;

  /* Packed sequences, or both NULL. With batch 1, sequence i is the queries cu_seqlens_q[i] .. cu_seqlens_q[i + 1] - 1
   * and the keys cu_seqlens_k[i] .. cu_seqlens_k[i + 1] - 1; both [sequences + 1], non-decreasing from 0 to T and S. A
   * query meets the keys of its own sequence only, as if each were an entry of a batch: the window is by index within
   * the sequence, with its own T and S, and the elements that dropout numbers are those of its own [H,T,S], which
   * follow those of the sequence before. Whatever belongs to a token, positions and the mask too, is as without
   * packing. */
  const int64_t* cu_seqlens_q;
  const int64_t* cu_seqlens_k;
  int64_t sequences;
} rf_attention_args;

/* Gradients of a scalar, given its gradient with respect to out. Each has the shape of what it belongs to, is
 * contiguous, and is overwritten; NULL: not wanted. */
typedef struct rf_attention_grads {
  size_t struct_size;
  const void* out; /* given: [B,T,H,Dv] */
  int64_t out_stride_b, out_stride_t, out_stride_h;
  void *q, *k, *v;
  void *cos_q, *sin_q, *cos_k, *sin_k, *cos_v, *sin_v;
  void *u, *w;
  void *table_k, *table_q, *table_v, *bias, *gate;
  void *a, *c;
  void *row, *col;
} rf_attention_grads;

RF_API rf_status rf_attention_forward(const rf_attention_args* args);
RF_API rf_status rf_attention_backward(const rf_attention_args* args, const rf_attention_grads* grads);

#ifdef __cplusplus
}
#endif
#endif
