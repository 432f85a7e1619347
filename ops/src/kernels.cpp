// Choices and frequencies of core (rf/ops/kernels.h).
#include "rf/ops/kernels.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string_view>

#include "core_call.h"
#include "rf/linear.h"
#include "rf/rope.h"

namespace rf::ops {

bool reference_is_asked_for() {
  const std::string_view target = rf_target();
  TORCH_CHECK_VALUE(!target.empty(), rf_last_error());
  return target == "ref";
}

std::string linear_backend(c10::ScalarType dtype, int64_t rows) {
  const auto type = core_dtype(dtype);
  TORCH_CHECK_VALUE(type, "[linear] dtype must be float32, float64, bfloat16 or float16, got ", dtype);
  return rf_linear_backend(*type, rows, 1, 1);
}

std::pair<at::Tensor, at::Tensor> rope_frequencies(double base, int64_t dims) {
  const int64_t pairs = std::max<int64_t>(dims / 2, 0);
  at::Tensor high = at::empty({pairs}, at::kDouble), low = at::empty({pairs}, at::kDouble);
  check_status(rf_rope_frequencies(base, dims, high.mutable_data_ptr<double>(), low.mutable_data_ptr<double>()));
  return {high, low};
}

}  // namespace rf::ops
