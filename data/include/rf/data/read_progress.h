// Progress of reading files, in bytes on disk: "tokenizing: 12.3 of 45.6 MB, 4.1 MB/s, 0m08s left".
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "rf/io/progress.h"

namespace rf::data {

class ReadProgress {
 public:
  // total_bytes: the sum over inputs of known size; pipes are not included.
  ReadProgress(io::Progress& progress, std::string what, int64_t total_bytes)
      : progress_(progress), what_(std::move(what)), total_(double(total_bytes)), estimate_(total_) {}

  void update(int64_t bytes) {
    const auto done = double(bytes);
    const std::string of_total = done <= total_ ? fmt::format(" of {:.1f}", total_ / 1e6) : "";
    const double rate = done / std::max(estimate_.seconds(), 1e-9);
    progress_.update(
        fmt::format("{}: {:.1f}{} MB, {:.1f} MB/s{}", what_, done / 1e6, of_total, rate / 1e6, estimate_.left(done)));
  }

 private:
  io::Progress& progress_;
  std::string what_;
  double total_;
  io::TimeEstimate estimate_;
};

}  // namespace rf::data
