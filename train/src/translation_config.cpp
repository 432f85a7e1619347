// The run file of translation (rf/train/translation.h).
#include <limits>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/strict_object.h"
#include "rf/train/translation.h"
#include "run_file.h"

namespace rf::train {

TranslationRunConfig parse_translation_run(const nlohmann::json& json) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr io::NumberRange kAboveZero{0, kInfinity, io::NumberRange::Ends::kOpenLow}, kFromZero{0, kInfinity};
  constexpr io::NumberRange kBelowOne{0, 1, io::NumberRange::Ends::kOpenHigh};
  constexpr int64_t kMaxTokens = int64_t{1} << 24;
  io::StrictObject object(json, kRunFile, "");
  TranslationRunConfig run;
  if (const nlohmann::json* model = object.find("model")) run.model = parse_translation_config(*model);
  run.steps = object.integer("steps", run.steps, 1, kMaxSteps);
  run.max_tokens = object.integer("max_tokens", run.max_tokens, 2, kMaxTokens);
  run.accumulate = object.integer("accumulate", run.accumulate, 1, kMaxTokens);
  run.max_length = object.integer("max_length", run.max_length, 2, kMaxTokens);
  if (const nlohmann::json* schedule = object.find("schedule")) run.schedule = parse_schedule(*schedule);
  run.label_smoothing = object.number("label_smoothing", run.label_smoothing, kBelowOne);
  run.weight_decay = object.number("weight_decay", run.weight_decay, kFromZero);
  run.beta1 = object.number("beta1", run.beta1, kBelowOne);
  run.beta2 = object.number("beta2", run.beta2, kBelowOne);
  run.epsilon = object.number("epsilon", run.epsilon, kAboveZero);
  run.clip_norm = object.number("clip_norm", run.clip_norm, kFromZero);
  run.precision = object.choice("precision", run.precision, kPrecisions);
  run.seed = static_cast<uint64_t>(object.integer("seed", static_cast<int64_t>(run.seed), 0, INT64_MAX));
  run.log_every_steps = object.integer("log_every_steps", run.log_every_steps, 1, kMaxSteps);
  run.evaluate_every_steps = object.integer("evaluate_every_steps", run.evaluate_every_steps, 1, kMaxSteps);
  run.checkpoint_every_steps = object.integer("checkpoint_every_steps", run.checkpoint_every_steps, 1, kMaxSteps);
  run.keep_checkpoints = object.integer("keep_checkpoints", run.keep_checkpoints, 1, kMaxSteps);
  object.finish();
  if (run.max_length > run.max_tokens) {
    fail(kRunFile, "max_tokens must be at least max_length, {}, got {}", run.max_length, run.max_tokens);
  }
  return run;
}

nlohmann::json to_json(const TranslationRunConfig& run) {
  return {{"model", rf::to_json(run.model)},
          {"steps", run.steps},
          {"max_tokens", run.max_tokens},
          {"accumulate", run.accumulate},
          {"max_length", run.max_length},
          {"schedule", to_json(run.schedule)},
          {"label_smoothing", run.label_smoothing},
          {"weight_decay", run.weight_decay},
          {"beta1", run.beta1},
          {"beta2", run.beta2},
          {"epsilon", run.epsilon},
          {"clip_norm", run.clip_norm},
          {"precision", name_of(kPrecisions, run.precision)},
          {"seed", run.seed},
          {"log_every_steps", run.log_every_steps},
          {"evaluate_every_steps", run.evaluate_every_steps},
          {"checkpoint_every_steps", run.checkpoint_every_steps},
          {"keep_checkpoints", run.keep_checkpoints}};
}

}  // namespace rf::train
