// Forward, backward and update (train_step.h).
#include "train_step.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "autocast.h"
#include "cross_entropy.h"
#include "rf/io/error.h"
#include "rf/model/weights.h"
#include "rf/nn/linear_attention.h"
#include "rf/train/job.h"
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
    const at::Tensor& values = by_name.at(spec.name);
    if (!values.requires_grad()) continue;
    const bool decayed = decays(spec.role, spec.shape.size());
    parameters.push_back({spec.name, values, decayed ? Decay::kApplied : Decay::kNone});
  }
  return parameters;
}

void draw_initial_values(const nn::Model& model, const std::vector<ParameterGroup>& groups, uint64_t seed) {
  const c10::NoGradGuard no_grad;
  std::vector<bool> has_some(groups.size());
  for (Parameter& parameter : trained_parameters(model)) {
    const std::optional<size_t> group = group_of(groups, parameter.name);
    if (!group || !groups[*group].initializer_range || parameter.weight.dim() < 2) continue;
    has_some[*group] = true;
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char letter : parameter.name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    parameter.weight.normal_(0, *groups[*group].initializer_range,
                             at::make_generator<at::CPUGeneratorImpl>(nn::splitmix(seed ^ hash)));
    if (parameter.name.ends_with("word_embeddings.weight")) parameter.weight[model.config().pad_token_id].zero_();
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].initializer_range || has_some[i]) continue;
    fail("run file", "groups[{}].initializer_range needs a matrix or an embedding in the group, got none", i);
  }
}

namespace {

// The sums of one micro-batch.
struct PassSums {
  double loss = 0, pair_loss = 0;  // nats
  double correct_pairs = 0;
};
constexpr int64_t kPassNumbers = 3;

bool predicts(const LanguageBatch& batch) { return batch.places_N.numel() > 0 || batch.pairs() > 0; }

// The loss of a micro-batch, a scalar with a gradient: its share of the means over the step. Writes PassSums to
// `numbers` on the device, with the losses as such shares.
at::Tensor pass_loss(nn::Model& model, const LanguageBatch& batch, const StepResult& step, at::Tensor& numbers) {
  const auto tokens = static_cast<double>(step.predicted_tokens), pairs = static_cast<double>(step.pairs);
  const LanguageLogits logits = language_logits(model, batch);
  at::Tensor loss;
  if (logits.labels_NV.defined()) {
    loss = scaled_cross_entropy(logits.labels_NV, batch.labels_N, 1.0 / tokens);
    numbers.select(0, 0).copy_(loss.detach());
  }
  if (!logits.pairs_P2.defined()) return loss;
  numbers.select(0, 2).copy_(correct_pairs(logits.pairs_P2, batch.pair_labels_P));
  const at::Tensor pair_loss = scaled_cross_entropy(logits.pairs_P2, batch.pair_labels_P, 1.0 / pairs);
  numbers.select(0, 1).copy_(pair_loss.detach());
  return loss.defined() ? loss + pair_loss : pair_loss;
}

// The numbers of each micro-batch, [micro-batches, kPassNumbers]; gradients are added up. The last backward pass sends
// them.
at::Tensor run_passes(nn::Model& model, std::span<const LanguageBatch> own, const StepPlan& plan, const StepRanks& job,
                      const StepResult& step) {
  const at::Device device = device_of(model);
  const AutocastScope autocast(plan.precision, device);
  const auto last = std::find_if(own.rbegin(), own.rend(), predicts);
  const at::Tensor numbers = at::zeros({std::ssize(own), kPassNumbers}, at::dtype(at::kFloat).device(device));
  int64_t done = 0;
  auto forward = static_cast<uint64_t>(plan.first_forward + job.ranks.index());
  for (const LanguageBatch& batch : own) {
    LanguageBatch drawn = batch;
    drawn.input.dropout_key = nn::DropoutKey{plan.dropout_seed, forward};
    forward += static_cast<uint64_t>(job.ranks.size());
    at::Tensor of_pass = numbers.select(0, done++);
    if (!predicts(batch)) continue;
    at::Tensor loss;
    {
      RECORD_USER_SCOPE("forward");
      loss = pass_loss(model, drawn, step, of_pass);
    }
    if (&batch == &*last) job.gradients.send_in_next_backward();
    RECORD_USER_SCOPE("backward");
    loss.backward();
  }
  return numbers;
}

[[noreturn]] void diverged(const Ranks& ranks, const Diverged& error) {
  if (ranks.size() == 1) throw error;
  ranks.fail_on_all(error.what());
}

}  // namespace

