// The key of dropout's draws (core/include/rf/dropout.h).
#pragma once

#include <cstdint>

namespace rf::nn {

// (seed, step, call number within the step). A forward pass counts its dropout sites in its copy of the key.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t calls = 0;
  int64_t next_stream() { return static_cast<int64_t>(step << 16 | calls++); }
};

}  // namespace rf::nn
