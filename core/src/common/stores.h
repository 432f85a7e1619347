// Ways to store results.
#ifndef RF_CORE_COMMON_STORES_H_
#define RF_CORE_COMMON_STORES_H_

namespace rf::core {

// Streaming stores bypass the caches, for results that, with their input, exceed the last-level cache.
enum class Stores { kPlain, kStreaming };

}  // namespace rf::core
#endif
