// Table rows of one operator, kept by position. Rows come in pages of consecutive positions, made when a call first
// needs one and kept until the operator goes: a page never moves, so calls on other threads read on while pages are
// added, and a call that finds its pages locks and allocates nothing.
//
// Memory: at most max_rows rows of 2 num_freqs elements, rounded up to a whole page.
#ifndef RF_CORE_ROPE_CACHE_H_
#define RF_CORE_ROPE_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "double_double.h"

namespace rf::core {

inline constexpr int64_t kDefaultCachedRows = int64_t{1} << 17;
inline constexpr int64_t kMaxCachedRows = int64_t{1} << 24;
// The default bound also keeps one table below this size.
inline constexpr int64_t kDefaultCacheBytes = int64_t{256} << 20;

// T: float or double.
template <class T>
class RopeCache {
 public:
  // frequencies must outlive the cache. max_rows 0 takes the defaults above.
  RopeCache(const std::vector<DoubleDouble>& frequencies, double scale, int64_t max_rows);

  // Whether the row of a position is kept at all.
  bool keeps(int64_t position) const { return position >= 0 && position < max_rows_; }

  int64_t max_rows() const { return max_rows_; }

  int64_t page_of(int64_t position) const { return position >> page_bits_; }

  bool has_page(int64_t page) const {
    return pages_[static_cast<size_t>(page)].load(std::memory_order_acquire) != nullptr;
  }

  int64_t page_rows() const { return int64_t{1} << page_bits_; }

  // Makes those of the pages that are not there; duplicates are allowed.
  void add_pages(std::vector<int64_t> pages);

  // Row of a kept position whose page exists: num_freqs cosines, then num_freqs sines, times scale.
  const T* row(int64_t position) const {
    const T* page = pages_[static_cast<size_t>(page_of(position))].load(std::memory_order_acquire);
    return page + (position & (page_rows() - 1)) * row_size_;
  }

  // Computes the row of any position into out, [2 num_freqs].
  void compute(double position, T* out) const;

 private:
  const std::vector<DoubleDouble>& frequencies_;
  double scale_;
  int64_t row_size_;
  int64_t max_rows_;
  int page_bits_;
  std::vector<std::atomic<T*>> pages_;
  std::mutex growth_;  // guards owned_
  std::vector<std::unique_ptr<T[]>> owned_;
};

extern template class RopeCache<float>;
extern template class RopeCache<double>;

}  // namespace rf::core
#endif
