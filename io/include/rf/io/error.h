// The product's exception for wrong input of the user. Every message reads "[where] rule, got value". The command line
// turns it into exit code 1; any other exception is an internal error, exit code 3. Python raises RuntimeError for it,
// and other classes for the two kinds below.
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

// A value chosen by the caller, not the content of a file, breaks a rule. In Python: ValueError.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

// A required file does not exist. In Python: FileNotFoundError.
class MissingFileError : public Error {
 public:
  using Error::Error;
};

// Throws Error, or the given kind, with (where, formatted message).
template <typename Kind = Error, typename... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  throw Kind(where, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rf
