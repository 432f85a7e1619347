// Fine-tuning for the tasks of docs/finetuning.md. Free of torch; predictions are rf/tasks/predict.h's.
//
// The output directory holds run.json (the settings), one directory per run (lr-<rate>/seed-<n>/: metrics.jsonl, the
// model of its best evaluation, a checkpoint during the run, and result.json when it is finished), and at the end the
// model of the best run with task.json, report.json and report.md.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/data/reader.h"
#include "rf/io/progress.h"
#include "rf/tasks/settings.h"
#include "rf/text/tokenizer.h"
#include "rf/train/run_config.h"

namespace rf::train {

// A file of records by name: "train", "valid", "test" in messages.
struct TaskFiles {
  std::vector<std::string> train, valid, test;  // test: may be empty
  double valid_fraction = 0;                    // of the train file's records, drawn with the seed, instead of valid
  data::Format format = data::Format::kAuto;
  data::Quotes quotes = data::Quotes::kRead;
};

struct FinetuneOptions {
  tasks::TaskSettings task;  // kind, renamed columns, and how texts are read; labels come from the files
  std::string model_dir, output_dir;
  TaskFiles files;
  text::LoadOptions load;  // dictionaries of the tokenizer

  std::vector<double> learning_rates = {3e-5};
  int64_t seeds = 1;  // each rate is trained with this many consecutive seeds
  uint64_t seed = 1;  // the first
  int64_t epochs = 3, batch = 32;
  Schedule schedule = Schedule::kLinear;  // or kConstant
  double warmup = 0.1;                    // part of the steps
  double weight_decay = 0.01;             // not on biases and norms
  double clip_norm = 1.0;                 // 0: none
  double label_smoothing = 0;
  std::string classifier_pooling;  // cls or mean, of the tuned model's configuration; "": the directory's
  Precision precision = Precision::kBfloat16;
  int64_t evaluate_every_steps = 0;  // 0: at the end of each epoch
  int64_t patience = 0;              // evaluations without improvement that end a run; 0: all epochs
  // In a job of several processes the name of their process group in torch.distributed; they share the runs.
  std::string process_group;
  std::string device = "auto";                   // as in rf/train/device.h
  std::function<void(const std::string&)> note;  // receives messages for the user; may be empty
};

// A rate with a seed.
struct FinetuneRun {
  double learning_rate = 0;
  uint64_t seed = 0;
  int64_t steps = 0, best_step = 0;  // at the end, and at the best evaluation
  double seconds = 0;                // of training, evaluations excluded
  nlohmann::json metrics;            // of the best evaluation on the valid file
};

struct FinetuneReport {
  std::vector<FinetuneRun> runs;  // by rate, then seed
  nlohmann::json report;          // report.json; null when a signal ended the work early
  std::string table;              // report.md
  int signal = 0;  // SIGINT or SIGTERM if one ended the work early; call again with the same options to continue
  bool is_first_rank = true;  // of the job; the reports of the others are empty
};

// Finished runs are not repeated; an interrupted run continues from its last checkpoint. Throws Error, naming file and
// line, for records without the fields that the task needs, a label that is missing from the train file, an empty file;
// for settings that contradict each other or the runs in the output directory; for a loss that is not finite.
FinetuneReport finetune(const FinetuneOptions& options, io::Progress& progress);

}  // namespace rf::train
