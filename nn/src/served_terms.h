// The terms of a model that a program without torch can use: those of position_terms.safetensors
// (rf/nn/position_terms.h), or what such a file would lack.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/nn/model.h"

namespace rf::nn {

struct ServedTerms {
  std::string lacking;                  // the first thing that no file has; then there are no terms
  std::vector<ops::Terms> layers = {};  // for the longest sequence that they serve
  int64_t tokens = 0, longest = 0;      // as in SavedTerms
};

// asked: as the tokens of save_position_terms().
ServedTerms served_terms(const Model& model, std::optional<int64_t> asked);

}  // namespace rf::nn
