// Shared by the run files of pretraining and of translation, and the names in the settings of every run.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <utility>

#include "rf/train/run_config.h"

namespace rf::train {

inline constexpr const char* kRunFile = "run file";
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;

inline const std::initializer_list<std::pair<const char*, Precision>> kPrecisions = {
    {"float32", Precision::kFloat32}, {"bfloat16", Precision::kBfloat16}};
inline const std::initializer_list<std::pair<const char*, Schedule>> kSchedules = {
    {"constant", Schedule::kConstant},        {"linear", Schedule::kLinear},       {"cosine", Schedule::kCosine},
    {"inverse_sqrt", Schedule::kInverseSqrt}, {"piecewise", Schedule::kPiecewise},
};

template <typename T>
const char* name_of(std::initializer_list<std::pair<const char*, T>> names, T value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  throw std::logic_error("an enumerator without a name");
}

// The key "schedule". A kind of schedule accepts only the keys that it reads.
ScheduleConfig parse_schedule(const nlohmann::json& json);
nlohmann::json to_json(const ScheduleConfig& schedule);

}  // namespace rf::train
