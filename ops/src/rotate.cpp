// roformer::rotate on CPU and Meta tensors: checks the arguments and presents them to rf_rope_rotate. The gradients are
// in rotate_autograd.cpp.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "core_call.h"
#include "dispatcher.h"
#include "layout.h"
#include "rf/ops/ops.h"
#include "rf/ops/terms.h"
#include "rf/rope.h"

namespace rf::ops {
namespace {

rf_rope_direction rotate_direction(std::string_view direction) {
  return parse_name<rf_rope_direction>("rotate", "direction", direction,
                                       {{"forward", RF_ROPE_FORWARD}, {"transpose", RF_ROPE_TRANSPOSE}});
}

void check_rows(const at::Tensor& x, const at::Tensor& rows, const char* name) {
  check_device("rotate", name, rows, "x", x);
  TORCH_CHECK_VALUE(rows.scalar_type() == row_dtype(x.scalar_type()), "[rotate] ", name, " must be ",
                    row_dtype(x.scalar_type()), " for x of ", x.scalar_type(), ", got ", rows.scalar_type());
  const c10::SymInt batch = x.sym_size(0), tokens = x.sym_size(1);
  TORCH_CHECK_VALUE(
      rows.dim() == 3 && rows.sym_size(1) == tokens && (rows.sym_size(0) == 1 || rows.sym_size(0) == batch),
      "[rotate] ", name, " must be [batch or 1, tokens, rotary_dim/2], here [", batch, " or 1, ", tokens, ", ..], got ",
      rows.sym_sizes());
}

void check_arguments(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout,
                     std::string_view direction) {
  parse_layout("rotate", layout);
  rotate_direction(direction);
  TORCH_CHECK_VALUE(core_dtype(x.scalar_type()), "[rotate] x must be float32, float64, bfloat16 or float16, got ",
                    x.scalar_type());
  TORCH_CHECK_VALUE(x.dim() == 4, "[rotate] x must be [batch, tokens, heads, head_dim], got a tensor of ", x.dim(),
                    " dimensions");
  check_rows(x, cos, "cos");
  check_rows(x, sin, "sin");
  TORCH_CHECK_VALUE(cos.sym_sizes() == sin.sym_sizes(), "[rotate] cos and sin must have one shape, got ",
                    cos.sym_sizes(), " and ", sin.sym_sizes());
  const c10::SymInt pairs = cos.sym_size(2), limit = x.sym_size(3) / 2;
  TORCH_CHECK_VALUE(pairs >= 1 && pairs <= limit, "[rotate] cos and sin must have 1 to head_dim/2 = ", limit,
                    " numbers per token, got ", pairs);
}

// Rows with contiguous numbers.
at::Tensor with_whole_rows(const at::Tensor& rows) { return rows.stride(-1) == 1 ? rows : rows.contiguous(); }

at::Tensor rotate_cpu(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout,
                      std::string_view direction) {
  check_arguments(x, cos, sin, layout, direction);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  if (y.numel() == 0) return y;
  const at::Tensor x_BTHD = with_whole_rows(x);
  at::Tensor c = with_whole_rows(cos), s = with_whole_rows(sin);
  if (c.strides() != s.strides()) c = c.contiguous(), s = s.contiguous();
  auto args = data_args<rf_rope_rows_args>(x_BTHD, y);
  args.layout = parse_layout("rotate", layout);
  args.direction = rotate_direction(direction);
  args.num_freqs = c.size(2);
  args.cos = c.const_data_ptr();
  args.sin = s.const_data_ptr();
  args.row_stride_b = c.size(0) == 1 ? 0 : c.stride(0);
  args.row_stride_t = c.stride(1);
  call_core(rf_rope_rotate, &args);
  return y;
}

at::Tensor rotate_meta(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout,
                       std::string_view direction) {
  check_arguments(x, cos, sin, layout, direction);
  return at::empty_symint(x.sym_sizes(), x.options());
}

}  // namespace

at::Tensor rotate(const at::Tensor& x_BTHD, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout,
                  std::string_view direction) {
  static const auto op = find_operator<decltype(rotate)>("roformer::rotate");
  return op.call(x_BTHD, cos, sin, layout, direction);
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) { library.impl("rotate", rotate_cpu); }

TORCH_LIBRARY_IMPL(roformer, Meta, library) { library.impl("rotate", rotate_meta); }

}  // namespace rf::ops
