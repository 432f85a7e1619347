// Predicts the most probable tokens for each mask of a text with a masked language model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::engine {
enum class Precision;  // rf/engine/precision.h
}

namespace rf::tasks {

struct MaskFillerOptions {
  engine::Precision precision{};  // kFloat32
  int64_t token_budget = 4096;    // tokens per batch
  text::LoadOptions load{};
  std::function<void(const std::string&)> note{};  // receives warnings; may be empty
};

struct MaskCandidate {
  int64_t id;
  std::string token;
  double probability;
};

struct FilledMask {
  int64_t token_index;                    // of the mask, counted with special tokens
  std::vector<MaskCandidate> candidates;  // most probable first; for ties, the lower id first
};

// Thread-safe.
class MaskFiller {
 public:
  // Throws Error for a causal model, a model without this head, and a different vocabulary.
  explicit MaskFiller(const std::string& model_dir, const MaskFillerOptions& options = {});

  // The candidates for each mask, in order. Throws ArgumentError for a text without a mask.
  std::vector<FilledMask> fill(const std::string& text, int64_t top_k) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // copies share the model
};

}  // namespace rf::tasks
