// One optimizer step of language modelling from one or more micro-batches (spec R-TRN-06): the loss is divided by the
// predicted tokens of all micro-batches, so k micro-batches of b rows equal one batch of k b rows. The mean loss of
// sentence pairs is added, as in BERT and ALBERT.
//
// The ranks of a job share the micro-batches of a step: rank r has micro-batches r, r + W, r + 2 W, .. of W ranks. A
// micro-batch has the same forward pass, dropout and gradient whichever rank has it, so the number of ranks changes
// nothing but the order in which the gradients are added.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device.h"
#include "gradient_sum.h"
#include "language_model.h"
#include "optimizer.h"
#include "rf/nn/model.h"

namespace rf::train {

// Every trained tensor with its decay: none for biases and norms (roles of model/weights.h).
std::vector<Parameter> trained_parameters(const nn::Model& model);
// The same for any module whose parameters have the names of the specs.
std::vector<Parameter> trained_parameters(const torch::nn::Module& module, std::span<const WeightSpec> specs);

// Draws the matrices and embeddings (two or more dimensions) of groups with an initializer_range from N(0, its square).
// The values of a parameter depend on the seed and its name alone. Throws Error for such a group without any.
void draw_initial_values(const nn::Model& model, const std::vector<ParameterGroup>& groups, uint64_t seed);

struct StepPlan {
  Precision precision = Precision::kBfloat16;
  double learning_rate = 0;
  int64_t step = 0;  // 1, 2, ...; for messages
  uint64_t dropout_seed = 0;
  int64_t first_forward = 0;  // forward passes done before this step; keys the dropout draws
  int64_t micro_batches = 1;  // of the step, over all ranks
};

struct StepResult {
  double loss_sum = 0;  // of the predicted tokens, nats
  int64_t predicted_tokens = 0, real_tokens = 0;
  double pair_loss_sum = 0;  // of pairs of sentences, nats
  int64_t correct_pairs = 0, pairs = 0;
  double gradient_norm = 0;
  double compute_seconds = 0;  // of the passes of this rank
};

// Shared by the ranks of a job in a step.
struct StepRanks {
  const Ranks& ranks;
  GradientSum& gradients;  // of the model's trained parameters
};

// A step whose numbers a GPU may still compute, so that the next step can be prepared meanwhile.
class StartedStep {
 public:
  // Waits for the numbers; called once, by all ranks together. Throws as train_step().
  StepResult finish();

 private:
  friend StartedStep start_train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> own,
                                      const StepPlan& plan, const StepRanks& job);
  void sum_losses();

  StepResult result_;
  StepPlan plan_;
  const Ranks* ranks_ = nullptr;
  const AdamW* optimizer_ = nullptr;
  std::optional<Readback> losses_, norms_;  // losses: float32 [micro-batches of this rank, numbers of PassSums]
};

// The model must be in training mode, and its gradients must be empty; they are empty again after the call. Without a
// token to predict nothing changes. Throws Error, naming the step, if the loss or a gradient is not finite; the weights
// are then unchanged by the step. On a GPU the result throws it, maybe after the next step. own: the micro-batches of
// this rank, in order. The result is summed over all ranks. The optimizer and the ranks must outlive it.
StartedStep start_train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> own,
                             const StepPlan& plan, const StepRanks& job);
// Both parts.
StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> own, const StepPlan& plan,
                      const StepRanks& job);
// By one rank.
StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> micro_batches, StepPlan plan);

}  // namespace rf::train
