// The one exception of the product: something the user gave is wrong. Every message reads "[where] rule, got value".
// The command line turns it into exit code 1; anything else that is thrown is an internal error, exit code 3. Python
// raises RuntimeError for it, and another class for the two kinds below.
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

// A value that the caller chose breaks a rule, not the content of a file. In Python: ValueError.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

// A file that is needed does not exist. In Python: FileNotFoundError.
class MissingFileError : public Error {
 public:
  using Error::Error;
};

// Throws Error, or the kind that is given, with (where, formatted message).
template <typename Kind = Error, typename... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  throw Kind(where, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rf
