// Attention over terms in float64 loops (core/ref/attention*.cpp), forward and backward, written from the equation in
// rf/attention.h: the reference for all other implementations. One thread; all scores of one query at a time, so memory
// beyond the results is O(T + S) for each head. No tiles, no online softmax, no shortcuts for terms that are absent.
#ifndef RF_CORE_ATTENTION_REFERENCE_H_
#define RF_CORE_ATTENTION_REFERENCE_H_

#include "rf/attention.h"

namespace rf::ref {

// dtype is RF_F64, and the arguments have passed the operator's checks.
void attention(const rf_attention_args& args);
void attention_backward(const rf_attention_args& args, const rf_attention_grads& grads);

}  // namespace rf::ref
#endif
