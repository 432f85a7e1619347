// The position encoding and the attention of a model in config.json: a name, and keys that only the named encoding or
// attention interprets. This file does not depend on any name.
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
