// Argument rules of the linear layer; each throws InvalidArgument or NotImplemented.
#ifndef RF_CORE_LINEAR_CHECKS_H_
#define RF_CORE_LINEAR_CHECKS_H_

#include "rf/linear.h"

namespace rf::core {

// The element type of weight and its gradient.
inline rf_dtype weight_type(const rf_linear_args& args) {
  return args.weight_dtype == rf_dtype{} ? args.dtype : args.weight_dtype;
}

void check_linear_shape(rf_dtype dtype, int64_t rows, int64_t in, int64_t out);
// An array of `rows` rows; NULL is refused if it has elements.
void check_linear_array(rf_dtype dtype, const void* data, int64_t rows, int64_t columns, int64_t stride,
                        const char* name);
void check_linear(const rf_linear_args& args);
void check_linear_forward(const rf_linear_args& args);
void check_linear_backward(const rf_linear_args& args, const rf_linear_grads& grads);

}  // namespace rf::core
#endif
