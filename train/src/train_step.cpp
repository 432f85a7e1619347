// Forward, backward and update (train_step.h).
#include "train_step.h"

#include <cmath>
#include <map>

#include "autocast.h"
#include "cross_entropy.h"
#include "rf/io/error.h"
#include "rf/model/weights.h"

namespace rf::train {

std::vector<Parameter> trained_parameters(const nn::Model& model) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& item : model.named_parameters()) by_name.emplace(item.key(), item.value());
  std::vector<Parameter> parameters;
  for (const WeightSpec& spec : model.weight_specs()) {
    if (spec.role == WeightRole::kTable || spec.role == WeightRole::kBuffer) continue;
    const bool decayed = decays(spec.role, spec.shape.size());
    parameters.push_back({spec.name, by_name.at(spec.name), decayed ? Decay::kApplied : Decay::kNone});
  }
  return parameters;
}

StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> micro_batches,
                      const StepPlan& plan) {
  StepResult result;
  for (const LanguageBatch& batch : micro_batches) {
    result.predicted_tokens += batch.places_N.numel();
    result.real_tokens += batch.real_tokens;
  }
  if (result.predicted_tokens == 0) return result;
  {
    const AutocastScope autocast(plan.precision);
    uint64_t forward = static_cast<uint64_t>(plan.first_forward);
    for (const LanguageBatch& batch : micro_batches) {
      LanguageBatch drawn = batch;
      drawn.input.dropout_key = nn::DropoutKey{plan.dropout_seed, forward++};
      if (batch.places_N.numel() == 0) continue;
      const double tokens = static_cast<double>(result.predicted_tokens);
      const at::Tensor loss = scaled_cross_entropy(label_logits(model, drawn), batch.labels_N, 1.0 / tokens);
      result.loss_sum += loss.item<float>() * tokens;
      loss.backward();
    }
  }
  if (!std::isfinite(result.loss_sum)) {
    fail("pretrain", "the loss must be finite, got {} at step {}; try a lower learning_rate or a longer warm-up",
         std::abs(result.loss_sum) / static_cast<double>(result.predicted_tokens), plan.step);  // a NaN has a sign
  }
  result.gradient_norm = optimizer.step(plan.learning_rate, plan.step);
  optimizer.drop_gradients();
  return result;
}

}  // namespace rf::train
