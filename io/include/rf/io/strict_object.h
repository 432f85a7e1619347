// A JSON object read strictly: every value is checked for type and range, and a key that nobody reads is an error.
// Keys are named by their path from the top of the file, for example "stages[1].max_length".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace rf::io {

struct NumberRange {
  double low, high;
  enum class Ends { kClosed, kOpenLow, kOpenHigh } ends = Ends::kClosed;
};

class StrictObject {
 public:
  // `where` is the tag of the messages, `path` is "" at the top. Throws Error unless `json` is an object.
  StrictObject(const nlohmann::json& json, std::string where, std::string path);

  // Throws Error for the first of these keys that is absent.
  void require(std::initializer_list<const char*> keys);
  // The value, or `fallback` when the key is absent.
  int64_t integer(const std::string& key, int64_t fallback, int64_t low, int64_t high);
  double number(const std::string& key, double fallback, NumberRange range);
  std::string text(const std::string& key, const std::string& fallback);
  bool boolean(const std::string& key, bool fallback);
  template <typename T>
  T choice(const std::string& key, T fallback, std::initializer_list<std::pair<const char*, T>> names);

  StrictObject object(const std::string& key);         // must be there
  const nlohmann::json* find(const std::string& key);  // nullptr when absent
  std::string path_of(std::string_view key) const;
  // Throws Error for the first key that was not asked for, with the keys that were.
  void finish() const;

 private:
  [[noreturn]] void fail_choice(const std::string& key, const std::string& names, const nlohmann::json& got) const;

  const nlohmann::json& json_;
  std::string where_, path_;
  std::set<std::string> asked_;
};

template <typename T>
T StrictObject::choice(const std::string& key, T fallback, std::initializer_list<std::pair<const char*, T>> names) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  std::string listed;
  for (const auto& [name, choice] : names) {
    if (value->is_string() && value->get_ref<const std::string&>() == name) return choice;
    listed += listed.empty() ? "" : ", ";
    listed += name;
  }
  fail_choice(key, listed, *value);
}

}  // namespace rf::io
