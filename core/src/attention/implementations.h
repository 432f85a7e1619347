// What computes a call of attention, whose arguments have passed the operator's checks.
#pragma once

#include "rf/attention.h"

namespace rf::core {

// Tiles, by tasks, threads and work space of a whole call. dtype must not be RF_F64, and gate must be absent.
void attention_fused(const rf_attention_args& args);
void attention_fused_backward(const rf_attention_args& args, const rf_attention_grads& grads);

}  // namespace rf::core

namespace rf::ref {

// Float64 loops (core/ref/attention*.cpp) written from the equation in rf/attention.h: the reference for all other
// implementations. One thread; all scores of one query at a time, so memory beyond the results is O(T + S) for each
// head. No tiles, no online softmax, no shortcuts for terms that are absent. dtype is RF_F64.
void attention(const rf_attention_args& args);
void attention_backward(const rf_attention_args& args, const rf_attention_grads& grads);

}  // namespace rf::ref
