// torch.ops.roformer.attention: attention over terms for Python (python/roformer_cpp/attention.py has the defaults and
// the checks of Python arguments). Composed of differentiable operators, so it does not need an autograd function.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "attention_state.h"
#include "linear_attention_paths.h"
#include "rf/io/error.h"
#include "rf/nn/attention.h"
#include "rf/nn/linear_attention.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

constexpr const char* kAttentionSchema =
    "attention(Tensor q, Tensor k, Tensor v, " RF_SCRIPT_TERMS_SCHEMA
    ", Tensor positions, Tensor key_positions, Tensor? mask, int left, int right, Tensor? cu_seqlens, "
    "Tensor? cu_seqlens_k, str kernel, float dropout=0.0, int seed=0, Tensor? prefix=None, "
    "Tensor? sequences=None, int stream=0) -> Tensor";

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor script_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList tensors,
                            const std::vector<std::string>& names, at::IntArrayRef ranges, std::string_view layout,
                            std::optional<double> scale, const at::Tensor& positions, const at::Tensor& key_positions,
                            const MaybeTensor& mask, int64_t left, int64_t right, const MaybeTensor& cu_seqlens,
                            const MaybeTensor& cu_seqlens_k, std::string_view kernel, double dropout, int64_t seed,
                            const MaybeTensor& prefix, const MaybeTensor& sequences, int64_t stream) {
  return with_value_errors([&] {
    const TokenWindow window{left, right, prefix.value_or(at::Tensor())};
    DropoutKey key = DropoutKey::at(seed, stream);
    const Terms terms = terms_of({tensors, names, ranges, layout, scale});
    Positions where{token_positions(positions, "query"), {}};
    where.key = key_positions.is_same(positions) ? where.query : token_positions(key_positions, "key");
    if (cu_seqlens && mask) fail("attention", "packed sequences must not have a mask, got cu_seqlens and a mask");
    const Kernel wanted = kernel_of_name(kernel);
    const AttentionContext context =
        sequences ? AttentionContext::of_rows(where, *sequences, window)
        : cu_seqlens
            ? AttentionContext(where, CuSeqlens{*cu_seqlens, cu_seqlens_k.value_or(*cu_seqlens)}, window, wanted)
            : AttentionContext(where, mask.value_or(at::Tensor()), window, wanted);
    context.state().kernel = wanted;
    return attention(q, k, v, terms, context, dropout, &key);
  });
}

// Linear attention for Python (python/roformer_cpp/linear_attention.py): torch.ops.roformer.linear_attention and
// draw_features, used by the Python module LinearAttention. `options` are the keys of rf/nn/linear_attention.h as JSON.
// A state is passed as a list of its tensors, empty before the first key, and absent without a state.
constexpr const char* kLinearAttentionSchema =
    "linear_attention(Tensor q, Tensor k, Tensor v, " RF_SCRIPT_TERMS_SCHEMA
    ", str options, Tensor? projection, bool causal, Tensor? key_mask, Tensor? sequences, Tensor[]? state, "
    "str kernel=\"auto\") -> (Tensor, Tensor[])";

using Tensors = std::vector<at::Tensor>;
using MaybeTensors = std::optional<Tensors>;       // sum, norm and, if the map uses one, maximum
using Attended = std::tuple<at::Tensor, Tensors>;  // the output and the new state

LinearAttentionState read_state(const Tensors& given) {
  if (given.size() != 0 && given.size() != 2 && given.size() != 3) {
    fail(kLinearAttention, "a state must have no tensors, 2 or 3, got {}", given.size());
  }
  const auto at_place = [&](size_t i) { return i < given.size() ? given[i] : at::Tensor(); };
  return {at_place(0), at_place(1), at_place(2)};
}

Tensors written(const LinearAttentionState& state) {
  Tensors tensors;
  for (const at::Tensor& x : {state.sum_BHFD, state.norm_BHF1, state.maximum_BH}) {
    if (x.defined()) tensors.push_back(x);
  }
  return tensors;
}

Attended attend_once(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList tensors,
                     const std::vector<std::string>& names, at::IntArrayRef ranges, std::string_view layout,
                     std::optional<double> scale, std::string_view options, const MaybeTensor& projection, bool causal,
                     const MaybeTensor& key_mask, const MaybeTensor& sequences, const MaybeTensors& state,
                     std::string_view kernel) {
  return with_value_errors([&] {
    const LinearAttentionConfig config = parse_linear_attention({"linear", std::string(options)});
    const ops::Terms terms = terms_of({tensors, names, ranges, layout, scale});
    LinearAttentionState sums;
    if (state) sums = read_state(*state);
    const LinearAttentionCall call{.direction = causal ? Direction::kCausal : Direction::kBidirectional,
                                   .key_mask_BS = key_mask.value_or(at::Tensor()),
                                   .sequence_ids_BS = sequences.value_or(at::Tensor()),
                                   .state = state ? &sums : nullptr,
                                   .kernel = kernel_of_name(kernel)};
    const at::Tensor out = linear_attention(q, k, v, terms, config, projection.value_or(at::Tensor()), call);
    return Attended{out, written(sums)};
  });
}

int64_t feature_dim_of(const std::string& options, int64_t head_dim) {
  return with_value_errors([&] { return feature_dim(parse_linear_attention({"linear", options}), head_dim); });
}

at::Tensor draw(int64_t count, int64_t head_dim, bool orthogonal, int64_t scaling, int64_t seed, int64_t layer,
                int64_t redraw) {
  return with_value_errors([&] { return draw_features(count, head_dim, {orthogonal, scaling, seed, layer, redraw}); });
}

// The random vectors of a layer (empty if the map uses none), and the number of calls after which they are redrawn.
std::tuple<at::Tensor, int64_t> draws_of(const std::string& options, int64_t head_dim, int64_t layer, int64_t redraw) {
  return with_value_errors([&]() -> std::tuple<at::Tensor, int64_t> {
    const LinearAttentionConfig config = parse_linear_attention({"linear", options});
    if (!config.draws()) return {at::empty({0, head_dim}, at::kFloat), 0};
    const FeatureDraw drawn{config.orthogonal, config.orthogonal_scaling, config.seed, layer, redraw};
    return {draw_features(num_features(config, head_dim), head_dim, drawn).to(at::kFloat), config.redraw_every};
  });
}

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.def(kAttentionSchema, script_attention);
  library.def(kLinearAttentionSchema, attend_once);
  library.def("linear_attention_feature_dim", feature_dim_of);
  library.def("linear_attention_draws", draws_of);
  library.def("draw_features", draw);
}

// This key tells torch.vmap how to decompose a call.
TORCH_LIBRARY_IMPL(roformer, FuncTorchBatchedDecomposition, library) {
  library.impl("attention", script_attention);
  library.impl("linear_attention", attend_once);
}

}  // namespace

}  // namespace rf::nn
