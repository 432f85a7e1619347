// Gradients of roformer::rope, roformer::rope_ and roformer::dropout (spec R-ROPE-07).
//
//   y = M x   =>   dx = M^T dy        M = R, R^T or R^-1;  R = s Q with Q a rotation, for elements before rotary_dim
//   R^T:     direction "transpose"
//   (R^T)^T: direction "forward"
//   (R^-1)^T = Q / s: direction "forward" with scale 1/s
//
// Each is the same operator, called through the dispatcher, so gradients of any order follow. Dropout is its own
// transpose. rotate_autograd.cpp handles trained frequencies. Positions get no gradient, and forward-mode
// differentiation is not supported.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "autograd.h"
#include "dispatch.h"

namespace rf::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_differentiable(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options) {
  check_no_tangent("rope", "x", x);
  check_no_tangent("rope", "positions", positions);
  check_no_tangent("rope", "freqs", options.freqs);
  check_no_gradient("rope", "positions", positions);
}

bool frequencies_are_trained(const RopeOptions& options) { return options.freqs && needs_gradient(*options.freqs); }

// Saves positions, frequencies and the options of the transposed operator for the backward.
void save_transposed(AutogradContext* ctx, const at::Tensor& positions, const RopeOptions& o) {
  ctx->save_for_backward({positions, o.freqs.value_or(at::Tensor())});
  ctx->saved_data["layout"] = std::string(o.layout);
  ctx->saved_data["base"] = o.base;
  ctx->saved_data["rotary_dim"] = o.rotary_dim;
  ctx->saved_data["heads_first"] = o.heads_first;
  ctx->saved_data["scale"] = o.direction == "inverse" ? 1.0 / o.scale : o.scale;
  ctx->saved_data["direction"] = std::string(o.direction == "forward" ? "transpose" : "forward");
}

at::Tensor apply_transposed(AutogradContext* ctx, const at::Tensor& grad) {
  const variable_list saved = ctx->get_saved_variables();
  auto& data = ctx->saved_data;
  const std::string layout = data["layout"].toStringRef(), direction = data["direction"].toStringRef();
  RopeOptions options;
  options.layout = layout;
  options.base = data["base"].toDouble();
  if (saved[1].defined()) options.freqs = saved[1];
  options.scale = data["scale"].toDouble();
  options.rotary_dim = data["rotary_dim"].toOptional<int64_t>();
  options.heads_first = data["heads_first"].toBool();
  options.direction = direction;
  return rope(grad, saved[0], options);
}

// One undefined gradient for each argument of forward, except the first tensor's.
variable_list gradients(at::Tensor first, size_t arguments) {
  variable_list result(arguments);
  result[0] = std::move(first);
  return result;
}

struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& positions,
                            const RopeOptions& options) {
    save_transposed(ctx, positions, options);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return rope(x, positions, options);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return gradients(apply_transposed(ctx, grads[0]), 3);
  }
};

struct RopeInplaceFunction : torch::autograd::Function<RopeInplaceFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& positions,
                            const RopeOptions& options) {
    save_transposed(ctx, positions, options);
    ctx->mark_dirty({x});
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      rope_(x, positions, options);
    }
    return x;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return gradients(apply_transposed(ctx, grads[0]), 3);
  }
};

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double p, const c10::SymInt& seed,
                            const c10::SymInt& stream) {
    ctx->saved_data["p"] = p;
    ctx->saved_data["seed"] = seed;
    ctx->saved_data["stream"] = stream;
    const at::AutoDispatchBelowADInplaceOrView guard;
    return dispatch_dropout(x, p, seed, stream);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto& data = ctx->saved_data;
    return gradients(
        dispatch_dropout(grads[0], data["p"].toDouble(), data["seed"].toSymInt(), data["stream"].toSymInt()), 4);
  }
};

at::Tensor rope_autograd(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options) {
  check_differentiable(x, positions, options);
  if (frequencies_are_trained(options)) return rope_by_rows(x, positions, options);
  if (needs_gradient(x)) return RopeFunction::apply(x, positions, options);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return rope(x, positions, options);
}

void rope_autograd_inplace(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options) {
  check_differentiable(x, positions, options);
  if (frequencies_are_trained(options)) {
    torch::autograd::check_inplace(x, /*requires_grad=*/true);
    x.copy_(rope_by_rows(x.clone(), positions, options));  // the gradient of freqs needs the original x
    return;
  }
  torch::autograd::check_inplace(x, needs_gradient(x));
  if (needs_gradient(x)) {
    RopeInplaceFunction::apply(x, positions, options);
    return;
  }
  const at::AutoDispatchBelowAutograd guard;
  rope_(x, positions, options);
}

// The version of x counts its changes; autograd refuses a backward through a value that was overwritten.
void rope_version_inplace(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options) {
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    rope_(x, positions, options);
  }
  torch::autograd::increment_version(x);
}

at::Tensor dropout_autograd(const at::Tensor& x, double p, c10::SymInt seed, c10::SymInt stream) {
  check_no_tangent("dropout", "x", x);
  if (needs_gradient(x)) return DropoutFunction::apply(x, p, seed, stream);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return dispatch_dropout(x, p, seed, stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("rope", rope_kernel<at::Tensor, rope_autograd>);
  library.impl("rope_", rope_kernel<void, rope_autograd_inplace>);
  library.impl("dropout", dropout_autograd);
}

TORCH_LIBRARY_IMPL(roformer, ADInplaceOrView, library) {
  library.impl("rope_", rope_kernel<void, rope_version_inplace>);
}

}  // namespace rf::ops
