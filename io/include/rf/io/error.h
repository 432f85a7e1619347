// The one exception of the product: something the user gave is wrong. Every message reads "[where] rule, got value".
// The command line turns it into exit code 1; anything else that is thrown is an internal error, exit code 3.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace rf {

class Error : public std::runtime_error {
 public:
  Error(std::string_view where, std::string_view what)
      : std::runtime_error(std::string("[").append(where).append("] ").append(what)) {}
};

// Throws Error(where, formatted message).
template <typename... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(where, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rf
