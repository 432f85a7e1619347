// What a key of config.json does that the reader of a model's family does not read: one rule for all families. A key
// that changes the result is refused unless its value means that nothing is changed; a key that is known to be harmless
// is ignored, whatever its value; a key that nobody knows is refused or warned of.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rf {

// What a reader does with a key that nobody knows.
enum class UnknownKeys {
  kRefused,  // in a file that a person writes for this program
  kWarned,   // in a model directory, which other programs write
};

// What a value is compared with; 0 and "": not known.
struct KeyContext {
  std::string_view where;  // of messages
  UnknownKeys unknown = UnknownKeys::kWarned;
  bool causal = false;
  int64_t hidden_size = 0, heads = 0, head_dim = 0, max_position_embeddings = 0;
  double rope_base = 0;
  std::string activation = {};
  std::vector<std::string_view> hints = {};  // keys that the reader reads, for "did you mean"
};

// A key of config.json that no model reads, whatever its value.
enum class Harmless {
  kKept,     // written back as it was read
  kDropped,  // about the file it came from: its place, its dtype
};
std::optional<Harmless> harmless_key(std::string_view key);

// Throws Error, or warns, for a key that the reader does not read.
void check_unread_key(std::string_view key, const nlohmann::json& value, const KeyContext& context);

}  // namespace rf
