// Conversions between tensors and the numbers that experiments report.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rf/ops/terms.h"

namespace rf::reproduce {

std::vector<double> values(const at::Tensor& tensor);  // in order, as float64
double largest(const at::Tensor& tensor);              // of the absolute values
at::Tensor integers(int64_t begin, int64_t end);       // begin, .., end - 1

// theta_i = base^(-2i/dim), float64 [dim/2].
at::Tensor frequencies(int64_t dim, double base = 10000);
// cos and sin of position * theta_i for the positions [T], [1,T,dim/2], from the operator rope_table.
ops::Rotation rotation(const at::Tensor& positions, int64_t dim, at::ScalarType dtype, double base = 10000);
// R_p x by the operator, in pairs: x [..,T,H,D], positions [T].
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions);

}  // namespace rf::reproduce