StartedStep start_train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> own,
                             const StepPlan& plan, const StepRanks& job) {
  StartedStep started;
  started.plan_ = plan;
  started.ranks_ = &job.ranks;
  started.optimizer_ = &optimizer;
  StepResult& result = started.result_;
  std::array<int64_t, 3> counts = {};
  for (const LanguageBatch& batch : own) {
    counts[0] += batch.places_N.numel();
    counts[1] += batch.real_tokens;
    counts[2] += batch.pairs();
  }
  for (const std::vector<int64_t>& of_rank : job.ranks.gather(counts)) {
    result.predicted_tokens += of_rank[0];
    result.real_tokens += of_rank[1];
    result.pairs += of_rank[2];
  }
  if (result.predicted_tokens == 0) {
    result.pairs = 0;
    return started;
  }
  const double start = now_seconds();
  started.losses_.emplace(run_passes(model, own, plan, job, result));
  result.compute_seconds = now_seconds() - start;
  {
    RECORD_USER_SCOPE("sum of gradients");
    job.gradients.finish();
  }
  if (!device_of(model).is_cuda()) started.sum_losses();
  RECORD_USER_SCOPE("optimizer");
  try {
    started.norms_.emplace(optimizer.start_step(plan.learning_rate, plan.step));
  } catch (const LostRank&) {
    throw;
  } catch (const Diverged& error) {
    diverged(job.ranks, error);
  } catch (const Error& error) {
    job.ranks.fail_on_all(error.what());
  }
  optimizer.drop_gradients();
  return started;
}

StepResult StartedStep::finish() {
  if (!losses_ && !norms_) return result_;  // nothing was predicted
  if (losses_) sum_losses();
  try {
    result_.gradient_norm = optimizer_->norm_of(norms_->read(), plan_.step);
  } catch (const Diverged& error) {
    diverged(*ranks_, error);
  }
  return result_;
}

// Throws if the loss is not finite.
void StartedStep::sum_losses() {
  const at::Tensor numbers = losses_->read();
  std::vector<PassSums> own_sums;
  for (int64_t i = 0; i < numbers.size(0); ++i) {
    const auto* const shares = numbers.const_data_ptr<float>() + i * kPassNumbers;
    own_sums.push_back({.loss = shares[0] * static_cast<double>(result_.predicted_tokens),
                        .pair_loss = shares[1] * static_cast<double>(result_.pairs),
                        .correct_pairs = shares[2]});
  }
  losses_.reset();
  StepResult& result = result_;
  // In the order of the micro-batches, so that the bits do not depend on the number of ranks.
  const PassSums sums = sum_of_parts(*ranks_, own_sums, plan_.micro_batches);
  result.loss_sum = sums.loss;
  result.pair_loss_sum = sums.pair_loss;
  result.correct_pairs = static_cast<int64_t>(sums.correct_pairs);
  if (!std::isfinite(result.loss_sum + result.pair_loss_sum)) {
    const double of_pairs = result.pair_loss_sum / static_cast<double>(std::max<int64_t>(result.pairs, 1));
    const double loss =
        std::abs(result.loss_sum / static_cast<double>(result.predicted_tokens) + of_pairs);  // a NaN has a sign
    diverged(*ranks_, {"pretrain",
                       fmt::format("the loss must be finite, got {} at step {}; try a lower learning_rate or a "
                                   "longer warm-up",
                                   loss, plan_.step),
                       plan_.step});
  }
}

StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> own, const StepPlan& plan,
                      const StepRanks& job) {
  return start_train_step(model, optimizer, own, plan, job).finish();
}

StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> micro_batches, StepPlan plan) {
  GradientSum nothing(Ranks::alone(), {}, Precision::kFloat32);
  plan.micro_batches = std::ssize(micro_batches);
  return train_step(model, optimizer, micro_batches, plan, {Ranks::alone(), nothing});
}

}  // namespace rf::train
