// Cross-entropy with its gradient in place of the logits (masked_loss.h).
#include "masked_loss.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace rf::train {

namespace {

constexpr int64_t kRows = 8;  // rows of 50000 logits in float32 fill 1.6 MB, of 8000 an eighth of an L2 cache

// Returns the loss of rows [begin, begin + count) before the scale, and leaves their gradient in logits.
double rows_loss(const at::Tensor& logits_NV, const at::Tensor& labels_N, double scale, int64_t begin, int64_t count) {
  const at::Tensor rows = logits_NV.narrow(0, begin, count);
  const at::Tensor labels = labels_N.narrow(0, begin, count).unsqueeze(1);
  at::Tensor log_p = at::_log_softmax(rows.to(at::kFloat), 1, /*half_to_float=*/false);
  const double loss = -log_p.gather(1, labels).sum().item<float>();
  log_p.exp_().scatter_add_(1, labels, at::ones({count, 1}).neg_()).mul_(scale);
  rows.copy_(log_p);
  return loss;
}

class MaskedCrossEntropy : public torch::autograd::Function<MaskedCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits_NV,
                            const at::Tensor& labels_N, double scale) {
    const int64_t count = logits_NV.size(0), chunks = (count + kRows - 1) / kRows;
    at::Tensor gradient_NV = logits_NV.detach();
    std::vector<double> losses(static_cast<size_t>(chunks));
    at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
      const at::AutoDispatchBelowAutograd no_autograd;  // worker threads have a state of their own
      for (int64_t chunk = first; chunk < last; ++chunk) {
        const int64_t begin = chunk * kRows;
        losses[static_cast<size_t>(chunk)] =
            rows_loss(gradient_NV, labels_N, scale, begin, std::min(kRows, count - begin));
      }
    });
    context->saved_data["gradient"] = gradient_NV;
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return at::full({}, scale * sum, at::kFloat);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list outer) {
    at::Tensor gradient_NV = context->saved_data["gradient"].toTensor();
    const double factor = outer[0].item<float>();
    if (factor != 1.0) gradient_NV = gradient_NV.mul(factor);
    return {gradient_NV, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor masked_cross_entropy(const at::Tensor& logits_NV, const at::Tensor& labels_N, double scale) {
  return MaskedCrossEntropy::apply(logits_NV, labels_N, scale);
}

}  // namespace rf::train
