// How far the reading of files is, by the bytes on the disk: "tokenizing: 12.3 of 45.6 MB, 4.1 MB/s, 0m08s left".
#pragma once

#include <cstdint>
#include <string>

#include "rf/io/progress.h"

namespace rf::data {

class ReadProgress {
 public:
  // total_bytes: of what has a size; pipes do not say how much they give.
  ReadProgress(io::Progress& progress, std::string what, int64_t total_bytes);
  void update(int64_t bytes);

 private:
  io::Progress& progress_;
  std::string what_;
  double total_;
  io::Pace pace_;
};

}  // namespace rf::data
