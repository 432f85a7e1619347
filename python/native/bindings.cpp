// Helpers that the parts of the module share (bindings.h).
#include "bindings.h"

#include <fmt/format.h>
#include <omp.h>

#include <exception>
#include <filesystem>

namespace rf::python {

namespace nb = nanobind;

namespace {

// A path in a message may be no UTF-8.
void raise(PyObject* kind, std::string_view what) {
  const std::string message = io::message_text(what);
  PyObject* const text = PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace");
  if (text == nullptr) return;  // that is raised then
  PyErr_SetObject(kind, text);
  Py_DECREF(text);
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const MissingFileError& error) {
    raise(PyExc_FileNotFoundError, error.what());
  } catch (const ArgumentError& error) {
    raise(PyExc_ValueError, error.what());
  } catch (const Error& error) {
    raise(PyExc_RuntimeError, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    raise(PyExc_OSError, error.what());
  }
}

std::string_view view_of(nb::handle text, size_t index, const char* where) {
  if (!PyUnicode_Check(text.ptr())) {
    const nb::str given(text.type().attr("__name__"));
    throw nb::type_error(
        fmt::format("[{}] a text must be a string, got {} at {}", where, given.c_str(), index).c_str());
  }
  Py_ssize_t size = 0;
  // The string keeps the bytes.
  const char* const utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (utf8 == nullptr) {
    PyErr_Clear();
    throw nb::value_error(fmt::format("[{}] a text must have no lone surrogates, got one at {}", where, index).c_str());
  }
  return {utf8, static_cast<size_t>(size)};
}

}  // namespace

void register_errors() { nb::register_exception_translator(translate); }

void give_warning(const std::string& text) {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw nb::python_error();
}

Texts::Texts(const nb::list& texts, const char* where) : owner_(nb::tuple(texts)) {
  views_.reserve(owner_.size());
  for (const nb::handle text : owner_) views_.push_back(view_of(text, views_.size(), where));
}

std::string text_of(const nlohmann::json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

ThreadsScope::ThreadsScope(int threads) {
  if (threads == 0) return;
  before_ = omp_get_max_threads();
  omp_set_num_threads(threads);
}

ThreadsScope::~ThreadsScope() {
  if (before_ > 0) omp_set_num_threads(before_);
}

}  // namespace rf::python
