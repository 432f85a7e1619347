// Forward, backward and update (train_step.h).
#include "train_step.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "autocast.h"
#include "cross_entropy.h"
#include "rf/io/error.h"
#include "rf/model/weights.h"
#include "seconds.h"

namespace rf::train {

std::vector<Parameter> trained_parameters(const nn::Model& model) {
  return trained_parameters(model, model.weight_specs());
}

std::vector<Parameter> trained_parameters(const torch::nn::Module& module, std::span<const WeightSpec> specs) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& item : module.named_parameters()) by_name.emplace(item.key(), item.value());
  std::vector<Parameter> parameters;
  for (const WeightSpec& spec : specs) {
    if (spec.role == WeightRole::kTable || spec.role == WeightRole::kBuffer) continue;
    const bool decayed = decays(spec.role, spec.shape.size());
    parameters.push_back({spec.name, by_name.at(spec.name), decayed ? Decay::kApplied : Decay::kNone});
  }
  return parameters;
}

namespace {

// Loss of each micro-batch, in nats; gradients are added up. The last backward pass sends them.
std::vector<double> run_passes(nn::Model& model, std::span<const LanguageBatch> own, const StepPlan& plan,
                               const StepRanks& job, int64_t predicted_tokens) {
  const AutocastScope autocast(plan.precision);
  const auto predicts = [](const LanguageBatch& batch) { return batch.places_N.numel() > 0; };
  const auto last = std::find_if(own.rbegin(), own.rend(), predicts);
  std::vector<double> losses;
  auto forward = static_cast<uint64_t>(plan.first_forward + job.ranks.index());
  const double tokens = static_cast<double>(predicted_tokens);
  for (const LanguageBatch& batch : own) {
    LanguageBatch drawn = batch;
    drawn.input.dropout_key = nn::DropoutKey{plan.dropout_seed, forward};
    forward += static_cast<uint64_t>(job.ranks.size());
    losses.push_back(0);
    if (!predicts(batch)) continue;
    at::Tensor loss;
    {
      RECORD_USER_SCOPE("forward");
      loss = scaled_cross_entropy(label_logits(model, drawn), batch.labels_N, 1.0 / tokens);
      losses.back() = loss.item<float>() * tokens;
    }
    if (&batch == &*last) job.gradients.send_in_next_backward();
    RECORD_USER_SCOPE("backward");
    loss.backward();
  }
  return losses;
}

// The sum over the micro-batches of all ranks, in their order, so that its bits do not depend on the number of ranks.
double summed(std::vector<double> losses, const StepPlan& plan, const Ranks& ranks) {
  losses.resize(static_cast<size_t>((plan.micro_batches + ranks.size() - 1) / ranks.size()));
  const std::vector<std::vector<double>> all = ranks.gather(losses);
  double sum = 0;
  for (int64_t i = 0; i < plan.micro_batches; ++i) {
    sum += all[static_cast<size_t>(i % ranks.size())][static_cast<size_t>(i / ranks.size())];
  }
  return sum;
}

}  // namespace

StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> own, const StepPlan& plan,
                      const StepRanks& job) {
  StepResult result;
  std::array<int64_t, 2> tokens = {};
  for (const LanguageBatch& batch : own) {
    tokens[0] += batch.places_N.numel();
    tokens[1] += batch.real_tokens;
  }
  for (const std::vector<int64_t>& of_rank : job.ranks.gather(tokens)) {
    result.predicted_tokens += of_rank[0];
    result.real_tokens += of_rank[1];
  }
  if (result.predicted_tokens == 0) return result;
  const double start = now_seconds();
  std::vector<double> losses = run_passes(model, own, plan, job, result.predicted_tokens);
  result.compute_seconds = now_seconds() - start;
  {
    RECORD_USER_SCOPE("sum of gradients");
    job.gradients.finish();
  }
  result.loss_sum = summed(std::move(losses), plan, job.ranks);
  if (!std::isfinite(result.loss_sum)) {
    const double loss = std::abs(result.loss_sum) / static_cast<double>(result.predicted_tokens);  // a NaN has a sign
    job.ranks.fail_on_all(fmt::format(
        "[pretrain] the loss must be finite, got {} at step {}; try a lower learning_rate or a longer warm-up", loss,
        plan.step));
  }
  RECORD_USER_SCOPE("optimizer");
  try {
    result.gradient_norm = optimizer.step(plan.learning_rate, plan.step);
  } catch (const LostRank&) {
    throw;
  } catch (const Error& error) {
    job.ranks.fail_on_all(error.what());
  }
  optimizer.drop_gradients();
  return result;
}

StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> micro_batches, StepPlan plan) {
  GradientSum nothing(Ranks::alone(), {}, Precision::kFloat32);
  plan.micro_batches = std::ssize(micro_batches);
  return train_step(model, optimizer, micro_batches, plan, {Ranks::alone(), nothing});
}

}  // namespace rf::train
