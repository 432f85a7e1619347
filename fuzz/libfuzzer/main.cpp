// The program of libFuzzer: the target is that of RF_FUZZ_TARGET in the environment.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "rf/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const rf::fuzz::Target* const target = [] {
    const char* const name = std::getenv("RF_FUZZ_TARGET");
    const rf::fuzz::Target* const found = name == nullptr ? nullptr : rf::fuzz::find_target(name);
    if (found == nullptr) {
      std::fprintf(stderr, "[fuzz] RF_FUZZ_TARGET must name a target, got %s\n", name == nullptr ? "none" : name);
      std::exit(2);
    }
    return found;
  }();
  target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
