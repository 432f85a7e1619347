// Masked-LM decisions (spec R-TRN-01): which tokens are chosen, and the tokens that replace them in the input.
//
// For the token at index t of a chunk, draw(seed, kMask, t, epoch, chunk) gives four uniform words:
//   word 0  chosen when below probability (kWholeWord: the draw of the word's first token decides for all its tokens)
//   word 1  replacement: [MASK] below mask_fraction, random below mask_fraction + random_fraction, otherwise unchanged
//   word 2  the random id, uniform over the ids that are not special
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rf/data/batcher.h"
#include "rf/data/random.h"
#include "rf/io/error.h"
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
  Masking(const MaskOptions& options, const text::SpecialIds& special, int64_t vocab_size, uint64_t seed)
      : unit_(options.unit),
        special_{special.pad, special.unk, special.cls, special.sep, special.mask},
        mask_id_(special.mask),
        vocab_size_(vocab_size),
        seed_(seed) {
    if (!(options.probability > 0 && options.probability <= 1)) {
      fail("mask", "probability must be above 0 and at most 1, got {}", options.probability);
    }
    check_fraction("mask_fraction", options.mask_fraction);
    check_fraction("random_fraction", options.random_fraction);
    check_fraction("mask_fraction + random_fraction", options.mask_fraction + options.random_fraction);
    std::sort(special_.begin(), special_.end());
    special_.erase(std::unique(special_.begin(), special_.end()), special_.end());
    if (special_.front() < 0 || special_.back() >= vocab_size) {
      fail("mask", "special ids must be in the vocabulary of the data, [0, {}), got {}", vocab_size,
           special_.front() < 0 ? special_.front() : special_.back());
    }
    if (std::ssize(special_) == vocab_size && options.random_fraction > 0) {
      fail("mask", "random replacement needs a vocabulary with more than special tokens, got {} tokens", vocab_size);
    }
    probability_ = threshold(options.probability);
    mask_ = threshold(options.mask_fraction);
    mask_or_random_ = threshold(options.mask_fraction + options.random_fraction);
  }

  void choose(const MaskCandidate& candidate, Batch& batch) const {
    for (int64_t t = candidate.t; t < candidate.t + candidate.count; ++t) {
      int64_t& id = batch.ids[candidate.at + t];
      batch.places.push_back(candidate.at + t);
      batch.labels.push_back(id);
      id = replacement(id, candidate.epoch, candidate.chunk, t);
    }
  }
  // Masks the chunk whose first token after [CLS] is at flat index `at`; chunks come in rising flat index. Updates
  // `least` to the first candidate with the smallest draw.
  void mask_chunk(MaskCandidate chunk, std::span<const uint8_t> starts_word, Batch& batch,
                  std::optional<MaskCandidate>& least) const {
    const int64_t count = std::ssize(starts_word);
    for (int64_t t = 0, end; t < count; t = end) {
      end = t + 1;
      if (is_special(batch.ids[chunk.at + t])) continue;
      if (unit_ == MaskUnit::kWholeWord) {
        while (end < count && starts_word[end] == 0 && !is_special(batch.ids[chunk.at + end])) ++end;
      }
      chunk.t = t;
      chunk.count = end - t;
      chunk.draw = data::draw(seed_, Stream::kMask, static_cast<uint32_t>(t), chunk.epoch, chunk.chunk)[0];
      if (chunk.draw < probability_) choose(chunk, batch);
      if (!least || chunk.draw < least->draw) least = chunk;
    }
  }

 private:
  static void check_fraction(const char* name, double value) {
    if (!(value >= 0 && value <= 1)) fail("mask", "{} must be in [0, 1], got {}", name, value);
  }
  bool is_special(int64_t id) const { return std::binary_search(special_.begin(), special_.end(), id); }
  // The token in the input.
  int64_t replacement(int64_t id, int64_t epoch, int64_t chunk, int64_t t) const {
    const PhiloxBlock words = draw(seed_, Stream::kMask, static_cast<uint32_t>(t), epoch, chunk);
    if (words[1] < mask_) return mask_id_;
    if (words[1] >= mask_or_random_) return id;
    int64_t random = scale_to(words[2], vocab_size_ - std::ssize(special_));
    for (const int64_t skipped : special_) random += random >= skipped ? 1 : 0;
    return random;
  }

  MaskUnit unit_;
  uint64_t probability_, mask_, mask_or_random_;  // thresholds
  std::vector<int64_t> special_;                  // sorted
  int64_t mask_id_, vocab_size_;
  uint64_t seed_;
};

}  // namespace rf::data
