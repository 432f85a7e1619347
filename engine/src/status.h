// Errors of core's C interface as exceptions.
#pragma once

#include <new>
#include <stdexcept>
#include <string_view>

#include "rf/io/error.h"
#include "rf/status.h"

namespace rf::engine {

// Throws Error for a refused argument, whose message reads "[where] rule, got value".
inline void check_status(rf_status status) {
  if (status == RF_OK) return;
  if (status == RF_OUT_OF_MEMORY) throw std::bad_alloc();
  const std::string_view text = rf_last_error();
  const size_t end = text.find("] ");
  if (status == RF_INTERNAL || !text.starts_with('[') || end == std::string_view::npos)
    throw std::runtime_error(std::string(text));
  throw Error(text.substr(1, end - 1), text.substr(end + 2));
}

}  // namespace rf::engine
