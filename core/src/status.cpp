// The error text of the C interface: one string a thread.
#include "rf/status.h"

#include "error.h"
#include "rope_cache.h"
#include "scratch.h"

namespace rf::core {
namespace {

thread_local std::string last_error;

}  // namespace

void set_last_error(const std::string& text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
}

}  // namespace rf::core

extern "C" const char* rf_version(void) {
  return RF_VERSION;
}

extern "C" const char* rf_last_error(void) {
  return rf::core::last_error.c_str();
}

extern "C" rf_memory rf_memory_held(void) {
  return {rf::core::scratch_bytes(), rf::core::table_bytes()};
}

extern "C" void rf_release_memory(void) {
  rf::core::guarded("memory", [] { rf::core::release_tables(); });
  rf::core::release_scratch();
}
