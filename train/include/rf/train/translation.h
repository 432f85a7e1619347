// Training of encoder-decoders for translation. Free of torch.
//
// A run directory is like that of pretraining (rf/train/pretrain.h): run.json, metrics.jsonl, checkpoint-<step>/ and at
// the end the model with its tokenizer. Calling train_translation() again continues an interrupted run; with the same
// threads it then gives the same bits as an uninterrupted run.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "rf/data/sentence_pairs.h"
#include "rf/io/progress.h"
#include "rf/model/translation_config.h"
#include "rf/train/run_config.h"

namespace rf::train {

// The run file, read strictly. Defaults follow fairseq's training of Transformer-base (Ott et al. 2018).
struct TranslationRunConfig {
  ModelConfig model =
      translation_defaults();  // "model": keys of config.json; vocabulary and special tokens come from the tokenizer
  int64_t steps = 100000;
  int64_t max_tokens = 4096;  // of a micro-batch: pairs * longest source or target
  int64_t accumulate = 1;     // micro-batches of a step
  int64_t max_length = 256;   // pairs with a longer side, its end included, are left out
  ScheduleConfig schedule{
      .kind = Schedule::kInverseSqrt, .learning_rate = 5e-4, .warmup_steps = 4000, .initial_rate = 1e-7, .points = {}};
  double label_smoothing = 0.1;
  AdamWOptions optimizer{.weight_decay = 0, .beta2 = 0.98, .epsilon = 1e-9, .clip_norm = 0};
  Precision precision = Precision::kBfloat16;
  uint64_t seed = 1;
  int64_t log_every_steps = 50;
  int64_t evaluate_every_steps = 1000;
  int64_t checkpoint_every_steps = 1000;
  int64_t keep_checkpoints = 5;
};
TranslationRunConfig parse_translation_run(const nlohmann::json& json);
nlohmann::json to_json(const TranslationRunConfig& config);

struct TranslationOptions {
  nlohmann::json run;            // the run file
  data::PairFiles train, valid;  // empty valid: no evaluation
  std::string tokenizer_dir;     // of both languages
  std::string output_dir;
  std::optional<uint64_t> seed{};  // in place of the run file's
  std::string device = "auto";     // as in rf/train/device.h
  std::function<void(const std::string&)> note{};
};

struct TranslationReport {
  int64_t steps = 0;                    // done, including those before this call
  int64_t pairs = 0;                    // of the training files
  double train_loss = 0;                // smoothed, nats per target token, mean over the last log interval
  std::optional<double> valid_loss{};   // nats per target token, without smoothing; of the last evaluation
  double seconds = 0;                   // of the steps, all calls
  double target_tokens_per_second = 0;  // of this call
  int signal = 0;                       // SIGINT or SIGTERM when one was received; there is a checkpoint
  bool is_complete = false;             // at its last step, whether or not a signal came in it
};

// Throws Error for bad input, naming file and line, and for a loss that is not finite, naming the step.
TranslationReport train_translation(const TranslationOptions& options, io::Progress& progress);

}  // namespace rf::train
