// Argument rules of linear attention. Each broken rule throws InvalidArgument.
#ifndef RF_CORE_LINEAR_ATTENTION_CHECKS_H_
#define RF_CORE_LINEAR_ATTENTION_CHECKS_H_

#include "rf/linear_attention.h"

namespace rf::core {

void check_linear_attention(const rf_linear_attention_args& args);
// Additional checks of the backward; in_loops: for the reference, which reads fewer arguments.
void check_linear_attention_grads(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads,
                                  bool in_loops);

}  // namespace rf::core
#endif
