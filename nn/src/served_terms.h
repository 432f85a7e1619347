// The terms of a model that a program without torch can use, as in position_terms.safetensors (rf/nn/position_terms.h),
// or the first term that such a file cannot hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/nn/model.h"

namespace rf::nn {

struct ServedTerms {
  std::string lacking;                  // the first term that a file cannot hold; then `layers` is empty
  std::vector<ops::Terms> layers = {};  // for the longest sequence that they support
  int64_t tokens = 0, longest = 0;      // as in SavedTerms
};

// Whether the encoding reads sequences of that many tokens.
bool reads_length(const Encoding& encoding, int64_t tokens);

// asked: as `tokens` of save_position_terms().
ServedTerms served_terms(const Model& model, std::optional<int64_t> asked);

}  // namespace rf::nn
