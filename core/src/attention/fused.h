// The fused kernels over a whole call: tasks, threads, work space.
#ifndef RF_CORE_ATTENTION_FUSED_H_
#define RF_CORE_ATTENTION_FUSED_H_

#include "rf/attention.h"

namespace rf::core {

// dtype must not be RF_F64, gate must be absent, and the arguments must have passed the operator's checks.
void attention_fused(const rf_attention_args& args);
void attention_fused_backward(const rf_attention_args& args, const rf_attention_grads& grads);

}  // namespace rf::core
#endif
