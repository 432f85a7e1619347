#include "rope_registry.h"

#include <algorithm>

#include "status.h"

namespace rf::ops {
namespace {

std::shared_ptr<rf_rope> create(const RopeKey& key) {
  const int64_t num_freqs = key.rotary_dim / 2;
  rf_rope* rope = nullptr;
  if (key.freqs.empty()) {
    std::vector<double> hi(num_freqs), lo(num_freqs);
    check_status(rf_rope_frequencies(key.base, key.rotary_dim, hi.data(), lo.data()));
    check_status(rf_rope_create(hi.data(), lo.data(), num_freqs, key.scale, 0, &rope));
  } else {
    check_status(rf_rope_create(key.freqs.data(), nullptr, num_freqs, key.scale, 0, &rope));
  }
  return {rope, rf_rope_destroy};
}

}  // namespace

std::shared_ptr<rf_rope> RopeRegistry::get(const RopeKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.emplace_front(key, create(key));
    if (entries_.size() > max_entries_) entries_.pop_back();
  }
  return entries_.front().second;
}

RopeRegistry& rope_registry() {
  constexpr size_t kMaxEntries = 64;
  static auto& registry = *new RopeRegistry(kMaxEntries);
  return registry;
}

}  // namespace rf::ops
