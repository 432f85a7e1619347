// Tensors as the row kernels of core take them, and the rules of their arguments.
#pragma once

#include <ATen/ops/empty.h>

#include "core_call.h"
#include "row_operators.h"

namespace rf::ops {

// A tensor [.., C] as rows; keeps its memory alive.
struct RowView {
  at::Tensor rows_NC;
  explicit RowView(const at::Tensor& x) {
    const int64_t columns = x.size(-1), rows = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
    rows_NC = x.reshape({rows, columns});
    const bool is_even = (columns <= 1 || rows_NC.stride(1) == 1) && (rows <= 1 || rows_NC.stride(0) >= columns);
    if (!is_even) rows_NC = rows_NC.contiguous();
  }
  int64_t rows() const { return rows_NC.size(0); }
  int64_t columns() const { return rows_NC.size(1); }
  // With at most one row the stride is meaningless, so return one that core accepts.
  int64_t stride() const { return rows() <= 1 ? columns() : rows_NC.stride(0); }
  const void* data() const { return rows_NC.const_data_ptr(); }
};

inline at::ScalarType parameter_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline void check_rows(const char* where, const char* name, const at::Tensor& x) {
  TORCH_CHECK_VALUE(core_dtype(x.scalar_type()), "[", where, "] ", name,
                    " must be float32, float64, bfloat16 or float16, got ", x.scalar_type());
  TORCH_CHECK_VALUE(x.dim() >= 1, "[", where, "] ", name, " must have a last dimension, got a scalar");
}

inline void check_same(const char* where, const char* name, const at::Tensor& x, const at::Tensor& like) {
  TORCH_CHECK_VALUE(x.sym_sizes() == like.sym_sizes(), "[", where, "] ", name, " must be ", like.sym_sizes(), ", got ",
                    x.sym_sizes());
  TORCH_CHECK_VALUE(x.device() == like.device(), "[", where, "] ", name, " must be on ", like.device(), ", got ",
                    x.device());
}

inline void check_parameter(const char* where, const char* name, const at::Tensor& x, const c10::SymInt& size,
                            at::Device device) {
  if (!x.defined()) return;
  TORCH_CHECK_VALUE(at::isFloatingType(x.scalar_type()), "[", where, "] ", name, " must be floating-point, got ",
                    x.scalar_type());
  TORCH_CHECK_VALUE(x.dim() == 1 && x.sym_size(0) == size, "[", where, "] ", name, " must be [", size, "], got ",
                    x.sym_sizes());
  TORCH_CHECK_VALUE(x.device() == device, "[", where, "] ", name, " must be on ", device, ", got ", x.device());
}

// rf_dropout's bound: a larger p would drop everything.
inline void check_dropout(const char* where, const char* name, double p) {
  TORCH_CHECK_VALUE(p >= 0 && p < 1 - 0x1p-17, "[", where, "] ", name, " must be in [0, 1 - 2^-17), got ", p);
}

// A parameter in the type that core reads with x; undefined stays undefined.
inline at::Tensor ready_parameter(const at::Tensor& parameter, const at::Tensor& x) {
  return parameter.defined() ? parameter.to(parameter_type(x)).contiguous() : at::Tensor();
}

inline at::Tensor empty_like_rows(const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); }

// The defined gradients, in the dtypes of their tensors.
template <size_t kCount>
std::vector<at::Tensor> of_wanted(const std::array<at::Tensor, kCount>& grads,
                                  const std::array<at::Tensor, kCount>& given) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < kCount; ++i) {
    if (grads[i].defined()) result.push_back(grads[i].to(given[i].scalar_type()));
  }
  return result;
}

}  // namespace rf::ops
