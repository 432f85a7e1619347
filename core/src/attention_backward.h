// The fused backward, by the best instruction set: one batch entry and the query heads that share a key head.
#ifndef RF_CORE_ATTENTION_BACKWARD_H_
#define RF_CORE_ATTENTION_BACKWARD_H_

#include <cstdint>

#include "attention_problem.h"

namespace rf::core {

// Where one query head's share of the gradients of terms is added up; nullptr: not wanted.
struct HeadTermGradients {
  float *table_k = nullptr, *table_q = nullptr, *table_v = nullptr, *bias = nullptr;
  float *u = nullptr, *w = nullptr, *a = nullptr, *c = nullptr, *row = nullptr, *col = nullptr;
};

int64_t attention_backward_bytes(const AttentionProblem& problem);

// Batch entry b and key head `key_head`: writes dq of its query heads, dk and dv. terms: an entry a query head.
void attention_backward_heads(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b,
                              int64_t key_head, const HeadTermGradients* terms, void* space);

}  // namespace rf::core
#endif
