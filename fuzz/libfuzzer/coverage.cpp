// Coverage for libFuzzer from g++, whose -fsanitize-coverage=trace-pc calls a function at every edge. libFuzzer counts
// in arrays of 8-bit counters, which clang would make; here they are one array, indexed by a hash of the caller. It has
// the functions for comparisons of integers, but not those for floating point.
#include <cstdint>

extern "C" void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);

namespace {

constexpr uintptr_t kCounters = 1 << 16;
uint8_t counters[kCounters];
[[maybe_unused]] const int registered = (__sanitizer_cov_8bit_counters_init(counters, counters + kCounters), 0);

}  // namespace

extern "C" __attribute__((no_sanitize_coverage, no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  const auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  uint8_t& counter = counters[(caller ^ caller >> 16) % kCounters];
  counter = static_cast<uint8_t>(counter + 1);
}

extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
