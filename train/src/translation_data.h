// Pairs of sentences as tokens, and their batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rf/data/sentence_pairs.h"
#include "rf/nn/translation_model.h"
#include "rf/text/tokenizer.h"

namespace rf::train {

// The tokens of all pairs; both sides of each have their end.
class PairTokens {
 public:
  // Pairs with an empty side, or one of more than max_length tokens, are left out, and bytes that are not UTF-8 are
  // read as U+FFFD; each with a message to `note` that names file and line of the first case. Throws Error if no pair
  // is left.
  PairTokens(const data::PairFiles& files, const text::Tokenizer& tokenizer, int64_t max_length,
             const std::function<void(const std::string&)>& note);

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::span<const int32_t> source(int64_t pair) const;
  std::span<const int32_t> target(int64_t pair) const;
  std::string identity() const;  // a hash of the tokens

 private:
  struct Ends {
    size_t source, target;
  };
  size_t begin_of(int64_t pair) const { return pair == 0 ? 0 : ends_[static_cast<size_t>(pair - 1)].target; }
  std::vector<int32_t> ids_;  // source, target, source, ..
  std::vector<Ends> ends_;
};

// Batches of pairs of about the same length, of at most max_tokens: pairs times the longest side. Which pairs, and the
// order of the batches, are functions of seed and epoch.
std::vector<std::vector<int64_t>> pair_batches(const PairTokens& pairs, int64_t max_tokens, uint64_t seed,
                                               int64_t epoch);

struct TranslationBatch {
  nn::TranslationInput input;
  at::Tensor places_N, labels_N;  // int64: flat indices into [B*T], and the tokens to be predicted there
};
// device: of everything but the mask, which is read on the CPU.
TranslationBatch make_translation_batch(const PairTokens& pairs, std::span<const int64_t> batch,
                                        const ModelConfig& config, at::Device device);

}  // namespace rf::train
