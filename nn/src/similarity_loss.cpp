// Loss for the similarity of texts in a batch (rf/nn/similarity_loss.h), also available as
// torch.ops.roformer.similarity_loss.
#include "rf/nn/similarity_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eye.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include "rf/io/error.h"
#include "script_terms.h"

namespace rf::nn {

at::Tensor similarity_loss(const at::Tensor& vectors_BC, double scale) {
  if (vectors_BC.dim() != 2 || !vectors_BC.is_floating_point() || vectors_BC.size(0) < 2 ||
      vectors_BC.size(0) % 2 != 0) {
    fail("similarity_loss", "vectors must be floating-point [2 pairs, C] with at least one pair, got {} {}",
         toString(vectors_BC.scalar_type()), c10::str(vectors_BC.sizes()));
  }
  constexpr double kMinSquare = 1e-12, kSelf = 1e12;
  const at::Tensor unit_BC = vectors_BC / vectors_BC.square().sum(1, /*keepdim=*/true).clamp_min(kMinSquare).sqrt();
  const int64_t rows = vectors_BC.size(0);
  const at::Tensor self_BB = at::eye(rows, unit_BC.options()) * kSelf;
  const at::Tensor scores_BB = (unit_BC.matmul(unit_BC.t()) - self_BB) * scale;
  const at::Tensor row_B = at::arange(rows, vectors_BC.options().dtype(at::kLong));
  return at::cross_entropy_loss(scores_BB, row_B + 1 - row_B.remainder(2) * 2);
}

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.def("similarity_loss(Tensor vectors, float scale=20.0) -> Tensor", [](const at::Tensor& x, double scale) {
    return with_value_errors([&] { return similarity_loss(x, scale); });
  });
}

}  // namespace rf::nn
