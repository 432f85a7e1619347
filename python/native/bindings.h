// The module `_engine`: its parts, one file each, and what they share. Only the package calls them
// (python/roformer_cpp/engine.py, tokenizer.py and others); it adds documentation, defaults and type checks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/shown_text.h"

namespace rf::python {

void bind_cross_encoder(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_model_files(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);
void bind_translator(nanobind::module_& module);

// Errors of C++ as exceptions of Python, with the message of C++, "[where] rule, got value": ArgumentError becomes
// ValueError, MissingFileError FileNotFoundError, another Error RuntimeError, and an error of the file system OSError.
void register_errors();

// Passes a warning (rf/io/warning.h) to Python's `warnings`, which may turn it into an exception.
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

// A list of Python strings as views of UTF-8, without copies of the texts.
class Texts {
 public:
  // Throws TypeError for an item that is not a string and ValueError for one without a UTF-8 form. `where`: for
  // messages.
  Texts(const nanobind::list& texts, const char* where);

  std::span<const std::string_view> views() const { return views_; }
  size_t size() const { return views_.size(); }
  std::vector<std::string> copies() const { return {views_.begin(), views_.end()}; }

 private:
  nanobind::tuple owner_;  // a list could be changed while the views are used
  std::vector<std::string_view> views_;
};

// Numbers as a NumPy array, which takes over the memory.
template <typename Value>
nanobind::object array_of(std::vector<Value> values, std::initializer_list<size_t> shape) {
  auto owned = std::make_unique<std::vector<Value>>(std::move(values));
  Value* const data = owned->data();
  const nanobind::capsule owner(owned.get(),
                                [](void* memory) noexcept { delete static_cast<std::vector<Value>*>(memory); });
  static_cast<void>(owned.release());
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, Value>(data, shape, owner));
}

template <typename Value>
nanobind::object array_of(std::vector<Value> values) {
  const size_t size = values.size();
  return array_of(std::move(values), {size});
}

std::string text_of(const nlohmann::json& value);

// The value of a name in a table of pairs (rf/engine/names.h). Python has checked the name.
template <typename Names>
auto named(const Names& names, const std::string& name) {
  return std::ranges::find(names, name, [](const auto& entry) { return entry.first; })->second;
}

// While it exists, OpenMP uses `threads` threads for work that this thread begins; 0: as many as before.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads);
  ~ThreadsScope();
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace rf::python
