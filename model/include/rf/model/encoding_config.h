// Which position encoding and which attention a model uses, as config.json says it: a name, and keys that only the
// named thing knows how to read. Nothing here knows any name.
#pragma once

#include <string>

namespace rf {

// "position_encoding": {"type": "shaw", "max_relative_position": 16}, or "position_encoding": "shaw".
struct EncodingConfig {
  std::string type = "rope";
  std::string options = "{}";  // JSON object with the keys besides type, sorted, without spaces
  bool operator==(const EncodingConfig&) const = default;
};

// "attention": {"type": "linear", "feature_map": "elu"}, or "attention": "softmax".
struct AttentionConfig {
  std::string type = "softmax";
  std::string options = "{}";
  bool operator==(const AttentionConfig&) const = default;
};

}  // namespace rf
