// The rf_rope objects of this process, by what determines them. An rf_rope holds the frequencies and table rows that
// were used so far, so a call in the steady state finds its object and builds nothing. The number of objects is bounded
// here, the bytes of their tables together in core: the least recently used object goes first; whoever still uses it
// keeps it alive.
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

  // The object for this key, made when it is not there. Throws c10::ValueError for what rf_rope_create refuses.
  std::shared_ptr<rf_rope> get(const RopeKey& key);

 private:
  std::mutex mutex_;
  std::list<std::pair<RopeKey, std::shared_ptr<rf_rope>>> entries_;  // most recently used first
  size_t max_entries_;
};

// The registry that the operators use, 64 entries. It is never destroyed: threads may still use it at exit.
RopeRegistry& rope_registry();

}  // namespace rf::ops
