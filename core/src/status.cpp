// The error text of the C interface, one per thread; the version; memory that is kept.
#include "rf/status.h"

#include <cstdio>

#include "error.h"
#include "rope_cache.h"
#include "scratch.h"

namespace rf::core {
namespace {

thread_local char last_error[1024];

}  // namespace

void set_last_error(const char* where, const char* what) noexcept {
  if (where == nullptr) {
    std::snprintf(last_error, sizeof last_error, "%s", what);
  } else {
    std::snprintf(last_error, sizeof last_error, "[%s] %s", where, what);
  }
}

}  // namespace rf::core

extern "C" const char* rf_version(void) {
  return RF_VERSION;
}

extern "C" const char* rf_last_error(void) {
  return rf::core::last_error;
}

extern "C" rf_memory rf_memory_held(void) {
  return {rf::core::scratch_bytes(), rf::core::table_bytes()};
}

extern "C" void rf_release_memory(void) {
  rf::core::guarded("memory", [] { rf::core::release_tables(); });
  rf::core::release_scratch();
}
