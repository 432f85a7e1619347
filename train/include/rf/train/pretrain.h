// Language-model pretraining, masked or causal, and evaluation. Headers of this module are free of torch.
//
// A run directory holds run.json (the run file with every default written out), metrics.jsonl (one JSON object per log
// or evaluation, see src/metrics_log.h), checkpoint-<step>/ directories, and at the end the model itself: config.json,
// model.safetensors, vocab.txt and tokenizer_config.json, as transformers reads them. A checkpoint directory is also a
// model directory, with optimizer.safetensors and state.json in addition.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/io/progress.h"
#include "rf/train/run_config.h"

namespace rf::train {

struct PretrainOptions {
  std::string config_path;             // the run file; with resume it may be empty: the run directory's copy
  std::vector<std::string> overrides;  // of values in it, as "schedule.learning_rate=2e-3"
  std::string data_dir;
  std::string output_dir;        // without resume: must be absent or empty
  bool resume = false;           // continue from the newest checkpoint, or start at step 0
  std::optional<uint64_t> seed;  // in place of the run file's
  // "", or steps to be profiled, "20" or "20:25" (src/step_profile.h); the files are in the output directory.
  std::string profile_steps;
  // In a job of several processes the name of their process group in torch.distributed; each calls pretrain().
  std::string process_group;
  std::string device = "auto";                   // as in rf/train/device.h
  std::function<void(const std::string&)> note;  // receives messages like "resuming at step 500"; may be empty
};

struct EvaluationReport {
  double loss = 0;          // nats per predicted token
  double accuracy = 0;      // argmax of the predicted tokens
  double unigram_loss = 0;  // cross-entropy of the same tokens under the training split's unigram distribution, with
                            // one added to every count
  int64_t predicted_tokens = 0;
  double pair_loss = 0, pair_accuracy = 0;  // of pairs of sentences: nats per pair, and argmax
  int64_t pairs = 0;                        // 0: they were not measured
  bool is_first_rank = true;                // of the job that measured it
  int64_t max_length = 0;                   // of evaluate(): of its rows
};
// Its numbers by name (of pairs only if they were measured), with "perplexity", e^loss, and "bits", loss / ln 2, which
// are bits per byte for a vocabulary of bytes.
nlohmann::json to_json(const EvaluationReport& report);

struct PretrainReport {
  int64_t steps = 0;             // optimizer steps done, including those before a resume
  double train_loss = 0;         // nats per predicted token, mean over the last log interval
  double tokens_per_second = 0;  // tokens that are not padding, since this start, without evaluations and checkpoints
  int64_t peak_rss_bytes = 0;    // of the largest process
  EvaluationReport evaluation;   // the last one; zeros without an evaluation
  int signal = 0;                // SIGINT or SIGTERM when one was received; the run has ended with a checkpoint
  bool is_complete = false;      // at its last step, whether or not a signal came in it
  bool is_first_rank = true;     // of the job; the others have the same report
};

// A step of one process that does not fit into the memory of a GPU is repeated with micro-batches of half the rows, as
// are all later steps; rows that cannot be halved end the run with a checkpoint.
//
// Throws Error for bad input, a full disk, a loss or gradient that is not finite (the message names the step), a GPU
// that fails, and a process of the job that ended; SaidByFirstRank (rf/train/job.h) if the first rank throws the same
// error. Written checkpoints stay valid in every case.
PretrainReport pretrain(const PretrainOptions& options, io::Progress& progress);
// One of several runs: `directory` replaces the options' output, and the run file is <directory>.run.json. The same
// call continues it.
PretrainReport pretrain_part(const std::string& directory, const nlohmann::json& run, PretrainOptions options,
                             io::Progress& progress);

struct EvaluateOptions {
  std::string model_dir, data_dir;
  std::string split = "valid";
  // Absent: for the directory or checkpoint of a run, the length of its last stage so far; 128 for other models.
  std::optional<int64_t> max_length = {};
  int64_t batch_size = 32;
  data::Packing packing = data::Packing::kPacked;
  data::MaskOptions mask;
  uint64_t seed = 1;
  Precision precision = Precision::kFloat32;
  data::Pairs pairs = data::Pairs::kNone;  // of sentences, for a model that was trained on them
  std::string process_group{};  // as in PretrainOptions; the result has the same bits for any number of processes
};
// A causal model is measured on every token, and `mask` must then have its default. Throws Error if the model's
// vocabulary is not the data's, or if `pairs` is set for a model without a layer for pairs.
EvaluationReport evaluate(const EvaluateOptions& options, io::Progress& progress);

}  // namespace rf::train
