// Sinusoids as tensors (sinusoid.h).
#include "sinusoid.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "rf/ops/terms.h"

namespace rf::nn {

at::Tensor sinusoid(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::ScalarType dtype) {
  const at::Tensor whole = positions.contiguous();
  std::vector<int64_t> shape = positions.sizes().vec();
  shape.push_back(width);
  at::Tensor rows = at::empty(shape, ops::row_dtype(dtype));
  const auto* from = whole.const_data_ptr<int64_t>();
  at::get_num_threads();  // core then uses as many
  if (rows.scalar_type() == at::kDouble) {
    rf::sinusoid(from, whole.numel(), width, layout, rows.mutable_data_ptr<double>());
  } else {
    rf::sinusoid(from, whole.numel(), width, layout, rows.mutable_data_ptr<float>());
  }
  return rows;
}

}  // namespace rf::nn
