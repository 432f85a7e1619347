// The error text of the C interface, one per thread; the version; kept memory.
#include "rf/status.h"

#include <cstdio>
#include <cstring>

#include "common/error.h"
#include "common/scratch.h"
#include "rope/cache.h"

namespace rf::core {
namespace {

thread_local char last_error[1024];

// Removes an incomplete UTF-8 character at the end.
void drop_cut_character() noexcept {
  const size_t end = std::strlen(last_error);
  if (end + 1 < sizeof last_error) return;  // nothing was cut
  size_t first = end;
  while (first > 0 && end - first < 3 && (static_cast<unsigned char>(last_error[first - 1]) & 0xC0) == 0x80) --first;
  if (first == 0) return;
  const auto lead = static_cast<unsigned char>(last_error[first - 1]);
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (first - 1 + length > end) last_error[first - 1] = 0;
}

}  // namespace

void set_last_error(const char* where, const char* what) noexcept {
  if (where == nullptr) {
    std::snprintf(last_error, sizeof last_error, "%s", what);
  } else {
    std::snprintf(last_error, sizeof last_error, "[%s] %s", where, what);
  }
  drop_cut_character();
}

}  // namespace rf::core

extern "C" const char* rf_version(void) { return RF_VERSION; }

extern "C" const char* rf_last_error(void) { return rf::core::last_error; }

extern "C" rf_memory rf_memory_held(void) { return {rf::core::scratch_bytes(), rf::core::table_bytes()}; }

extern "C" void rf_release_memory(void) {
  rf::core::guarded("memory", [] { rf::core::release_tables(); });
  rf::core::release_scratch();
}
