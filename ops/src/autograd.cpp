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
#include "autograd.h"
#include "dispatch.h"

namespace rf::ops {
namespace {

void check_differentiable(const RopeCall& call) {
  check_no_tangent("rope", "x", call.x);
  check_no_tangent("rope", "positions", call.positions);
  check_no_tangent("rope", "freqs", call.freqs);
  check_no_gradient("rope", "positions", call.positions);
}

bool frequencies_are_trained(const RopeCall& call) { return call.freqs.defined() && needs_gradient(call.freqs); }

// The call of the transposed operator.
RopeCall transposed(RopeCall call) {
  if (call.direction == "inverse") call.scale = 1.0 / call.scale;
  call.direction = call.direction == "forward" ? "transpose" : "forward";
  return call;
}
DropoutCall transposed(const DropoutCall& call) { return call; }

// An operator that is linear in x. The x of the call is also a separate argument, where autograd looks for it.
template <class Operator>
struct TransposableFunction : torch::autograd::Function<TransposableFunction<Operator>> {
  using Call = typename Operator::Call;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*x*/, const Call& call) {
    save_transposed(ctx, call);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return std::get<0>(dispatch<Operator>(call));
  }
  static void save_transposed(AutogradContext* ctx, const Call& call) {
    Call without_x = transposed(call);
    without_x.x = at::Tensor();
    save_call(ctx, without_x, {});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    std::array<at::Tensor, 0> none;
    Call call = saved_call<Call>(ctx, none);
    call.x = grads[0];
    return {std::get<0>(dispatch<Operator>(call)), {}};
  }
};
using RopeFunction = TransposableFunction<RopeOperator>;
using DropoutFunction = TransposableFunction<DropoutOperator>;

struct RopeInplaceFunction : torch::autograd::Function<RopeInplaceFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const RopeCall& call) {
    RopeFunction::save_transposed(ctx, call);
    ctx->mark_dirty({x});
    const at::AutoDispatchBelowADInplaceOrView guard;
    dispatch<RopeInplaceOperator>(call);
    return x;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return RopeFunction::backward(ctx, grads);
  }
};

std::tuple<at::Tensor> rope_autograd(const RopeCall& call) {
  check_differentiable(call);
  if (frequencies_are_trained(call)) return rope_by_rows(call);
  if (needs_gradient(call.x)) return RopeFunction::apply(call.x, call);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return dispatch<RopeOperator>(call);
}

std::tuple<> rope_autograd_inplace(const RopeCall& call) {
  check_differentiable(call);
  if (frequencies_are_trained(call)) {
    torch::autograd::check_inplace(call.x, /*requires_grad=*/true);
    RopeCall copied = call;  // the gradient of freqs needs the original x
    copied.x = call.x.clone();
    call.x.copy_(rope_by_rows(copied));
    return {};
  }
  torch::autograd::check_inplace(call.x, needs_gradient(call.x));
  if (needs_gradient(call.x)) {
    RopeInplaceFunction::apply(call.x, call);
    return {};
  }
  const at::AutoDispatchBelowAutograd guard;
  return dispatch<RopeInplaceOperator>(call);
}

// The version of x counts its changes; autograd refuses a backward through a value that was overwritten.
std::tuple<> rope_version_inplace(const RopeCall& call) {
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    dispatch<RopeInplaceOperator>(call);
  }
  torch::autograd::increment_version(call.x);
  return {};
}

std::tuple<at::Tensor> dropout_autograd(const DropoutCall& call) {
  check_no_tangent("dropout", "x", call.x);
  if (needs_gradient(call.x)) return DropoutFunction::apply(call.x, call);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return dispatch<DropoutOperator>(call);
}

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("rope", boxed<rope_autograd>());
  library.impl("rope_", boxed<rope_autograd_inplace>());
  library.impl("dropout", boxed<dropout_autograd>());
}

TORCH_LIBRARY_IMPL(roformer, ADInplaceOrView, library) { library.impl("rope_", boxed<rope_version_inplace>()); }

}  // namespace rf::ops
