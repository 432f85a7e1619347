// The basic blocks of the module text that this thread has run. Only the sanitizer build counts them
// (-fsanitize-coverage, text/CMakeLists.txt).
#include <cstdint>

namespace {
thread_local uint64_t g_steps = 0;  // unsigned: no sanitizer checks each addition
}  // namespace

namespace rf::text {
int64_t counted_steps() { return static_cast<int64_t>(g_steps); }
}  // namespace rf::text

extern "C" void __sanitizer_cov_trace_pc() { ++g_steps; }
