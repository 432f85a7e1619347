// The error text of the C interface: one string a thread.
#include "rf/status.h"

#include "error.h"

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
