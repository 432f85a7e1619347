// Strict reading of a JSON object (strict_object.h).
#include "rf/io/strict_object.h"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "rf/io/dtype.h"
#include "rf/io/error.h"

namespace rf::io {

StrictObject::StrictObject(const nlohmann::json& json, std::string where, std::string path)
    : json_(json), where_(std::move(where)), path_(std::move(path)) {
  if (!json.is_object()) fail(where_, "{} must be an object, got {}", path_.empty() ? "the file" : path_, json.dump());
}

std::string StrictObject::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const nlohmann::json* StrictObject::find(const std::string& key) {
  asked_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() ? nullptr : &*it;
}

void StrictObject::require(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (find(key) == nullptr) fail(where_, "{} must be there, got none", path_of(key));
  }
}

StrictObject StrictObject::object(const std::string& key) {
  require({key.c_str()});
  return {*find(key), where_, path_of(key)};
}

int64_t StrictObject::integer(const std::string& key, int64_t fallback, int64_t low, int64_t high) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high)
    fail(where_, "{} must be an integer from {} to {}, got {}", path_of(key), low, high, value->dump());
  return value->get<int64_t>();
}

double StrictObject::number(const std::string& key, double fallback, NumberRange range) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  const double x = value->is_number() ? value->get<double>() : NAN;
  const bool above = range.ends == NumberRange::Ends::kOpenLow ? x > range.low : x >= range.low;
  const bool below = range.ends == NumberRange::Ends::kOpenHigh ? x < range.high : x <= range.high;
  if (!above || !below || !std::isfinite(x)) {
    const char* low_end = range.ends == NumberRange::Ends::kOpenLow ? ">" : ">=";
    const char* high_end = range.ends == NumberRange::Ends::kOpenHigh ? "<" : "<=";
    if (std::isinf(range.low)) fail(where_, "{} must be a number, got {}", path_of(key), value->dump());
    if (std::isinf(range.high))
      fail(where_, "{} must be a number {} {}, got {}", path_of(key), low_end, range.low, value->dump());
    fail(where_, "{} must be a number {} {} and {} {}, got {}", path_of(key), low_end, range.low, high_end, range.high,
         value->dump());
  }
  return x;
}

std::string StrictObject::text(const std::string& key, const std::string& fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) fail(where_, "{} must be a string, got {}", path_of(key), value->dump());
  return value->get<std::string>();
}

bool StrictObject::boolean(const std::string& key, bool fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(where_, "{} must be true or false, got {}", path_of(key), value->dump());
  return value->get<bool>();
}

std::optional<size_t> StrictObject::choose(const std::string& key, std::span<const std::string_view> names) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string given = value->is_string() ? std::string(full_type_name(value->get<std::string>())) : "";
  for (size_t i = 0; i < names.size(); ++i) {
    if (value->is_string() && given == names[i]) return i;
  }
  fail(where_, "{} must be one of {}, got {}", path_of(key), fmt::join(names, ", "), value->dump());
}

std::vector<std::string> StrictObject::unasked() const {
  std::vector<std::string> keys;
  for (const auto& item : json_.items()) {
    if (asked_.count(item.key()) == 0) keys.push_back(item.key());
  }
  return keys;
}

void StrictObject::finish() const {
  const std::vector<std::string> unknown = unasked();
  if (unknown.empty()) return;
  fail(where_, "every key must be known, got \"{}\" (known here: {})", path_of(unknown[0]),
       asked_.empty() ? "none" : fmt::format("{}", fmt::join(asked_, ", ")));
}

}  // namespace rf::io
