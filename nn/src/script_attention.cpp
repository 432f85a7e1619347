// torch.ops.roformer.attention: attention over terms for Python (python/roformer_cpp/attention.py, which has the
// defaults and checks what is Python's). Composed of differentiable operators, so that autograd needs nothing of its
// own.
#include <torch/library.h>

#include "rf/io/error.h"
#include "rf/nn/attention.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

constexpr const char* kAttentionSchema =
    "attention(Tensor q, Tensor k, Tensor v, Dict(str, Tensor) terms, Tensor positions, Tensor key_positions, "
    "Tensor? mask, int left, int right, Tensor? cu_seqlens, Tensor? cu_seqlens_k, str kernel) -> Tensor";

at::Tensor script_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const TensorDict& terms,
                            const at::Tensor& positions, const at::Tensor& key_positions,
                            const std::optional<at::Tensor>& mask, int64_t left, int64_t right,
                            const std::optional<at::Tensor>& cu_seqlens, const std::optional<at::Tensor>& cu_seqlens_k,
                            std::string_view kernel) {
  const Positions where = make_positions(positions, key_positions);
  if (cu_seqlens) {
    if (mask) fail("attention", "packed sequences must not have a mask, got cu_seqlens and a mask");
    return packed_attention(q, k, v, terms_of_dict(terms), where, {left, right},
                            {*cu_seqlens, cu_seqlens_k.value_or(*cu_seqlens)}, kernel_of_name(kernel));
  }
  const AttentionContext context(where, mask.value_or(at::Tensor()), {left, right}, kernel_of_name(kernel));
  return attention(q, k, v, terms_of_dict(terms), context);
}

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.def(kAttentionSchema, script_attention);
}

}  // namespace

}  // namespace rf::nn
