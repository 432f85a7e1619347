// Shared by the gradient kernels of all operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>

#include "dispatcher.h"

namespace rf::ops {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

inline bool needs_gradient(const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); }

// Without this check a tangent would be dropped silently.
inline void check_no_tangent(const char* where, const char* name, const std::optional<at::Tensor>& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(tensor), "[", where, "] ", name,
                              " must not carry a tangent: forward-mode differentiation is not implemented; got a "
                              "tensor that does. Hint: reverse mode, for example torch.autograd.grad");
}

// For arguments without a gradient.
inline void check_no_gradient(const char* where, const char* name, const std::optional<at::Tensor>& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!(tensor && needs_gradient(*tensor)), "[", where, "] ", name,
                              " must not require grad, got a tensor that does. Hint: ", name, ".detach()");
}

// For kernels that the backward of another order would call. how: where other derivatives are.
inline void check_first_derivative(const char* where, const char* how) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !at::GradMode::is_enabled(), "[", where,
      "] create_graph must be false: the kernel has first derivatives only, got true. Hint: ", how);
}

// Keeps `results` and the arguments of a call (dispatcher.h) for the backward.
template <class Call>
void save_call(AutogradContext* ctx, const Call& call, variable_list results) {
  const auto save = [&]<class Member>(const Member& member) {
    if constexpr (std::is_same_v<Member, at::Tensor>) {
      results.push_back(member);
    } else if constexpr (requires { member[0]->defined(); }) {
      for (const at::Tensor* each : member) results.push_back(*each);
    } else {
      ctx->saved_data[std::to_string(ctx->saved_data.size())] = to_value(member);
    }
  };
  for_each_argument(call, save);
  ctx->save_for_backward(std::move(results));
}

// The call and, in their places, the results that save_call kept.
template <class Call, size_t kResults>
Call saved_call(AutogradContext* ctx, std::array<at::Tensor, kResults>& results) {
  const variable_list saved = ctx->get_saved_variables();
  auto next = saved.begin();
  for (at::Tensor& result : results) result = *next++;
  size_t number = 0;
  Call call;
  const auto restore = [&]<class Member>(Member&& member) {
    if constexpr (std::is_same_v<Member, at::Tensor&>) {
      member = *next++;
    } else if constexpr (requires { member[0]->defined(); }) {
      for (at::Tensor* each : member) *each = *next++;
    } else {
      from_value(ctx->saved_data[std::to_string(number++)], "a list", member);
    }
  };
  for_each_argument(call, restore);
  return call;
}

// The wanted gradients, which follow each other in `grads`, in their places.
template <size_t kCount>
variable_list in_places(const std::array<bool, kCount>& wanted, const std::vector<at::Tensor>& grads) {
  variable_list result(kCount);
  size_t next = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (wanted[i]) result[i] = grads[next++];
  }
  return result;
}

// Gradients of an operator (dispatcher.h) by its backward operator, which is not differentiable. Operator also has
//
//   kWhere, kHint     the operator's name in messages; where derivatives of higher order are
//   inputs(call)      its differentiable arguments, an array of pointers; kInputNames: their names
//   kKept             the number of results that the backward reads, the first ones; only the first has gradients
//   backward          optional: computes the gradients of the inputs if the backward operator does not return them all
template <class Operator>
struct OperatorFunction : torch::autograd::Function<OperatorFunction<Operator>> {
  using Call = typename Operator::Call;

  // given: the inputs that are defined, among which autograd finds the tensors.
  static variable_list forward(AutogradContext* ctx, at::TensorList /*given*/, const Call& call) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    variable_list results = std::apply([](auto... each) { return variable_list{each...}; }, dispatch<Operator>(call));
    save_call(ctx, call, variable_list(results.begin(), results.begin() + Operator::kKept));
    ctx->mark_non_differentiable(variable_list(results.begin() + 1, results.end()));
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_first_derivative(Operator::kWhere, Operator::kHint);
    BackwardArguments<Operator::kKept, Operator::kInputNames.size()> given{.grad = grads[0]};
    const Call call = saved_call<Call>(ctx, given.results);
    const auto inputs = Operator::inputs(call);
    size_t argument = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]->defined()) given.wanted[i] = ctx->needs_input_grad(argument++);
    }
    variable_list found;
    if constexpr (requires { Operator::backward(given, call); }) {
      found = Operator::backward(given, call);
    } else {
      found = in_places(given.wanted, dispatch_backward<Operator>(given, call));
    }
    variable_list result;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]->defined()) result.push_back(found[i]);
    }
    result.emplace_back();  // of the call
    return result;
  }
};

// The results, with gradients where an input requires them.
template <class Operator>
typename Operator::Results with_gradients(const typename Operator::Call& call) {
  bool trained = false;
  variable_list given;
  const auto inputs = Operator::inputs(call);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_no_tangent(Operator::kWhere, Operator::kInputNames[i], *inputs[i]);
    if (!inputs[i]->defined()) continue;
    trained = trained || needs_gradient(*inputs[i]);
    given.push_back(*inputs[i]);
  }
  if (!trained) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return dispatch<Operator>(call);
  }
  const variable_list results = OperatorFunction<Operator>::apply(at::TensorList(given), call);
  return [&]<size_t... kIndices>(std::index_sequence<kIndices...>) {
    return typename Operator::Results(results[kIndices]...);
  }
  (std::make_index_sequence<std::tuple_size_v<typename Operator::Results>>());
}

}  // namespace rf::ops
