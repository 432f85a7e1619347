// First gradients of roformer::attention_kernel: its backward is an operator of its own, which has no gradients. For
// float32, bfloat16 and float16 rotations have none either; callers rotate by roformer::rotate where they are trained.
// There is no forward-mode differentiation.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "attention_operator.h"
#include "autograd.h"

namespace rf::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What stands before the inputs in the tensors that are saved.
enum Saved : size_t { kQueryPositions, kKeyPositions, kAttend, kQueryEnds, kKeyEnds, kOut, kLogSum, kFirstInput };

void save_call(AutogradContext* ctx, const AttentionCall& call, const AttentionResult& result) {
  variable_list saved = {call.query_positions,     call.key_positions,       call.attend.value_or(at::Tensor()),
                         call.packed.cu_seqlens_q, call.packed.cu_seqlens_k, std::get<0>(result),
                         std::get<1>(result)};
  saved.insert(saved.end(), call.inputs.begin(), call.inputs.end());
  ctx->save_for_backward(std::move(saved));
  auto& data = ctx->saved_data;
  data["ranges"] = std::vector<int64_t>(call.ranges.begin(), call.ranges.end());
  data["layout"] = call.layout;
  data["scale"] = call.scale;
  data["window"] = std::vector<int64_t>{call.window.left, call.window.right};
  data["dropout"] = call.dropout;
  data["seed"] = call.seed;
  data["stream"] = call.stream;
}

AttentionCall saved_call(AutogradContext* ctx, const variable_list& saved) {
  auto& data = ctx->saved_data;
  const std::vector<int64_t> window = data["window"].toIntVector();
  Inputs inputs;
  std::copy(saved.begin() + kFirstInput, saved.end(), inputs.begin());
  return {.inputs = std::move(inputs),
          .query_positions = saved[kQueryPositions],
          .key_positions = saved[kKeyPositions],
          .attend = saved[kAttend].defined() ? std::optional(saved[kAttend]) : std::nullopt,
          .ranges = ranges_of(data["ranges"].toIntVector()),
          .layout = data["layout"].toStringRef(),
          .scale = data["scale"].toOptional<double>(),
          .window = {window[0], window[1]},
          .packed = {saved[kQueryEnds], saved[kKeyEnds]},
          .dropout = data["dropout"].toDouble(),
          .seed = data["seed"].toSymInt(),
          .stream = data["stream"].toSymInt()};
}

// Autograd knows the inputs that are given only; everything else sees a place for each.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* ctx, at::TensorList /*given*/, const AttentionCall& call) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const AttentionResult result = dispatch_attention(call);
    save_call(ctx, call, result);
    ctx->mark_non_differentiable({std::get<1>(result)});
    return {std::get<0>(result), std::get<1>(result)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads_of_results) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "[attention] create_graph must be false: the fused kernel and the reference have first "
                                "derivatives only, got true. Hint: kernel explicit has derivatives of any order");
    const variable_list saved = ctx->get_saved_variables();
    const AttentionCall call = saved_call(ctx, saved);
    Wanted wanted{};
    size_t given = 0;
    for (size_t i = 0; i < kInputs; ++i) {
      if (call.inputs[i].defined()) wanted[i] = ctx->needs_input_grad(given++);
    }
    const std::vector<at::Tensor> grads =
        dispatch_attention_backward(call, grads_of_results[0], saved[kOut], saved[kLogSum], wanted);
    variable_list result;
    size_t next = 0;
    for (size_t i = 0; i < kInputs; ++i) {
      if (call.inputs[i].defined()) result.push_back(wanted[i] ? grads[next++] : at::Tensor());
    }
    result.emplace_back();  // of the call
    return result;
  }
};

AttentionResult attention_autograd(const AttentionCall& call) {
  bool trained = false;
  variable_list given;
  for (const at::Tensor& x : call.inputs) {
    if (!x.defined()) continue;
    check_no_tangent("attention", "q, k, v and terms", x);
    trained = trained || needs_gradient(x);
    given.push_back(x);
  }
  if (!trained) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return dispatch_attention(call);
  }
  for (size_t i = kQueryCos; i <= kValueSin && call.q().scalar_type() != at::kDouble; ++i) {
    if (call.inputs[i].defined()) check_no_gradient("attention", "a rotation", call.inputs[i]);
  }
  const variable_list results = AttentionFunction::apply(at::TensorList(given), call);
  return {results[0], results[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("attention_kernel", AttentionKernel<attention_autograd>::run);
}

}  // namespace rf::ops
