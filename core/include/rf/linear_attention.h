/* Linear attention (Katharopoulos et al. 2020; RoFormer, arXiv 2104.09864 Eq. 18-19) on features that are given, or
 * computed here elementwise. For batch entry b, query head h, query m and key n, f = map(q), g = map(k):
 *
 *            sum_n (R^q_m f_m) . (R^k_n g_n) v_n
 *   out_m = -----------------------------------
 *               eps + sum_n f_m . g_n
 *
 * The sums run over the keys that the mask allows, in causal attention over keys n <= m + S - T; RF_DENOMINATOR_ROTATED
 * applies R in the denominator too. A query whose denominator is 0, for example one without keys, has output 0 and
 * gradient 0. Time is linear in T + S; memory in addition to the arrays named here does not grow with them. With
 * key_exponents c, the features of key n are e^(c_n) g_n, and both sums are divided by e^(c_m'), m' the last key that
 * query m may see: no exponential above 1 is computed, and eps is added to the divided sum.
 *
 * Letters: B batch, T queries, S keys, H query heads, Hk key heads (H a multiple; query head h reads key head
 * h / (H/Hk)), F features, Dv value_dim.
 *
 * RF_F64, and every type under RF_KERNEL=ref, is computed from the equation by plain loops over all pairs, as the
 * reference. RF_F32, RF_BF16 and RF_F16 are computed in chunks of tokens, in float32; sums over chunks are compensated,
 * so their error does not grow with S. Threads share a head's tokens if that is faster than one head per thread.
 * Results have the same bits for any number of threads and whatever else is in the batch or packed with a sequence.
 * Values are not rotated, weights are not dropped, and cos and sin get no gradients. The gradient of c_n is g_n . dg_n,
 * with the gradients returned here, minus f_m . df_m for the queries m with m' = n.
 */
#ifndef RF_LINEAR_ATTENTION_H_
#define RF_LINEAR_ATTENTION_H_

#include "rf/attention.h"
#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rf_linear_direction { RF_LINEAR_BIDIRECTIONAL = 1, RF_LINEAR_CAUSAL = 2 } rf_linear_direction;

typedef enum rf_linear_denominator { RF_DENOMINATOR_PLAIN = 1, RF_DENOMINATOR_ROTATED = 2 } rf_linear_denominator;

typedef enum rf_feature_map {
  RF_FEATURES_GIVEN = 1,        /* x: q and k are features */
  RF_FEATURES_ELU_PLUS_ONE = 2, /* x + 1 for x > 0, else e^x, which is above 0 down to x = -87 in float32 */
  RF_FEATURES_RELU = 3          /* max(x, 0); its gradient at 0 is 0 */
} rf_feature_map;

/* Strides in elements; the last dimension of q, k, v and out is contiguous. B, T and S may be 0. cos and sin are double
 * for RF_F64 data, otherwise float. */
typedef struct rf_linear_attention_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_rope_layout layout; /* of both rotations; read only where there is one */
  rf_linear_direction direction;
  rf_linear_denominator denominator;
  rf_feature_map feature_map;
  int64_t batch, queries, keys, heads, key_heads, features, value_dim;

  const void* q; /* [B,T,H,F] */
  int64_t q_stride_b, q_stride_t, q_stride_h;
  const void* k; /* [B,S,Hk,F] */
  int64_t k_stride_b, k_stride_t, k_stride_h;
  const void* v; /* [B,S,Hk,Dv] */
  int64_t v_stride_b, v_stride_t, v_stride_h;
  void* out; /* [B,T,H,Dv]; read by the backward in chunks, not by the one in loops */
  int64_t out_stride_b, out_stride_t, out_stride_h;

  /* [B,H,T] contiguous, or NULL: the denominators. Written by the forward, read by the backward in chunks. */
  float* denominators;

  rf_attention_rotation query, key; /* R^q, R^k: of the features, pairs <= F/2 */
  double eps;                       /* finite, >= 0 */

  /* key_mask[b * stride_b + s * stride_s] != 0: the key is summed; NULL: all keys. Rows of k and v for other keys may
   * contain anything. */
  const uint8_t* key_mask;
  int64_t key_mask_stride_b, key_mask_stride_s;

  /* [B,Hk,F,Dv+1] contiguous, or NULL: the sums over earlier keys of R^k_n g_n v_n^T and, in column Dv, of the vectors
   * that f_m is multiplied with in the denominator. The call adds its keys. Causal, T = S, and only in the forward. */
  double* state;

  /* [B,S,Hk] contiguous, or NULL: c, for example running maxima of exponents: below infinity, where -infinity stands
   * for features of 0, and not decreasing from key to key within a sequence. double for RF_F64 data, otherwise float.
   * Causal only. */
  const void* key_exponents;
  /* [B,Hk]: the exponents of the state, which is divided by their exponentials; the call replaces them by the exponents
   * of the last keys. Read only with a state and key_exponents. -INFINITY before the first key. */
  double* state_exponents;

  /* Packed sequences, or both NULL, as in rf_attention_args: with batch 1, sequence i is the queries cu_seqlens_q[i] ..
   * cu_seqlens_q[i + 1] - 1 and the keys cu_seqlens_k[i] .. cu_seqlens_k[i + 1] - 1; both [sequences + 1],
   * non-decreasing from 0 to T and S. The state is [sequences,Hk,F,Dv+1], its exponents [sequences,Hk], and with a
   * state every sequence has as many queries as keys. */
  const int64_t* cu_seqlens_q;
  const int64_t* cu_seqlens_k;
  int64_t sequences;
} rf_linear_attention_args;

/* Gradients of a scalar loss. Each has the shape of its array, is contiguous, and is overwritten; NULL: not
 * computed. */
typedef struct rf_linear_attention_grads {
  size_t struct_size;
  const void* out; /* input: the gradient of out, [B,T,H,Dv] */
  int64_t out_stride_b, out_stride_t, out_stride_h;
  void *q, *k, *v;
} rf_linear_attention_grads;

RF_API rf_status rf_linear_attention_forward(const rf_linear_attention_args* args);
RF_API rf_status rf_linear_attention_backward(const rf_linear_attention_args* args,
                                              const rf_linear_attention_grads* grads);

#ifdef __cplusplus
}
#endif
#endif
