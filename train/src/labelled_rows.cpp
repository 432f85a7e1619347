// Training on labelled rows (rf/train/labelled_rows.h).
#include "rf/train/labelled_rows.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "autocast.h"
#include "cross_entropy.h"
#include "interrupt.h"
#include "language_model.h"
#include "readable_length.h"
#include "rf/io/error.h"
#include "rf/nn/seed_scope.h"
#include "train_step.h"

namespace rf::train {

namespace {

void check(const RunConfig& config) {
  if (config.objective != data::Objective::kCausal) {
    fail("labelled rows", "the objective must be causal, got masked");
  }
  if (config.stages.size() != 1 || config.stages.front().accumulate != 1) {
    fail("labelled rows", "a run must have one stage without micro-batches, got {} stages", config.stages.size());
  }
}

// Rows [begin, begin + count).
LanguageBatch to_batch(const LabelledRows& rows, int64_t begin, int64_t count, int64_t vocab_size) {
  const auto size = static_cast<size_t>(rows.rows * rows.tokens);
  if (rows.rows < 1 || rows.tokens < 1 || rows.ids.size() != size || rows.labels.size() != size) {
    fail("labelled rows", "{} rows of {} tokens must have as many ids and labels, got {} and {}", rows.rows,
         rows.tokens, rows.ids.size(), rows.labels.size());
  }
  std::vector<int64_t> places, labels;
  const auto first = static_cast<size_t>(begin * rows.tokens), end = first + static_cast<size_t>(count * rows.tokens);
  for (size_t i = first; i < end; ++i) {
    const int64_t id = rows.ids[i], label = rows.labels[i];
    if (id < 0 || id >= vocab_size || label < LabelledRows::kNoLabel || label >= vocab_size) {
      fail("labelled rows", "ids and labels must be below the vocabulary's size of {}, got {} and {}", vocab_size, id,
           label);
    }
    if (label == LabelledRows::kNoLabel) continue;
    places.push_back(static_cast<int64_t>(i - first));
    labels.push_back(label);
  }
  LanguageBatch batch;
  const std::vector<int64_t> ids(rows.ids.begin() + static_cast<std::ptrdiff_t>(first),
                                 rows.ids.begin() + static_cast<std::ptrdiff_t>(end));
  batch.input.ids_BT = at::tensor(ids, at::kLong).view({count, rows.tokens});
  batch.places_N = at::tensor(places, at::kLong);
  batch.labels_N = at::tensor(labels, at::kLong);
  batch.real_tokens = count * rows.tokens;
  return batch;
}

// In pieces of about `piece_tokens`.
std::optional<LabelledScore> score(nn::Model& model, const LabelledRows& rows, const RunConfig& config,
                                   int64_t piece_tokens) {
  if (!why_too_long(model, rows.tokens).empty()) return std::nullopt;
  const c10::NoGradGuard no_grad;
  const AutocastScope autocast(config.precision);
  double loss = 0, correct = 0, count = 0;
  const int64_t piece = std::max<int64_t>(1, piece_tokens / rows.tokens);
  for (int64_t begin = 0; begin < rows.rows; begin += piece) {
    const LanguageBatch batch = to_batch(rows, begin, std::min(piece, rows.rows - begin), model.config().vocab_size);
    if (batch.labels_N.numel() == 0) continue;
    const at::Tensor logits_NV = language_logits(model, batch).labels_NV;
    loss += summed_cross_entropy(logits_NV, batch.labels_N);
    correct += static_cast<double>(logits_NV.argmax(-1).eq(batch.labels_N).sum().item<int64_t>());
    count += static_cast<double>(batch.labels_N.numel());
  }
  if (count == 0) fail("labelled rows", "held-out rows must have at least one label, got none");
  return LabelledScore{.loss = loss / count, .accuracy = correct / count};
}

}  // namespace

LabelledReport train_labelled(const LabelledRun& run, io::Progress& progress) {
  const RunConfig& config = run.config;
  check(config);
  const InterruptScope interrupt;
  const Stage& stage = config.stages.front();
  std::shared_ptr<nn::Model> model;
  {
    const nn::SeedScope drawn(config.seed);
    model = std::make_shared<nn::Model>(config.model, Head::kCausalLm);
  }
  model->train();
  LabelledReport report;
  for (const at::Tensor& parameter : model->parameters()) report.parameters += parameter.numel();
  AdamW optimizer(trained_parameters(*model), {.weight_decay = config.weight_decay,
                                               .beta1 = config.beta1,
                                               .beta2 = config.beta2,
                                               .epsilon = config.epsilon,
                                               .clip_norm = config.clip_norm});
  double loss_sum = 0, labels = 0;
  for (int64_t step = 1; step <= stage.steps; ++step) {
    report.signal = interrupt.received();
    if (report.signal != 0) return report;
    const LabelledRows rows = run.rows(step);
    const LanguageBatch batch = to_batch(rows, 0, rows.rows, config.model.vocab_size);
    const StepResult done = train_step(*model, optimizer, {&batch, 1},
                                       {.precision = config.precision,
                                        .learning_rate = learning_rate(config.schedule, step, stage.steps),
                                        .step = step,
                                        .dropout_seed = config.seed,
                                        .first_forward = step - 1});
    if ((step - 1) % config.log_every_steps == 0) loss_sum = labels = 0;
    loss_sum += done.loss_sum;
    labels += static_cast<double>(done.predicted_tokens);
    report.train_loss = loss_sum / labels;
    progress.update(fmt::format("step {}/{}  loss {:.3f}", step, stage.steps, report.train_loss));
  }
  model->eval();
  for (const LabelledRows& rows : run.held_out) {
    report.signal = interrupt.received();
    if (report.signal != 0) return report;
    report.scores.push_back(score(*model, rows, config, stage.batch * stage.max_length));
  }
  report.signal = interrupt.received();  // one that came while the last rows were read
  return report;
}

}  // namespace rf::train
