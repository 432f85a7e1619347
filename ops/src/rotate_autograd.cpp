// Gradients of roformer::rotate and roformer::rope_table, and of roformer::rope with trained frequencies, which calls
// rope_table and then rotate (spec R-ROPE-07, R-ROPE-12).
//
//   rotate:      y_a = c x_a - s x_b      dx = R^T dy      dc = sum over heads (x_a dy_a + x_b dy_b)
//                y_b = s x_a + c x_b                       ds = sum over heads (x_a dy_b - x_b dy_a)
//   transposed:  s is -s above            dx = R dy        dc the same, ds negated
//   rope_table:  c = scale cos(p theta), s = scale sin(p theta)       dtheta = sum over tokens p (c ds - s dc)
//
// Sums go over the sequences too if they share rows. The backward consists of differentiable calls, so gradients of any
// order follow. Positions and low parts of frequencies get no gradient, and forward-mode differentiation is not
// supported.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/slice.h>

#include "autograd.h"
#include "dispatch.h"
#include "rf/ops/terms.h"

namespace rf::ops {
namespace {

// The elements a and b of every pair, [.., R/2] each, in the dtype of the rows.
struct PairElements {
  at::Tensor a, b;
  PairElements(const at::Tensor& x, const at::Tensor& rows, std::string_view layout) {
    const c10::SymInt n = rows.sym_size(-1);
    const at::Tensor x_rows = x.to(rows.scalar_type());
    const bool pairs = layout == "pairs";
    const int64_t step = pairs ? 2 : 1;
    a = at::slice_symint(x_rows, -1, 0, pairs ? 2 * n : n, step);
    b = at::slice_symint(x_rows, -1, pairs ? c10::SymInt(1) : n, 2 * n, step);
  }
};

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            std::string_view layout, std::string_view direction) {
    const bool rows_are_trained = cos.requires_grad() || sin.requires_grad();
    ctx->save_for_backward({rows_are_trained ? x : at::Tensor(), cos, sin});
    ctx->saved_data["layout"] = std::string(layout);
    ctx->saved_data["direction"] = std::string(direction);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return rotate(x, cos, sin, layout, direction);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &dy = grads[0], &x = saved[0], &cos = saved[1], &sin = saved[2];
    const std::string layout = ctx->saved_data["layout"].toStringRef();
    const bool forward = ctx->saved_data["direction"].toStringRef() == "forward";
    at::Tensor dx, dcos, dsin;
    if (ctx->needs_input_grad(0)) dx = rotate(dy, cos, sin, layout, forward ? "transpose" : "forward");
    if (x.defined()) {
      const PairElements from(x, cos, layout), to(dy, cos, layout);
      if (ctx->needs_input_grad(1)) {
        dcos = (from.a * to.a + from.b * to.b).sum(-2).sum_to_size_symint(cos.sym_sizes());
      }
      if (ctx->needs_input_grad(2)) {
        const at::Tensor products = forward ? from.a * to.b - from.b * to.a : from.b * to.a - from.a * to.b;
        dsin = products.sum(-2).sum_to_size_symint(sin.sym_sizes());
      }
    }
    return {dx, dcos, dsin, {}, {}};
  }
};

struct RopeTableFunction : torch::autograd::Function<RopeTableFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& freqs, const RopeTableCall& call) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [cos, sin] = dispatch<RopeTableOperator>(call);
    ctx->save_for_backward({call.positions, cos, sin});
    ctx->saved_data["shape"] = freqs.sym_sizes();
    return {cos, sin};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor position = saved[0].to(at::kDouble).unsqueeze(-1);
    const at::Tensor cos = saved[1].to(at::kDouble), sin = saved[2].to(at::kDouble);
    const at::Tensor dangle = cos * grads[1] - sin * grads[0];
    return {(dangle * position).sum_to_size_symint(ctx->saved_data["shape"].toSymIntVector()), {}};
  }
};

at::Tensor rotate_autograd(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout,
                           std::string_view direction) {
  check_no_tangent("rotate", "x", x);
  check_no_tangent("rotate", "cos", cos);
  check_no_tangent("rotate", "sin", sin);
  if (needs_gradient(x) || needs_gradient(cos) || needs_gradient(sin)) {
    return RotateFunction::apply(x, cos, sin, layout, direction);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return rotate(x, cos, sin, layout, direction);
}

RopeTableOperator::Results rope_table_autograd(const RopeTableCall& call) {
  check_no_tangent("rope_table", "freqs", call.freqs);
  for (const auto& [x, name] : {std::pair{&call.positions, "positions"}, {&call.freqs_lo, "freqs_lo"}}) {
    check_no_tangent("rope_table", name, *x);
    check_no_gradient("rope_table", name, *x);
  }
  if (needs_gradient(call.freqs)) {
    const variable_list rows = RopeTableFunction::apply(call.freqs, call);
    return {rows[0], rows[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return dispatch<RopeTableOperator>(call);
}

}  // namespace

at::Tensor rope_by_rows(const RopeCall& o) {
  check_rope_arguments(o);
  const at::Tensor &x = o.x, &positions = o.positions;
  const double scale = o.direction == "inverse" ? 1 / o.scale : o.scale;
  const auto [cos, sin] = rope_table(positions.dim() == 1 ? positions.unsqueeze(0) : positions, o.freqs, {}, scale,
                                     row_dtype(x.scalar_type()));
  const at::Tensor tokens_first = o.heads_first ? x.transpose(-3, -2) : x;
  const at::Tensor x_BTHD = x.dim() == 3 ? tokens_first.unsqueeze(0) : tokens_first.flatten(0, x.dim() - 4);
  const at::Tensor y_BTHD = rotate(x_BTHD, cos, sin, o.layout, o.direction == "forward" ? "forward" : "transpose");
  const at::Tensor y = y_BTHD.reshape_symint(tokens_first.sym_sizes());
  return o.heads_first ? y.transpose(-3, -2).contiguous() : y;
}

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("rotate", rotate_autograd);
  library.impl("rope_table", boxed<rope_table_autograd>());
}

}  // namespace rf::ops
