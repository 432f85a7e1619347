// Handles keys of config.json that a model family does not read, with one rule for all families. A key that changes the
// result is refused unless its value changes nothing. A known harmless key is ignored, regardless of its value. An
// unknown key is refused or causes a warning.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rf {

// How a reader treats an unknown key.
enum class UnknownKeys {
  kRefused,  // in a file that a user writes for this program
  kWarned,   // in a model directory, which other programs write
};

// The value for the comparison; 0 and "": unknown.
struct KeyContext {
  std::string_view where;  // for messages
  UnknownKeys unknown = UnknownKeys::kWarned;
  bool causal = false;
  int64_t hidden_size = 0, heads = 0, head_dim = 0, max_position_embeddings = 0;
  double rope_base = 0;
  std::string activation = {};
  std::vector<std::string_view> hints = {};  // keys that the reader reads, for "did you mean"
};

// A key of config.json that no model reads, regardless of its value.
enum class Harmless {
  kKept,     // written back unchanged
  kDropped,  // describes the original file: its place, its dtype
};
std::optional<Harmless> harmless_key(std::string_view key);

// Throws Error, or warns, for a key that is not read.
void check_unread_key(std::string_view key, const nlohmann::json& value, const KeyContext& context);

}  // namespace rf
