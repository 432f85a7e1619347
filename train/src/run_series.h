// Names of consecutive runs for progress lines: "rope, seed 2 (run 3 of 9, 12m00s for those after it)", estimated from
// the time of the runs that this process trained.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "rf/io/progress.h"

namespace rf::train {

class RunSeries {
 public:
  explicit RunSeries(int64_t runs) : runs_(runs) {}

  // Skips a run that is already finished.
  void skip() { ++number_; }
  // Begins a run; returns its full name.
  std::string begin(const std::string& name) {
    ++number_;
    start_ns_ = io::steady_ns();
    const double after = static_cast<double>(runs_ - number_);
    const std::string left = trained_ == 0 || after == 0
                                 ? ""
                                 : fmt::format(", {} for those after it",
                                               io::duration_text(after * seconds_ / static_cast<double>(trained_)));
    return fmt::format("{} (run {} of {}{})", name, number_, runs_, left);
  }
  void end() {
    seconds_ += static_cast<double>(io::steady_ns() - start_ns_) * 1e-9;
    ++trained_;
  }

 private:
  int64_t runs_, number_ = 0, trained_ = 0, start_ns_ = 0;
  double seconds_ = 0;
};

}  // namespace rf::train
