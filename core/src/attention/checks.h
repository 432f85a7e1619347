// Argument rules of attention over terms. Each broken rule throws InvalidArgument, a dtype without an implementation
// NotImplemented.
#ifndef RF_CORE_ATTENTION_CHECKS_H_
#define RF_CORE_ATTENTION_CHECKS_H_

#include "rf/attention.h"

namespace rf::core {

// The rules of any implementation of the equation, or also of the kernels here; of forward and backward.
enum class CheckedFor { kEquation, kKernels };
void check_attention(const rf_attention_args& args, CheckedFor use);
void check_attention_out(const rf_attention_args& args);
void check_attention_grads(const rf_attention_args& args, const rf_attention_grads& grads);

}  // namespace rf::core
#endif
