// One fine-tuning run: a learning rate with a seed, from the initial model to the best of its evaluations.
#pragma once

#include <string>

#include "checkpoint.h"
#include "interrupt.h"
#include "rf/io/strict_object.h"
#include "rf/train/finetune.h"
#include "task_model.h"

namespace rf::train {

struct FinetuneData {
  tasks::Split train, valid;
};

// Trains and writes metrics.jsonl and the model of the best evaluation to `directory`. model.model is replaced. It
// writes a checkpoint after each evaluation, and if a signal ends the run early; the next call continues from it. The
// caller removes the checkpoint once the run is recorded. False if a signal ended it.
bool finetune_run(const FinetuneOptions& options, const FinetuneData& data, const TokenizerFiles& tokenizer,
                  TaskModel& model, const std::string& directory, const InterruptScope& interrupt,
                  io::Progress& progress, FinetuneRun& run);

// "metrics" of a recorded run: numbers or null by name, including `metric`.
nlohmann::json metrics_of(io::StrictObject& run, const std::string& metric);
// The value of `metric`, which chooses the best evaluation and run. One that is not defined is worse than any that is.
double chosen_by(const nlohmann::json& metrics, const std::string& metric);

// The initial model with the task's head, which is initialised from `seed` if the directory does not contain one.
std::shared_ptr<nn::Model> initial_model(const FinetuneOptions& options, const tasks::Task& task, uint64_t seed);

}  // namespace rf::train
