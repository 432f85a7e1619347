// Linear attention for Python (python/roformer_cpp/linear_attention.py): torch.ops.roformer.linear_attention and
// draw_features, torch.classes.roformer.LinearAttention. `options` are the keys of rf/nn/linear_attention.h as JSON; a
// state crosses as a dictionary, empty before the first key, and absent where there is none.
#include <torch/custom_class.h>

#include "rf/nn/linear_attention.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

constexpr const char* kLinearAttentionSchema =
    "linear_attention(Tensor q, Tensor k, Tensor v, Dict(str, Tensor) terms, str options, Tensor? projection, "
    "bool causal, Tensor? key_mask, Tensor? sequences, Dict(str, Tensor)? state, str kernel=\"auto\") -> "
    "(Tensor, Dict(str, Tensor))";

using MaybeTensor = std::optional<at::Tensor>;
using MaybeDict = std::optional<TensorDict>;
using Attended = std::tuple<at::Tensor, TensorDict>;  // the output, the state after it

at::Tensor entry(const TensorDict& dict, const char* name) {
  return dict.contains(name) ? dict.at(name) : at::Tensor();
}

TensorDict state_dict(const LinearAttentionState& state) {
  TensorDict dict;
  if (state.sum_BHFD.defined()) dict.insert("sum", state.sum_BHFD);
  if (state.norm_BHF1.defined()) dict.insert("norm", state.norm_BHF1);
  if (state.maximum_BH.defined()) dict.insert("maximum", state.maximum_BH);
  return dict;
}

// attend(call) with the state, if there is one, taken from its dictionary and put back.
template <typename Attend>
Attended with_state(bool causal, const MaybeTensor& key_mask, const MaybeTensor& sequences, const MaybeDict& given,
                    std::string_view kernel, const Attend& attend) {
  LinearAttentionState state;
  if (given) state = {entry(*given, "sum"), entry(*given, "norm"), entry(*given, "maximum")};
  const at::Tensor out = attend({.direction = causal ? Direction::kCausal : Direction::kBidirectional,
                                 .key_mask_BS = key_mask.value_or(at::Tensor()),
                                 .sequences_BS = sequences.value_or(at::Tensor()),
                                 .state = given ? &state : nullptr,
                                 .kernel = kernel_of_name(kernel)});
  return {out, state_dict(state)};
}

Attended attend_once(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const TensorDict& terms,
                     std::string_view options, const MaybeTensor& projection, bool causal, const MaybeTensor& key_mask,
                     const MaybeTensor& sequences, const MaybeDict& state, std::string_view kernel) {
  const LinearAttentionConfig config = parse_linear_attention({"linear", std::string(options)});
  return with_state(causal, key_mask, sequences, state, kernel, [&](const LinearAttentionCall& call) {
    return linear_attention(q, k, v, terms_of_dict(terms), config, projection.value_or(at::Tensor()), call);
  });
}

struct ScriptLinearAttention : torch::CustomClassHolder {
  ScriptLinearAttention(const std::string& options, int64_t head_dim, int64_t layer)
      : module(std::make_shared<LinearAttention>(parse_linear_attention({"linear", options}), head_dim, layer)) {}

  Attended forward(bool training, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const TensorDict& terms, bool causal, const MaybeTensor& key_mask, const MaybeTensor& sequences,
                   const MaybeDict& state, const std::string& kernel) const {
    module->train(training);
    return with_state(causal, key_mask, sequences, state, kernel, [&](const LinearAttentionCall& call) {
      return module->forward(q, k, v, terms_of_dict(terms), call);
    });
  }

  std::shared_ptr<LinearAttention> module;
};

int64_t feature_dim_of(const std::string& options, int64_t head_dim) {
  return feature_dim(parse_linear_attention({"linear", options}), head_dim);
}

at::Tensor draw(int64_t count, int64_t head_dim, bool orthogonal, int64_t scaling, int64_t seed, int64_t layer,
                int64_t redraw) {
  return draw_features(count, head_dim, {orthogonal, scaling, seed, layer, redraw});
}

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.def(kLinearAttentionSchema, attend_once);
  library.def("linear_attention_feature_dim", feature_dim_of);
  library.def("draw_features", draw);
  library.class_<ScriptLinearAttention>("LinearAttention")
      .def(torch::init<std::string, int64_t, int64_t>())
      .def("forward", &ScriptLinearAttention::forward)
      .def("named_buffers",
           [](const c10::intrusive_ptr<ScriptLinearAttention>& self) { return named(self->module->named_buffers()); });
}

}  // namespace

}  // namespace rf::nn
