// roformer::dropout on CPU and Meta tensors; core/include/rf/dropout.h has the generator. Element indices count the
// elements in row-major order whatever the strides of x.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "core_call.h"
#include "dispatch.h"
#include "rf/dropout.h"
#include "row_arguments.h"

namespace rf::ops {
namespace {

void check_arguments(const at::Tensor& x, double p) {
  TORCH_CHECK_VALUE(core_dtype(x.scalar_type()), "[dropout] x must be float32, float64, bfloat16 or float16, got ",
                    x.scalar_type());
  check_dropout("dropout", "p", p);
}

at::Tensor dropout_cpu(const at::Tensor& x, double p, int64_t seed, int64_t stream) {
  check_arguments(x, p);
  const at::Tensor source = x.contiguous();
  at::Tensor y = at::empty(x.sizes(), x.options());
  call_core(rf_dropout, *core_dtype(x.scalar_type()), source.const_data_ptr(), y.mutable_data_ptr(), x.numel(), p,
            static_cast<uint64_t>(seed), static_cast<uint64_t>(stream));
  return y;
}

at::Tensor dropout_meta(const at::Tensor& x, double p, c10::SymInt /*seed*/, c10::SymInt /*stream*/) {
  check_arguments(x, p);
  return at::empty_symint(x.sym_sizes(), x.options());
}

}  // namespace

at::Tensor dispatch_dropout(const at::Tensor& x, double p, c10::SymInt seed, c10::SymInt stream) {
  static const auto op = find_operator<decltype(dispatch_dropout)>("roformer::dropout");
  return op.call(x, p, std::move(seed), std::move(stream));
}

at::Tensor dropout(const at::Tensor& x, double p, int64_t seed, int64_t stream) {
  if (p == 0) return x;
  return dispatch_dropout(x, p, seed, stream);
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) { library.impl("dropout", dropout_cpu); }

TORCH_LIBRARY_IMPL(roformer, Meta, library) { library.impl("dropout", dropout_meta); }

}  // namespace rf::ops
