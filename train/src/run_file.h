// Shared by the run files of pretraining and of translation, and the names in the settings of every run.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "rf/io/strict_object.h"
#include "rf/train/run_config.h"

namespace rf::train {

inline constexpr const char* kRunFile = "run file";
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr io::NumberRange kAnyNumber{-kInfinity, kInfinity}, kNotNegative{0, kInfinity};
inline constexpr io::NumberRange kPositive{0, kInfinity, io::NumberRange::Ends::kOpenLow};

inline const std::initializer_list<std::pair<const char*, Precision>> kPrecisions = {
    {"float32", Precision::kFloat32}, {"bfloat16", Precision::kBfloat16}};
inline const std::initializer_list<std::pair<const char*, Schedule>> kSchedules = {
    {"constant", Schedule::kConstant},        {"linear", Schedule::kLinear},       {"cosine", Schedule::kCosine},
    {"inverse_sqrt", Schedule::kInverseSqrt}, {"piecewise", Schedule::kPiecewise},
};

using io::name_of;

// The key "schedule". A kind of schedule accepts only the keys that it reads.
ScheduleConfig parse_schedule(const nlohmann::json& json);
nlohmann::json to_json(const ScheduleConfig& schedule);

// JSON, otherwise a string.
nlohmann::json value_of(const std::string& text);

void parse_optimizer(io::StrictObject& object, AdamWOptions& options);
void add_to(nlohmann::json& json, const AdamWOptions& options);
// where: of runs in which no group may have them.
void refuse_initial_values(const std::vector<ParameterGroup>& groups, std::string_view where);

// The keys of both run files. Run: RunConfig or TranslationRunConfig.
template <typename Run>
void parse_shared_keys(io::StrictObject& object, Run& run) {
  if (const nlohmann::json* schedule = object.find("schedule")) run.schedule = parse_schedule(*schedule);
  parse_optimizer(object, run.optimizer);
  run.precision = object.choice("precision", run.precision, kPrecisions);
  run.seed = static_cast<uint64_t>(object.integer("seed", static_cast<int64_t>(run.seed), 0, INT64_MAX));
  run.log_every_steps = object.integer("log_every_steps", run.log_every_steps, 1, kMaxSteps);
  run.checkpoint_every_steps = object.integer("checkpoint_every_steps", run.checkpoint_every_steps, 1, kMaxSteps);
  run.keep_checkpoints = object.integer("keep_checkpoints", run.keep_checkpoints, 1, kMaxSteps);
}
template <typename Run>
nlohmann::json shared_keys(const Run& run) {
  nlohmann::json json = {{"schedule", to_json(run.schedule)},
                         {"precision", name_of(kPrecisions, run.precision)},
                         {"seed", run.seed},
                         {"log_every_steps", run.log_every_steps},
                         {"evaluate_every_steps", run.evaluate_every_steps},
                         {"checkpoint_every_steps", run.checkpoint_every_steps},
                         {"keep_checkpoints", run.keep_checkpoints}};
  add_to(json, run.optimizer);
  return json;
}

}  // namespace rf::train
