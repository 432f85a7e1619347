// Table rows kept by position (see the header).
#include "rope_cache.h"

#include <algorithm>
#include <bit>

#include "rope_angle.h"

namespace rf::core {
namespace {

constexpr int64_t kPageRows = 256;
constexpr int64_t kPageBytes = 256 * 1024;

// A page is a power of two of rows, fewer where rows are long.
int page_bits(int64_t row_bytes) {
  const int64_t rows = std::clamp<int64_t>(kPageBytes / row_bytes, 1, kPageRows);
  return std::countr_zero(std::bit_floor(static_cast<uint64_t>(rows)));
}

}  // namespace

template <class T>
RopeCache<T>::RopeCache(const std::vector<DoubleDouble>& frequencies, double scale, int64_t max_rows)
    : frequencies_(frequencies), scale_(scale), row_size_(2 * static_cast<int64_t>(frequencies.size())) {
  const int64_t row_bytes = row_size_ * static_cast<int64_t>(sizeof(T));
  max_rows_ = max_rows != 0 ? max_rows : std::min(kDefaultCachedRows, kDefaultCacheBytes / row_bytes);
  page_bits_ = page_bits(row_bytes);
  pages_ = std::vector<std::atomic<T*>>(static_cast<size_t>((max_rows_ >> page_bits_) + 1));
}

template <class T>
void RopeCache<T>::add_pages(std::vector<int64_t> pages) {
  const std::lock_guard lock(growth_);
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  std::erase_if(pages, [this](int64_t page) { return has_page(page); });
  const int64_t page_rows = int64_t{1} << page_bits_;
  const size_t before = owned_.size();
  owned_.reserve(before + pages.size());
  std::vector<std::unique_ptr<T[]>> fresh(pages.size());
  for (auto& page : fresh) page = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(page_rows * row_size_));
  const auto rows = static_cast<int64_t>(pages.size()) * page_rows;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const auto at = static_cast<size_t>(r / page_rows);
    const int64_t in_page = r % page_rows;
    compute(static_cast<double>(pages[at] * page_rows + in_page), fresh[at].get() + in_page * row_size_);
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    pages_[static_cast<size_t>(pages[i])].store(fresh[i].get(), std::memory_order_release);
    owned_.push_back(std::move(fresh[i]));
  }
}

template <class T>
void RopeCache<T>::compute(double position, T* out) const {
  fill_row(frequencies_, scale_, position, out, out + row_size_ / 2);
}

template class RopeCache<float>;
template class RopeCache<double>;

}  // namespace rf::core
