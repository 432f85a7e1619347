#include "rf/data/read_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rf::data {

ReadProgress::ReadProgress(io::Progress& progress, std::string what, int64_t total_bytes)
    : progress_(progress), what_(std::move(what)), total_(double(total_bytes)), estimate_(total_) {}

void ReadProgress::update(int64_t bytes) {
  const auto done = double(bytes);
  const std::string of_total = done <= total_ ? fmt::format(" of {:.1f}", total_ / 1e6) : "";
  const double rate = done / std::max(estimate_.seconds(), 1e-9);
  progress_.update(
      fmt::format("{}: {:.1f}{} MB, {:.1f} MB/s{}", what_, done / 1e6, of_total, rate / 1e6, estimate_.left(done)));
}

}  // namespace rf::data
