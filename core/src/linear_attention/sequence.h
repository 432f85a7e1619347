// A sequence of tokens: an entry of the batch, or a packed sequence.
#ifndef RF_CORE_LINEAR_ATTENTION_SEQUENCE_H_
#define RF_CORE_LINEAR_ATTENTION_SEQUENCE_H_

#include <cstdint>

#include "rf/linear_attention.h"

namespace rf::core {

struct Sequence {
  int64_t entry = 0;   // of the batch
  int64_t number = 0;  // of its state
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
};

inline int64_t sequence_count(const rf_linear_attention_args& x) {
  return x.cu_seqlens_q == nullptr ? x.batch : x.sequences;
}

inline Sequence sequence_of(const rf_linear_attention_args& x, int64_t number) {
  if (x.cu_seqlens_q == nullptr) return {number, number, 0, x.queries, 0, x.keys};
  const int64_t *q = x.cu_seqlens_q + number, *k = x.cu_seqlens_k + number;
  return {0, number, q[0], q[1] - q[0], k[0], k[1] - k[0]};
}

}  // namespace rf::core
#endif
