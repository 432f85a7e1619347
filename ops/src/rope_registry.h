// The rf_rope objects of this process, keyed by their parameters. An rf_rope keeps the frequencies and table rows used
// so far, so a call in the steady state finds its object and builds nothing. The registry bounds the number of objects,
// and core bounds the total bytes of their tables. The least recently used object is removed first; its current users
// keep it alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rf/rope.h"

namespace rf::ops {

struct RopeKey {
  double base;                // of theta_i = base^(-2i/rotary_dim); 0 when freqs are given
  std::vector<double> freqs;  // [rotary_dim/2], or empty
  int64_t rotary_dim;
  double scale;

  bool operator==(const RopeKey&) const = default;
};

class RopeRegistry {
 public:
  explicit RopeRegistry(size_t max_entries) : max_entries_(max_entries) {}

  // The object for this key, created if absent. Throws c10::ValueError for arguments that rf_rope_create refuses.
  std::shared_ptr<rf_rope> get(const RopeKey& key);

 private:
  std::mutex mutex_;
  std::list<std::pair<RopeKey, std::shared_ptr<rf_rope>>> entries_;  // most recently used first
  size_t max_entries_;
};

// The registry that the operators use, 64 entries. It is never destroyed: threads may still use it at exit.
RopeRegistry& rope_registry();

}  // namespace rf::ops
