/* Attention of queries whose keys are listed, for searches: sequences share the tokens of their common past, and the
 * sequences of a sentence share its source.
 *
 *   out[t,h] = sum_i softmax_i(scale q[t,h] . k[r_i,h]) v[r_i,h],   r_i = rows[begins[t] + i],  i < counts[t]
 *
 * A query without keys has output 0. RF_F64 is computed by plain loops on one thread, as the reference; of the other
 * types sums are in float32. An output has the same bits for any number of threads and whatever the other queries are.
 */
#ifndef RF_LISTED_ATTENTION_H_
#define RF_LISTED_ATTENTION_H_

#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Heads are contiguous in a row, and row r of an array begins at data + r * stride. */
typedef struct rf_listed_attention_args {
  size_t struct_size;
  rf_dtype dtype;
  int64_t queries, keys, heads, head_dim;
  const void* q; /* [queries, heads, head_dim] */
  int64_t q_stride;
  const void* k; /* [keys, heads, head_dim] */
  const void* v; /* [keys, heads, head_dim] */
  int64_t kv_stride;
  void* out; /* [queries, heads, head_dim]; overlaps no input */
  int64_t out_stride;
  const int64_t* rows; /* [listed], each in 0..keys-1 */
  int64_t listed;
  const int64_t* begins; /* [queries], with begins[t] + counts[t] <= listed */
  const int64_t* counts; /* [queries] */
  double scale;          /* finite */
} rf_listed_attention_args;

RF_API rf_status rf_listed_attention(const rf_listed_attention_args* args);

#ifdef __cplusplus
}
#endif
#endif
