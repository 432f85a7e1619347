// A JSON object read strictly: every value is checked for type and range, and a key that nobody reads is an error.
// Keys are named by their path from the top of the file, for example "stages[1].max_length".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rf::io {

struct NumberRange {
  double low, high;
  enum class Ends { kClosed, kOpenLow, kOpenHigh } ends = Ends::kClosed;
};

class StrictObject {
 public:
  // `where` is the tag of the messages, `path` is "" at the top. Throws Error unless `json` is an object.
  StrictObject(const nlohmann::json& json, std::string where, std::string path);

  // Throws Error for the first absent key of `keys`.
  void require(std::initializer_list<const char*> keys);
  // The value, or `fallback` when the key is absent.
  int64_t integer(const std::string& key, int64_t fallback, int64_t low, int64_t high);
  double number(const std::string& key, double fallback, NumberRange range);
  std::string text(const std::string& key, const std::string& fallback);
  bool boolean(const std::string& key, bool fallback);
  // names: pairs of a name and a value.
  template <typename T, typename Names = std::initializer_list<std::pair<const char*, T>>>
  T choice(const std::string& key, T fallback, const Names& names);

  StrictObject object(const std::string& key);         // must be there
  const nlohmann::json* find(const std::string& key);  // nullptr when absent
  std::string path_of(std::string_view key) const;
  const std::string& path() const { return path_; }
  std::vector<std::string> unasked() const;  // keys that were not read
  // Throws Error for the first key that was not read, and lists the known keys.
  void finish() const;

 private:
  // The index of the value among the names; nullopt if the key is absent. Throws Error for another value.
  std::optional<size_t> choose(const std::string& key, std::span<const std::string_view> names);

  const nlohmann::json& json_;
  std::string where_, path_;
  std::set<std::string> asked_;
};

template <typename T, typename Names>
T StrictObject::choice(const std::string& key, T fallback, const Names& names) {
  std::vector<std::string_view> known;
  for (const auto& [name, choice] : names) known.push_back(name);
  const std::optional<size_t> chosen = choose(key, known);
  return chosen ? std::data(names)[*chosen].second : fallback;
}

// The name of a value of such a choice.
template <typename T>
const char* name_of(std::initializer_list<std::pair<const char*, T>> names, T value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  throw std::logic_error("an enumerator without a name");
}

}  // namespace rf::io
