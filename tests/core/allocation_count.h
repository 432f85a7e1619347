// How often the test program, with its libraries, has allocated memory.
#pragma once

#include <cstdint>

namespace rf::tests {

// False where calls of malloc cannot be counted: under sanitizers, and without the GNU C library.
bool counts_allocations();
int64_t allocations();

}  // namespace rf::tests
