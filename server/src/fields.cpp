// The fields of requests (fields.h).
#include "fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "http.h"
#include "rf/io/printable.h"

namespace rf::server {

namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw HttpError(http::status::bad_request, fmt::format(format, std::forward<Args>(args)...));
}

// Converts a number with an integer value, such as 2.0, to an integer; returns other numbers unchanged.
nlohmann::json as_integer(const nlohmann::json& value) {
  constexpr double kEnd = 0x1p63;
  const auto number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) >= kEnd) return value;
  return static_cast<int64_t>(number);
}

}  // namespace

nlohmann::json parse_object(std::string_view body) {
  static constexpr int kDeepest = 16, kMostValues = 1'000'000;
  int values = 0;
  std::array<std::set<std::string>, kDeepest + 2> keys;  // of the open objects
  using Event = nlohmann::json::parse_event_t;
  const auto limit = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > kDeepest) refuse("the body must be nested at most {} deep, got more", kDeepest);
    values += event != Event::key && event != Event::object_end && event != Event::array_end ? 1 : 0;
    if (values > kMostValues) refuse("the body must have at most {} values, got more", kMostValues);
    if (event == Event::object_start) keys[depth + 1].clear();
    if (event == Event::key && !keys[depth].insert(value.get<std::string>()).second)
      refuse("a field must be given once, got {} twice", io::printable(value.get<std::string>()));
    if (event == Event::value && value.is_number_float()) value = as_integer(value);
    return true;
  };
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(body, limit);
  } catch (const nlohmann::json::exception& error) {
    refuse("the body must be JSON, got: {}", io::printable(error.what()));
  }
  if (!object.is_object()) refuse("the body must be a JSON object, got {}", object.type_name());
  return object;
}

const nlohmann::json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& Fields::required(const char* name) const {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) refuse("{} must be given, got none", name);
  return *value;
}

std::string text_of(const nlohmann::json& value, const std::string& name) {
  if (!value.is_string()) refuse("{} must be a text, got {}", name, value.type_name());
  return value.get<std::string>();
}

std::string Fields::text(const char* name) const { return text_of(required(name), name); }

std::string Fields::text_or(const char* name, std::string fallback) const {
  const nlohmann::json* const value = find(name);
  return value == nullptr ? fallback : text_of(*value, name);
}

bool Fields::flag(const char* name, bool fallback) const {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse("{} must be true or false, got {}", name, value->type_name());
  return value->get<bool>();
}

std::optional<int64_t> Fields::integer(const char* name, int64_t low, int64_t high) const {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() >> 63 == 0);
  if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high)
    refuse("{} must be an integer from {} to {}, got {}", name, low, high, io::shown(*value));
  return value->get<int64_t>();
}

double Fields::number(const char* name, double fallback, double low, double high) const {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : low - 1;
  if (number < low || number > high)
    refuse("{} must be a number from {} to {}, got {}", name, low, high, io::shown(*value));
  return number;
}

std::vector<std::string> Fields::texts(const char* name) const {
  const nlohmann::json& value = required(name);
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) refuse("{} must be a text or a list of texts, got {}", name, value.type_name());
  if (value.empty()) refuse("{} must have at least one text, got an empty list", name);
  std::vector<std::string> texts;
  for (const nlohmann::json& each : value) texts.push_back(text_of(each, fmt::format("{}[{}]", name, texts.size())));
  return texts;
}

std::string Fields::one_of(const char* name, std::initializer_list<const char*> allowed) const {
  std::string value = text_or(name, *allowed.begin());
  if (std::ranges::find(allowed, value) == allowed.end())
    refuse("{} must be {}, got {}", name, fmt::join(allowed, " or "), io::printable(value));
  return value;
}

void Fields::only(const char* name, const nlohmann::json& allowed) const {
  const nlohmann::json* const value = find(name);
  if (value != nullptr && *value != allowed) refuse("{} must be {}, got {}", name, allowed.dump(), io::shown(*value));
}

}  // namespace rf::server
