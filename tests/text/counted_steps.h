// The basic blocks of the module text that this thread has run. Only the sanitizer build counts them
// (-fsanitize-coverage, text/CMakeLists.txt).
#pragma once

#include <cstdint>

namespace rf::text {
int64_t counted_steps();
}  // namespace rf::text
