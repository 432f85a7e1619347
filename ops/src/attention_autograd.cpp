// First gradients of roformer::attention_kernel: its backward is a separate operator without gradients. Forward-mode
// differentiation is not supported.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "attention_operator.h"
#include "autograd.h"

namespace rf::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saved tensors before the inputs.
enum Saved : size_t {
  kQueryPositions,
  kKeyPositions,
  kMask,
  kQueryEnds,
  kKeyEnds,
  kPrefix,
  kOut,
  kLogSum,
  kFirstInput
};

void save_call(AutogradContext* ctx, const AttentionCall& call, const AttentionResult& result) {
  variable_list saved = {call.query_positions,     call.key_positions, call.mask,           call.packed.cu_seqlens_q,
                         call.packed.cu_seqlens_k, call.window.prefix, std::get<0>(result), std::get<1>(result)};
  for (const at::Tensor* input : inputs_of(call)) saved.push_back(*input);
  ctx->save_for_backward(std::move(saved));
  auto& data = ctx->saved_data;
  data["ranges"] = ranges_of(call.terms);
  data["layout"] = call.terms.layout;
  data["scale"] = call.terms.scale;
  data["window"] = std::vector<int64_t>{call.window.left, call.window.right};
  data["dropout"] = call.dropout.p;
  data["seed"] = call.dropout.seed;
  data["stream"] = call.dropout.stream;
}

AttentionCall saved_call(AutogradContext* ctx, const variable_list& saved) {
  auto& data = ctx->saved_data;
  const std::vector<int64_t> window = data["window"].toIntVector();
  AttentionCall call;
  auto next_input = saved.begin() + kFirstInput;
  for (at::Tensor* input : inputs_of(call)) *input = *next_input++;
  set_ranges(call.terms, data["ranges"].toIntVector());
  call.terms.layout = data["layout"].toStringRef();
  call.terms.scale = data["scale"].toOptional<double>();
  call.query_positions = saved[kQueryPositions], call.key_positions = saved[kKeyPositions];
  call.mask = saved[kMask];
  call.window = {window[0], window[1], saved[kPrefix]};
  call.dropout = {data["dropout"].toDouble(), data["seed"].toSymInt(), data["stream"].toSymInt()};
  call.packed = {saved[kQueryEnds], saved[kKeyEnds]};
  return call;
}

// Autograd sees only the given inputs; all other code sees a place for every input.
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
    AttentionBackward given{grads_of_results[0], saved[kOut], saved[kLogSum], {}};
    const auto inputs = inputs_of(call);
    size_t argument = 0;
    for (size_t i = 0; i < kInputs; ++i) {
      if (inputs[i]->defined()) given.wanted[i] = ctx->needs_input_grad(argument++);
    }
    const std::vector<at::Tensor> grads = dispatch_attention_backward(call, given);
    variable_list result;
    size_t next = 0;
    for (size_t i = 0; i < kInputs; ++i) {
      if (inputs[i]->defined()) result.push_back(given.wanted[i] ? grads[next++] : at::Tensor());
    }
    result.emplace_back();  // of the call
    return result;
  }
};

AttentionResult attention_autograd(const AttentionCall& call) {
  bool trained = false;
  variable_list given;
  for (const at::Tensor* x : inputs_of(call)) {
    if (!x->defined()) continue;
    check_no_tangent("attention", "q, k, v and terms", *x);
    trained = trained || needs_gradient(*x);
    given.push_back(*x);
  }
  if (!trained) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return dispatch_attention(call);
  }
  const variable_list results = AttentionFunction::apply(at::TensorList(given), call);
  return {results[0], results[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("attention_kernel", torch::CppFunction::makeFromBoxedFunction<attention_entry<attention_autograd>>());
}

}  // namespace rf::ops
