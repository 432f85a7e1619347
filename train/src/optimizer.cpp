// AdamW by torch's fused kernel (optimizer.h). Clipping uses the kernel's gradient scale, so that it needs no extra
// pass over the gradients.
#include "optimizer.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "rf/io/error.h"

namespace rf::train {

AdamW::AdamW(std::vector<Parameter> parameters, AdamWOptions options) : options_(options) {
  groups_ = {{options.weight_decay, {}, {}, {}, {}}, {0.0, {}, {}, {}, {}}};
  for (Parameter& parameter : parameters) {
    Group& group = groups_[parameter.decay == Decay::kApplied ? 0 : 1];
    group.names.push_back(parameter.name);
    group.exp_avg.push_back(at::zeros_like(parameter.weight));
    group.exp_avg_sq.push_back(at::zeros_like(parameter.weight));
    group.weights.push_back(parameter.weight);
  }
}

void AdamW::drop_gradients() {
  for (const Group& group : groups_) {
    for (const at::Tensor& weight : group.weights) weight.mutable_grad().reset();
  }
}

AdamW::Gradients AdamW::gradients() const {
  Gradients all;
  for (const Group& group : groups_) {
    all.emplace_back();
    for (const at::Tensor& weight : group.weights) {
      all.back().push_back(weight.grad().defined() ? weight.grad() : at::zeros_like(weight));
    }
  }
  return all;
}

double AdamW::norm_of(const Gradients& gradients, int64_t step) const {
  double sum_of_squares = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (gradients[g].empty()) continue;
    const std::vector<at::Tensor> norms = at::_foreach_norm(gradients[g]);
    for (size_t i = 0; i < norms.size(); ++i) {
      const double norm = norms[i].item<float>();
      if (!std::isfinite(norm)) {
        fail("train",
             "the gradient must be finite, got {} in {} at step {}; try a lower learning_rate or a longer warm-up",
             norm, groups_[g].names[i], step);
      }
      sum_of_squares += norm * norm;
    }
  }
  return std::sqrt(sum_of_squares);
}

double AdamW::step(double learning_rate, int64_t step) {
  const c10::NoGradGuard no_grad;
  const Gradients gradients = this->gradients();
  const double norm = norm_of(gradients, step);
  std::optional<at::Tensor> gradient_divisor;
  if (options_.clip_norm > 0 && norm + 1e-6 > options_.clip_norm) {
    gradient_divisor = at::full({}, (norm + 1e-6) / options_.clip_norm, at::kFloat);
  }
  ++updates_;
  const at::Tensor updates = at::full({}, static_cast<double>(updates_), at::kFloat);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (group.weights.empty()) continue;
    const std::vector<at::Tensor> counts(group.weights.size(), updates);
    at::_fused_adamw_(group.weights, gradients[g], group.exp_avg, group.exp_avg_sq, {}, counts, learning_rate,
                      options_.beta1, options_.beta2, group.weight_decay, options_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, gradient_divisor);
  }
  return norm;
}

std::vector<std::pair<std::string, at::Tensor>> AdamW::moments() const {
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      named.emplace_back("exp_avg." + group.names[i], group.exp_avg[i]);
      named.emplace_back("exp_avg_sq." + group.names[i], group.exp_avg_sq[i]);
    }
  }
  return named;
}

}  // namespace rf::train
