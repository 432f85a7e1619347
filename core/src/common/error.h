// Errors inside core: plain exceptions, converted to a status and a text at the C interface. This file uses no other
// module, so the kernels build on their own.
#pragma once

#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

#include "rf/status.h"

namespace rf::core {

// A rule that the caller broke.
struct InvalidArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A valid but unsupported request.
struct NotImplemented : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The text of this thread, "[where] what" where `where` is not NULL. Allocates nothing, because memory may be
// exhausted. Text longer than the buffer is truncated.
void set_last_error(const char* where, const char* what) noexcept;

// Throws InvalidArgument "[where] rule, got value" (the parts are concatenated).
template <class... Parts>
[[noreturn]] void refuse(const char* where, const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  text.exceptions(std::ios::badbit);  // throws if memory for the text is exhausted
  text << '[' << where << "] ";
  (text << ... << parts);
  throw InvalidArgument(text.str());
}

template <class... Parts>
void require(bool rule_holds, const char* where, const Parts&... parts) {
  if (!rule_holds) refuse(where, parts...);
}

// Runs the body of a C function; no exception leaves it.
template <class Body>
rf_status guarded(const char* where, const Body& body) noexcept {
  try {
    body();
    return RF_OK;
  } catch (const InvalidArgument& error) {
    set_last_error(nullptr, error.what());
    return RF_INVALID_ARGUMENT;
  } catch (const NotImplemented& error) {
    set_last_error(nullptr, error.what());
    return RF_NOT_IMPLEMENTED;
  } catch (const std::bad_alloc&) {
    set_last_error(where, "out of memory");
    return RF_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    set_last_error(where, error.what());
    return RF_INTERNAL;
  } catch (...) {
    set_last_error(where, "unknown failure");
    return RF_INTERNAL;
  }
}

}  // namespace rf::core
