// Masked-LM decisions (spec R-TRN-01): which tokens are chosen, and the tokens that replace them in the input.
//
// For the token at index t of a chunk, draw(seed, kMask, t, epoch, chunk) gives four uniform words:
//   word 0  chosen when below probability (kWholeWord: the draw of the word's first token decides for all its tokens)
//   word 1  replacement: [MASK] below mask_fraction, random below mask_fraction + random_fraction, otherwise unchanged
//   word 2  the random id, uniform over the ids that are not special
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rf/data/batcher.h"
#include "rf/text/vocabulary.h"

namespace rf::data {

// A token or a word that may be chosen: tokens [t, t + count) of a chunk whose first one is at flat index `at`.
struct MaskCandidate {
  int64_t epoch = 0, chunk = 0, at = 0, t = 0, count = 0;
  uint32_t draw = 0;
};

class Masking {
 public:
  // Throws Error for options out of range and special ids outside the vocabulary.
  Masking(const MaskOptions& options, const text::SpecialIds& special, int64_t vocab_size, uint64_t seed);

  void choose(const MaskCandidate& candidate, Batch& batch) const;
  // Masks the chunk whose first token after [CLS] is at flat index `at`; chunks come in rising flat index. Updates
  // `least` to the first candidate with the smallest draw.
  void mask_chunk(MaskCandidate chunk, std::span<const uint8_t> starts_word, Batch& batch,
                  std::optional<MaskCandidate>& least) const;

 private:
  bool is_special(int64_t id) const;
  int64_t replacement(int64_t id, int64_t epoch, int64_t chunk, int64_t t) const;  // the token in the input

  MaskUnit unit_;
  uint64_t probability_, mask_, mask_or_random_;  // thresholds
  std::vector<int64_t> special_;                  // sorted
  int64_t mask_id_, vocab_size_;
  uint64_t seed_;
};

}  // namespace rf::data
