// Sinusoids as tensors (sinusoid.h).
#include "sinusoid.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "known_values.h"
#include "rf/ops/terms.h"

namespace rf::nn {

namespace {

template <class Position>
void fill(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::Tensor& rows) {
  const auto* from = cpu_data<Position>(positions, "positions");
  if (rows.scalar_type() == at::kDouble) {
    rf::sinusoid(from, positions.numel(), width, layout, rows.mutable_data_ptr<double>());
  } else {
    rf::sinusoid(from, positions.numel(), width, layout, rows.mutable_data_ptr<float>());
  }
}

}  // namespace

at::Tensor sinusoid(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::ScalarType dtype) {
  const at::Tensor whole = positions.contiguous();
  std::vector<int64_t> shape = positions.sizes().vec();
  shape.push_back(width);
  at::Tensor rows = at::empty(shape, ops::row_dtype(dtype));
  at::get_num_threads();  // core uses as many
  whole.scalar_type() == at::kDouble ? fill<double>(whole, width, layout, rows)
                                     : fill<int64_t>(whole, width, layout, rows);
  return rows;
}

}  // namespace rf::nn
