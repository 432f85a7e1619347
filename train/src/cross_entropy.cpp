// Cross-entropy with its gradient in place of the logits (cross_entropy.h).
#include "cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include "rf/rows.h"

namespace rf::train {

namespace {

void check(rf_status status) { TORCH_CHECK(status == RF_OK, rf_last_error()); }

enum class Gradient { kNone, kInLogits };

// The sum of losses before the scale. kInLogits: the gradient of the scaled sum is left in logits.
double sum_losses(const at::Tensor& logits_NV, const at::Tensor& labels_N, Gradient gradient, double scale) {
  const bool is_known = logits_NV.scalar_type() == at::kFloat || logits_NV.scalar_type() == at::kBFloat16;
  TORCH_CHECK(is_known && logits_NV.is_contiguous(), "logits must be float32 or bfloat16 and contiguous, got ",
              logits_NV.scalar_type());
  const at::Tensor losses_N = at::empty(labels_N.sizes(), at::kFloat),
                   log_sums_N = at::empty_like(losses_N, at::kDouble);
  const at::Tensor labels = labels_N.contiguous();
  rf_cross_entropy_args args{};
  args.struct_size = sizeof args;
  args.dtype = logits_NV.scalar_type() == at::kBFloat16 ? RF_BF16 : RF_F32;
  args.rows = logits_NV.size(0);
  args.columns = args.logits_stride = logits_NV.size(1);
  args.logits = logits_NV.const_data_ptr();
  args.targets = labels.const_data_ptr<int64_t>();
  args.ignore_index = -1;
  args.loss = losses_N.mutable_data_ptr();
  args.log_sum = log_sums_N.mutable_data_ptr<double>();
  check(rf_cross_entropy_forward(&args));
  const double sum = losses_N.sum(at::kDouble).item<double>();
  if (gradient == Gradient::kNone) return sum;
  const auto weight = static_cast<float>(scale);
  rf_cross_entropy_grads grads{};
  grads.struct_size = sizeof grads;
  grads.loss = &weight;
  grads.logits = logits_NV.mutable_data_ptr();
  grads.logits_stride = args.logits_stride;
  check(rf_cross_entropy_backward(&args, &grads));
  return sum;
}

// Sum over n of the label's logit minus the mean of all.
double sum_above_mean(const at::Tensor& logits_NV, const at::Tensor& labels_N) {
  const at::Tensor of_labels_N = logits_NV.gather(1, labels_N.unsqueeze(1)).to(at::kDouble);
  const at::Tensor means_N = logits_NV.sum(at::IntArrayRef{1}, false, at::kFloat) / logits_NV.size(1);
  return of_labels_N.sum().item<double>() - means_N.sum(at::kDouble).item<double>();
}

class ScaledCrossEntropy : public torch::autograd::Function<ScaledCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits_NV,
                            const at::Tensor& labels_N, double scale, double label_smoothing) {
    const at::Tensor gradient_NV = logits_NV.detach();
    double sum = label_smoothing > 0 ? label_smoothing * sum_above_mean(gradient_NV, labels_N) : 0;
    sum += sum_losses(gradient_NV, labels_N, Gradient::kInLogits, scale);
    if (label_smoothing > 0) {
      const double part = scale * label_smoothing;
      gradient_NV.sub_(part / static_cast<double>(gradient_NV.size(1)));
      gradient_NV.scatter_add_(1, labels_N.unsqueeze(1), at::full({labels_N.size(0), 1}, part, gradient_NV.options()));
    }
    context->saved_data["gradient"] = gradient_NV;
    return at::full({}, scale * sum, at::kFloat);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list outer) {
    at::Tensor gradient_NV = context->saved_data["gradient"].toTensor();
    const double factor = outer[0].item<float>();
    if (factor != 1.0) gradient_NV = gradient_NV.mul(factor);
    return {gradient_NV, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor by_torch(const at::Tensor& logits_NV, const at::Tensor& labels_N, double label_smoothing) {
  return at::cross_entropy_loss(logits_NV.to(at::kFloat), labels_N, {}, at::Reduction::Sum, /*ignore_index=*/-1,
                                label_smoothing);
}

}  // namespace

double summed_cross_entropy(const at::Tensor& logits_NV, const at::Tensor& labels_N) {
  if (!logits_NV.is_cpu()) return by_torch(logits_NV, labels_N, 0).item<float>();
  return sum_losses(logits_NV, labels_N, Gradient::kNone, 1);
}

at::Tensor scaled_cross_entropy(const at::Tensor& logits_NV, const at::Tensor& labels_N, double scale,
                                double label_smoothing) {
  if (!logits_NV.is_cpu()) return by_torch(logits_NV, labels_N, label_smoothing) * scale;
  return ScaledCrossEntropy::apply(logits_NV, labels_N, scale, label_smoothing);
}

}  // namespace rf::train
