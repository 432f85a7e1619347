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

bool Masking::is_special(int64_t id) const {
  return std::binary_search(special_.begin(), special_.end(), id);
}

uint32_t Masking::selection(int64_t epoch, int64_t chunk, int64_t t) const {
  return draw(seed_, Stream::kMask, static_cast<uint32_t>(t), epoch, chunk)[0];
}

int64_t Masking::replacement(int64_t id, int64_t epoch, int64_t chunk, int64_t t) const {
  const PhiloxBlock words = draw(seed_, Stream::kMask, static_cast<uint32_t>(t), epoch, chunk);
  if (words[1] < mask_) return mask_id_;
  if (words[1] >= mask_or_random_) return id;
  int64_t random = scale_to(words[2], vocab_size_ - std::ssize(special_));
  for (const int64_t skipped : special_) random += random >= skipped ? 1 : 0;
  return random;
}

void MaskDraft::add(int64_t epoch, int64_t chunk, int64_t at, std::span<const uint8_t> starts_word) {
  const int64_t count = std::ssize(starts_word);
  for (int64_t t = 0, end; t < count; t = end) {
    end = t + 1;
    if (masking_.is_special(batch_.ids[at + t])) continue;
    if (masking_.unit() == MaskUnit::kWholeWord) {
      while (end < count && starts_word[end] == 0 && !masking_.is_special(batch_.ids[at + end])) ++end;
    }
    consider({epoch, chunk, at, t, end - t});
  }
}

void MaskDraft::consider(const Unit& unit) {
  const uint32_t word = masking_.selection(unit.epoch, unit.chunk, unit.t);
  if (masking_.selects(word)) {
    choose(unit);
  } else if (word < closest_draw_) {
    closest_ = unit;
    closest_draw_ = word;
  }
}

void MaskDraft::choose(const Unit& unit) {
  for (int64_t t = unit.t; t < unit.t + unit.count; ++t) {
    int64_t& id = batch_.ids[unit.at + t];
    batch_.places.push_back(unit.at + t);
    batch_.labels.push_back(id);
    id = masking_.replacement(id, unit.epoch, unit.chunk, t);
  }
}

void MaskDraft::finish() {
  if (batch_.places.empty()) choose(closest_);
}

}  // namespace rf::data
