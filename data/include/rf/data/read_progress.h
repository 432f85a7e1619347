// Progress of reading files, in bytes on disk: "tokenizing: 12.3 of 45.6 MB, 4.1 MB/s, 0m08s left".
#pragma once

#include <cstdint>
#include <string>

#include "rf/io/progress.h"

namespace rf::data {

class ReadProgress {
 public:
  // total_bytes: the sum over inputs of known size; pipes are not included.
  ReadProgress(io::Progress& progress, std::string what, int64_t total_bytes);
  void update(int64_t bytes);

 private:
  io::Progress& progress_;
  std::string what_;
  double total_;
  io::TimeEstimate estimate_;
};

}  // namespace rf::data
