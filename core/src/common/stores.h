// How results go to memory.
#ifndef RF_CORE_COMMON_STORES_H_
#define RF_CORE_COMMON_STORES_H_

namespace rf::core {

// Streaming stores go past the caches; for results that, with their input, are larger than the last-level cache.
enum class Stores { kPlain, kStreaming };

}  // namespace rf::core
#endif
