// Argument rules of linear attention. Each broken rule throws InvalidArgument.
#ifndef RF_CORE_LINEAR_ATTENTION_CHECKS_H_
#define RF_CORE_LINEAR_ATTENTION_CHECKS_H_

#include "rf/linear_attention.h"

namespace rf::core {

void check_linear_attention(const rf_linear_attention_args& args);
// What the backward asks besides; in_loops: of the reference, which reads less.
void check_linear_attention_grads(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads,
                                  bool in_loops);

}  // namespace rf::core
#endif
