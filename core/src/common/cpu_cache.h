// Size of the last-level cache that one core sees.
#ifndef RF_CORE_COMMON_CPU_CACHE_H_
#define RF_CORE_COMMON_CPU_CACHE_H_

#include <cstdint>

namespace rf::core {

// Bytes, read from the processor once; 32 MiB if it does not report them.
int64_t last_level_cache_bytes();

}  // namespace rf::core
#endif
