// Layouts of pairs by name, and tensors as the rotation kernels take them.
#pragma once

#include <string_view>

#include "core_call.h"
#include "rf/rope.h"

namespace rf::ops {

// where: the operator's name in the error.
inline rf_rope_layout parse_layout(const char* where, std::string_view layout) {
  if (layout == "pairs") return RF_ROPE_PAIRS;
  if (layout == "halves") return RF_ROPE_HALVES;
  TORCH_CHECK_VALUE(false, "[", where,
                    "] layout must be \"pairs\" (RoFormer, GPT-J) or \"halves\" (GPT-NeoX, Llama), got \"", layout,
                    "\"");
}

// The fields that rf_rope_args and rf_rope_rows_args share, for a rotation of x into y.
template <class Args>
Args data_args(Borrowed<at::Tensor> x_BTHD, Borrowed<at::Tensor> y_BTHD) {
  const at::Tensor &x = *x_BTHD, &y = *y_BTHD;
  Args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(x.scalar_type());
  args.batch = x.size(0), args.tokens = x.size(1), args.heads = x.size(2), args.head_dim = x.size(3);
  args.x = x.const_data_ptr();
  args.x_stride_b = x.stride(0), args.x_stride_t = x.stride(1), args.x_stride_h = x.stride(2);
  args.y = y.mutable_data_ptr();
  args.y_stride_b = y.stride(0), args.y_stride_t = y.stride(1), args.y_stride_h = y.stride(2);
  return args;
}

}  // namespace rf::ops
