// The fused kernels of attention over a whole call: tasks, threads, work space.
#pragma once

#include "rf/attention.h"

namespace rf::core {

// Tiles, by tasks, threads and work space of a whole call. dtype must not be RF_F64, and gate must be absent.
void attention_fused(const rf_attention_args& args);
void attention_fused_backward(const rf_attention_args& args, const rf_attention_grads& grads);

}  // namespace rf::core
