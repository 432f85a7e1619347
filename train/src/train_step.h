// One optimizer step of language modelling from one or more micro-batches (spec R-TRN-06): the loss is divided
// by the predicted tokens of all of them, so that k micro-batches of b rows are one batch of k b rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "language_model.h"
#include "optimizer.h"
#include "rf/nn/model.h"

namespace rf::train {

// Every trained tensor with its decay: none for biases and norms (roles of model/weights.h).
std::vector<Parameter> trained_parameters(const nn::Model& model);

struct StepPlan {
  Precision precision = Precision::kBfloat16;
  double learning_rate = 0;
  int64_t step = 0;  // 1, 2, ...; for messages
  uint64_t dropout_seed = 0;
  int64_t first_forward = 0;  // forward passes done before this step; keys the dropout draws
};

struct StepResult {
  double loss_sum = 0;  // nats
  int64_t predicted_tokens = 0, real_tokens = 0;
  double gradient_norm = 0;
};

// The model must be in training mode and have no gradients, before and after. Without a token to predict nothing
// changes. Throws Error, naming the step, if the loss or a gradient is not finite; the weights are then unchanged.
StepResult train_step(nn::Model& model, AdamW& optimizer, std::span<const LanguageBatch> micro_batches,
                      const StepPlan& plan);

}  // namespace rf::train
