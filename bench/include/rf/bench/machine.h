// The machine and build of a measurement; part of every list of results.
#pragma once

#include <string>

namespace rf::bench {

struct Machine {
  std::string cpu;     // the processor's name, "unknown" if not reported
  unsigned cores = 0;  // logical processors; 0: not known
  std::string target;  // instruction set of the kernels (rf_target)
  std::string
      commit;  // that the program was built from, with "-dirty" after it if files had been changed; or "unknown"
};
Machine this_machine();

}  // namespace rf::bench
