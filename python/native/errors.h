// Errors of C++ as exceptions of Python. The message is that of C++: "[where] rule, got value".
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/shown_text.h"

namespace rf::python {

// ArgumentError becomes ValueError, MissingFileError FileNotFoundError, another Error RuntimeError, and an error of the
// file system OSError.
void register_errors();

// Takes a warning (rf/io/warning.h) and gives it to Python's `warnings`, which may make an exception of it.
void give_warning(const std::string& text);

// Calls `action` on an open model or tokenizer. An Error then concerns an argument, so it becomes ValueError.
template <typename Action>
auto on_open_model(Action&& action) {
  try {
    return std::forward<Action>(action)();
  } catch (const MissingFileError&) {
    throw;
  } catch (const Error& error) {
    throw nanobind::value_error(io::message_text(error.what()).c_str());
  }
}

}  // namespace rf::python
