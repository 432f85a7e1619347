// The message of the Error that a call throws.
#pragma once

#include <functional>
#include <string>

#include "rf/io/error.h"

namespace rf::nn {

inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace rf::nn
