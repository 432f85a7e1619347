/* Softmax attention with position encodings: an encoding is a set of terms of one equation, which rf/attention_terms.h
 * lists. RF_F64 uses reference loops, other types a tiled kernel ("in tiles"). A query without any allowed key, because
 * of mask and window, has output 0 and gradient 0. In tiles the same holds for a query whose scores are all -infinity;
 * a score of NaN or +infinity makes only the output of its query NaN.
 *
 * Letters: B batch, T queries, S keys, H query heads, Hk key heads (H a multiple; query head h reads key head
 * h / (H/Hk)), D head_dim, Dv value_dim, R rotated elements, P positions.
 *
 * The loops of RF_F64 use one thread and are the reference for all other kernels. RF_F32, RF_BF16 and RF_F16
 * are computed in tiles: sums are in float32, and memory does not grow with T * S. Outputs and the gradients of q, k
 * and v have the same bits for any number of threads and whatever else is in the batch or packed with a sequence;
 * gradients of terms for any number of threads. Limits of float32 in tiles: a score has a relative error of about
 * 2^-24, so its weight has an error of |score| 2^-24; sums over values may be 2^8 S times the largest value before they
 * are divided; below -2^127 scores count as -infinity. RF_BF16 without a and c, on AMD with AVX512_BF16 or with AMX:
 * products round rotated vectors, weights and gradients of scores to bfloat16, and treat numbers below 2^-126 as zero.
 */
#ifndef RF_ATTENTION_H_
#define RF_ATTENTION_H_

#include "rf/attention_terms.h"
#include "rf/rope.h"
#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a rotation, contiguous [batch, T or S, heads, pairs], where <name>_rotation_heads is the number of heads.
 * Pair i of a token's vectors is rotated counter-clockwise by the angle with this cosine and sine (any magnitude in
 * both); elements from 2 pairs on are copied. */
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

/* Numbers that are added to scores. For query t and key s it is numbers[b * stride_b + h * stride_h + t * stride_t +
 * s]. Numbers by key do not depend on t: stride_t is 0. -infinity leaves a key out. */
typedef struct rf_attention_scores {
  const void* numbers; /* NULL: absent */
  int64_t batch;       /* B, or 1: shared by the batch; then stride_b is not read */
  int64_t heads;       /* H, or 1: shared by the heads; then stride_h is not read */
  int64_t stride_b, stride_h, stride_t;
} rf_attention_scores;

/* Limited sides of a window; their sum limits both. */
enum { RF_WINDOW_LEFT = 1, RF_WINDOW_RIGHT = 2 };

/* How a cache stores k and v; kernels convert a tile at a time. */
typedef enum rf_cache_type {
  RF_CACHE_SAME = 0, /* as dtype */
  RF_CACHE_BF16 = 1,
  /* Each row is D (or Dv) int8 and after them the float, at any address, that multiplies them. */
  RF_CACHE_INT8 = 2
} rf_cache_type;

#define RF_ROTATION_MEMBER(name, symbol, side) rf_attention_rotation name;
#define RF_TABLE_MEMBER(name, symbol, width) rf_attention_table name;
#define RF_NUMBERS_MEMBER(name, symbol, width) const void* name;
#define RF_PAIR_MEMBERS(query_name, query_symbol, key_name, key_symbol) \
  const void* query_name;                                               \
  const void* key_name;                                                 \
  int64_t positions; /* P */
#define RF_SCORES_MEMBER(name, symbol, rows) rf_attention_scores name;
#define RF_ROTATION_HEADS_MEMBER(name, symbol, side) int64_t name##_rotation_heads;

/* Strides in elements; the last dimension of q, k, v and out is contiguous. Any of B, T, S and H may be 0. Terms, cos
 * and sin are double for RF_F64 data, otherwise float. */
