#include "masking.h"

#include <algorithm>

#include "rf/data/random.h"
#include "rf/io/error.h"

namespace rf::data {
namespace {

void check_fraction(const char* name, double value, double min_value) {
  if (!(value >= min_value && value <= 1)) fail("mask", "{} must be in [{}, 1], got {}", name, min_value, value);
}

}  // namespace

Masking::Masking(const MaskOptions& options, const text::SpecialIds& special, int64_t vocab_size, uint64_t seed)
    : unit_(options.unit),
      special_{special.pad, special.unk, special.cls, special.sep, special.mask},
      mask_id_(special.mask),
      vocab_size_(vocab_size),
      seed_(seed) {
  if (!(options.probability > 0 && options.probability <= 1)) {
    fail("mask", "probability must be above 0 and at most 1, got {}", options.probability);
  }
  check_fraction("mask_fraction", options.mask_fraction, 0);
  check_fraction("random_fraction", options.random_fraction, 0);
  check_fraction("mask_fraction + random_fraction", options.mask_fraction + options.random_fraction, 0);
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

bool Masking::is_special(int64_t id) const { return std::binary_search(special_.begin(), special_.end(), id); }

int64_t Masking::replacement(int64_t id, int64_t epoch, int64_t chunk, int64_t t) const {
  const PhiloxBlock words = draw(seed_, Stream::kMask, static_cast<uint32_t>(t), epoch, chunk);
  if (words[1] < mask_) return mask_id_;
  if (words[1] >= mask_or_random_) return id;
  int64_t random = scale_to(words[2], vocab_size_ - std::ssize(special_));
  for (const int64_t skipped : special_) random += random >= skipped ? 1 : 0;
  return random;
}

void Masking::choose(const MaskCandidate& candidate, Batch& batch) const {
  for (int64_t t = candidate.t; t < candidate.t + candidate.count; ++t) {
    int64_t& id = batch.ids[candidate.at + t];
    batch.places.push_back(candidate.at + t);
    batch.labels.push_back(id);
    id = replacement(id, candidate.epoch, candidate.chunk, t);
  }
}

void Masking::mask_chunk(MaskCandidate chunk, std::span<const uint8_t> starts_word, Batch& batch,
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

}  // namespace rf::data
