// torch.ops.roformer.attention: attention over terms for Python (python/roformer_cpp/attention.py has the defaults and
// the checks of Python arguments). Composed of differentiable operators, so it does not need an autograd function.
#include <torch/library.h>

#include "rf/io/error.h"
#include "rf/nn/attention.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

constexpr const char* kAttentionSchema =
    "attention(Tensor q, Tensor k, Tensor v, " RF_SCRIPT_TERMS_SCHEMA
    ", Tensor positions, Tensor key_positions, Tensor? mask, int left, int right, Tensor? cu_seqlens, "
    "Tensor? cu_seqlens_k, str kernel, float dropout=0.0, int seed=0, Tensor? prefix=None) -> Tensor";

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor script_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList tensors,
                            const std::vector<std::string>& names, at::IntArrayRef ranges, std::string_view layout,
                            std::optional<double> scale, const at::Tensor& positions, const at::Tensor& key_positions,
                            const MaybeTensor& mask, int64_t left, int64_t right, const MaybeTensor& cu_seqlens,
                            const MaybeTensor& cu_seqlens_k, std::string_view kernel, double dropout, int64_t seed,
                            const MaybeTensor& prefix) {
  return with_value_errors([&] {
    const TokenWindow window{left, right, prefix.value_or(at::Tensor())};
    DropoutKey key{.seed = static_cast<uint64_t>(seed)};
    const AttentionDropout drop{.p = dropout, .key = &key};
    const Terms terms = terms_of({tensors, names, ranges, layout, scale});
    Positions where{token_positions(positions, "query"), {}};
    where.key = key_positions.is_same(positions) ? where.query : token_positions(key_positions, "key");
    if (cu_seqlens) {
      if (mask) fail("attention", "packed sequences must not have a mask, got cu_seqlens and a mask");
      return packed_attention(q, k, v, terms, where, window, {*cu_seqlens, cu_seqlens_k.value_or(*cu_seqlens)},
                              kernel_of_name(kernel), drop);
    }
    const AttentionContext context(where, mask.value_or(at::Tensor()), window, kernel_of_name(kernel));
    return attention(q, k, v, terms, context, drop);
  });
}

TORCH_LIBRARY_FRAGMENT(roformer, library) { library.def(kAttentionSchema, script_attention); }

// This key tells torch.vmap how to decompose a call.
TORCH_LIBRARY_IMPL(roformer, FuncTorchBatchedDecomposition, library) { library.impl("attention", script_attention); }

}  // namespace

}  // namespace rf::nn