typedef struct rf_attention_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_rope_layout layout; /* of all three rotations; read only where there is one */
  int64_t batch, queries, keys, heads, key_heads, head_dim, value_dim;

  const void* q; /* [B,T,H,D] */
  int64_t q_stride_b, q_stride_t, q_stride_h;
  const void* k; /* [B,S,Hk,D] */
  int64_t k_stride_b, k_stride_t, k_stride_h;
  const void* v; /* [B,S,Hk,Dv]; Dv = D where value or value_table is set */
  int64_t v_stride_b, v_stride_t, v_stride_h;
  void* out; /* [B,T,H,Dv]; read by the backward in tiles, not by the one in loops */
  int64_t out_stride_b, out_stride_t, out_stride_h;

  /* [B,H,T] contiguous, or NULL: log of the sum of exp(score) over a query's keys; -infinity without keys. Written by
   * the forward in tiles and read by the backward in tiles. */
  float* log_sum;

  /* Token (b, t) is at position positions[b * stride_b + t], |value| <= 2^53; stride_b is 0 for positions shared by the
   * batch. */
  const int64_t* query_positions;
  int64_t query_position_stride_b;
  const int64_t* key_positions;
  int64_t key_position_stride_b;

  /* Terms of the first version; later terms are at the end. Rotations and tables without an array, and NULL, are
   * absent. With position_query and position_key, positions must be in 0..positions-1. */
  RF_ATTENTION_FIRST_TERMS(RF_ROTATION_MEMBER, RF_TABLE_MEMBER, RF_NUMBERS_MEMBER, RF_PAIR_MEMBERS, RF_SCORES_MEMBER)
  double scale; /* s, finite */

  /* mask[b * stride_b + h * stride_h + t * stride_t + s * stride_s] != 0: the query may attend to the key; strides of 0
   * broadcast. NULL: to every key. */
  const uint8_t* mask;
  int64_t mask_stride_b, mask_stride_h, mask_stride_t, mask_stride_s;
  /* Dropout of the probabilities, after the softmax: element ((b H + h) T + t) S + s of [B,H,T,S], as in rf_dropout.
   * Only in tiles. */
  double dropout; /* in [0, 1 - 2^-17) */
  uint64_t seed, stream;
  /* By token index: -left <= j - (i + S - T) <= right for query i and key j, for the sides that window names; causal
   * attention is RF_WINDOW_RIGHT with 0. The limit of a side that is not named must be 0. */
  uint32_t window; /* 0: all keys */
  int64_t window_left, window_right;

  /* Packed sequences, or both NULL. With batch 1, sequence i is the queries cu_seqlens_q[i] .. cu_seqlens_q[i + 1] - 1
   * and the keys cu_seqlens_k[i] .. cu_seqlens_k[i + 1] - 1; both [sequences + 1], non-decreasing from 0 to T and S. A
   * query attends only to the keys of its sequence, as if each sequence were an entry of a batch: the window uses
   * indices within the sequence and its T and S. Dropout numbers the elements of each sequence's [H,T,S] after the
   * elements of the previous sequence. Data by token, including positions, the mask, key_score and pair_bias, are laid
   * out as without packing. */
  const int64_t* cu_seqlens_q;
  const int64_t* cu_seqlens_k;
  int64_t sequences;

  RF_ATTENTION_LATER_TERMS(RF_ROTATION_MEMBER, RF_TABLE_MEMBER, RF_NUMBERS_MEMBER, RF_PAIR_MEMBERS, RF_SCORES_MEMBER)

  /* Number of heads with rows in a rotation: H for queries, Hk for keys and values; 1, or 0: shared by the heads. */
  RF_ATTENTION_TERMS(RF_ROTATION_HEADS_MEMBER, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM)

  /* Prefixes, [B], or [sequences] of packed ones: every query of an entry may attend to its first prefix[i] >= 0 keys,
   * by token index, even to the right of its window. With RF_WINDOW_RIGHT and window_right 0 this is the mask of UniLM
   * (Dong et al. 2019, arXiv 1905.03197) and of prefix language models: tokens of the prefix see each other, later
   * tokens see everything before them. NULL: no prefixes. Allowed only with window RF_WINDOW_RIGHT. */
  const int64_t* prefix;

  /* cap > 0: a score becomes cap tanh(score / cap) before the mask (Gemma 2, arXiv 2408.00118); 0: it does not. Not in
   * the backward. */
  double score_cap;

  /* Of k and v, whose strides are in elements of it. Not with RF_F64, nor in the backward. */
  rf_cache_type cache_type;
} rf_attention_args;
#undef RF_ROTATION_MEMBER
#undef RF_TABLE_MEMBER
#undef RF_NUMBERS_MEMBER
#undef RF_PAIR_MEMBERS
#undef RF_SCORES_MEMBER
#undef RF_ROTATION_HEADS_MEMBER

#define RF_ROTATION_GRADIENTS(name, symbol, side) void *name##_cos, *name##_sin;
#define RF_GRADIENT(name, ...) void* name;
#define RF_PAIR_GRADIENTS(query_name, query_symbol, key_name, key_symbol) void *query_name, *key_name;

/* Gradients of a scalar loss. Each has the shape of its array, is contiguous, and is overwritten; NULL: not computed.
 * The gradients of a rotation are <name>_cos and <name>_sin. */
typedef struct rf_attention_grads {
  size_t struct_size;
  const void* out; /* input: the gradient of out, [B,T,H,Dv] */
  int64_t out_stride_b, out_stride_t, out_stride_h;
  void *q, *k, *v;
  RF_ATTENTION_TERMS(RF_ROTATION_GRADIENTS, RF_GRADIENT, RF_GRADIENT, RF_PAIR_GRADIENTS, RF_GRADIENT)
} rf_attention_grads;
#undef RF_ROTATION_GRADIENTS
#undef RF_GRADIENT
#undef RF_PAIR_GRADIENTS

/* Checks the arguments of both functions except out and log_sum, without computing: for other implementations of the
 * same equation. Reads only the arrays positions, cu_seqlens and prefix. */
RF_API rf_status rf_attention_check(const rf_attention_args* args);
RF_API rf_status rf_attention_forward(const rf_attention_args* args);
RF_API rf_status rf_attention_backward(const rf_attention_args* args, const rf_attention_grads* grads);

#ifdef __cplusplus
}
#endif
#endif
