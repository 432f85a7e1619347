// One fine-tuning run: a learning rate with a seed, from the initial model to the best of its evaluations.
#pragma once

#include <string>

#include "checkpoint.h"
#include "finetune_data.h"
#include "interrupt.h"

namespace rf::train {

struct FinetuneData {
  TaskSplit train, valid;
};

// Trains into `directory`: metrics.jsonl, and the model of the best evaluation. model.model is replaced. After each
// evaluation, and when a signal ends it early, there is a checkpoint, from which the next call goes on; the caller
// drops it once the run is recorded. False when a signal ended it.
bool finetune_run(const FinetuneOptions& options, const FinetuneData& data, const TokenizerFiles& tokenizer,
                  TaskModel& model, const std::string& directory, const InterruptScope& interrupt,
                  io::Progress& progress, FinetuneRun& run);

// "metrics" of a run that was written: numbers or null by name, `metric` among them.
nlohmann::json metrics_of(io::StrictObject& run, const std::string& metric);

// The initial model with the task's head, which is drawn from `seed` where the directory has none.
std::shared_ptr<nn::Model> initial_model(const std::string& model_dir, const Task& task, uint64_t seed);

}  // namespace rf::train
