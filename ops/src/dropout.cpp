// roformer::dropout on CPU and Meta tensors; core/include/rf/dropout.h has the generator. Element indices count the
// elements in row-major order for any strides of x.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "core_call.h"
#include "dispatch.h"
#include "rf/dropout.h"
#include "row_arguments.h"

namespace rf::ops {
namespace {

void check(const DropoutCall& call) {
  TORCH_CHECK_VALUE(core_dtype(call.x.scalar_type()), "[dropout] x must be float32, float64, bfloat16 or float16, got ",
                    call.x.scalar_type());
  check_dropout("dropout", "p", call.p);
}

std::tuple<at::Tensor> dropout_cpu(const DropoutCall& call) {
  check(call);
  const at::Tensor x = call.x.contiguous();
  at::Tensor y = at::empty(x.sizes(), x.options());
  call_core(rf_dropout, *core_dtype(x.scalar_type()), x.const_data_ptr(), y.mutable_data_ptr(), x.numel(), call.p,
            static_cast<uint64_t>(call.seed.expect_int()), static_cast<uint64_t>(call.stream.expect_int()));
  return y;
}

std::tuple<at::Tensor> dropout_meta(const DropoutCall& call) {
  check(call);
  return at::empty_symint(call.x.sym_sizes(), call.x.options());
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, int64_t seed, int64_t stream) {
  return p == 0 ? x : std::get<0>(dispatch<DropoutOperator>({x, p, seed, stream}));
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) { library.impl("dropout", boxed<dropout_cpu>()); }

TORCH_LIBRARY_IMPL(roformer, Meta, library) { library.impl("dropout", boxed<dropout_meta>()); }

}  // namespace rf::ops
