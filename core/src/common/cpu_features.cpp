// Permission to use AMX, and the size of the last-level cache (see the header). The processor's own description of each
// cache (CPUID leaf 4, 0x8000001D on AMD) comes first: the C library reports the sum over all cache slices of an AMD
// socket, but a core fills only one slice.
#include "common/cpu_features.h"

#include <unistd.h>

#include <algorithm>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#endif

namespace rf::core {
namespace {

#if defined(__x86_64__)

int64_t largest_cache(unsigned leaf) {
  constexpr unsigned kMaxCaches = 16;
  int64_t largest = 0;
  for (unsigned index = 0; index < kMaxCaches; ++index) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(leaf, index, &a, &b, &c, &d) == 0 || (a & 0x1F) == 0) break;
    const int64_t ways = (b >> 22) + 1, partitions = ((b >> 12) & 0x3FF) + 1, line = (b & 0xFFF) + 1;
    largest = std::max(largest, ways * partitions * line * (int64_t{c} + 1));
  }
  return largest;
}

int64_t described_by_processor() { return std::max(largest_cache(4), largest_cache(0x8000001D)); }

#else

int64_t described_by_processor() { return 0; }

#endif

int64_t described_by_system() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  return std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
#else
  return 0;
#endif
}

}  // namespace

bool may_use_amx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and the state's number
  static const bool may = has_bf16_instruction() && has_amx_bf16() && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return may;
#else
  return false;
#endif
}

int64_t last_level_cache_bytes() {
  static const int64_t bytes = [] {
    constexpr int64_t kTypical = int64_t{32} << 20;
    if (const int64_t found = described_by_processor(); found > 0) return found;
    const int64_t found = described_by_system();
    return found > 0 ? found : kTypical;
  }();
  return bytes;
}

}  // namespace rf::core
