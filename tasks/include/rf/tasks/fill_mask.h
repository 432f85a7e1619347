// The most probable tokens for each mask of a text, by a masked language model.
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
  int64_t token_budget = 4096;    // tokens that are computed at once
  text::LoadOptions load{};
  std::function<void(const std::string&)> note{};  // receives warnings; may be empty
};

struct MaskCandidate {
  int64_t id;
  std::string token;
  double probability;
};

struct FilledMask {
  int64_t token_index;                    // of the mask, among the tokens of the text and its special tokens
  std::vector<MaskCandidate> candidates;  // the most probable first; of equal ones the lower id
};

// May be used by several threads at once.
class MaskFiller {
 public:
  // Throws Error for a causal model, and for one without such a head or whose vocabulary is another one.
  explicit MaskFiller(const std::string& model_dir, const MaskFillerOptions& options = {});
  ~MaskFiller();
  MaskFiller(MaskFiller&&) noexcept;
  MaskFiller& operator=(MaskFiller&&) noexcept;

  // The candidates for each mask, in order. Throws ArgumentError for a text without one.
  std::vector<FilledMask> fill(const std::string& text, int64_t top_k) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::tasks
