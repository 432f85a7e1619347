// Views of Python strings (texts.h).
#include "texts.h"

#include <fmt/format.h>

namespace rf::python {

namespace nb = nanobind;

namespace {

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

Texts::Texts(const nb::list& texts, const char* where) : owner_(nb::tuple(texts)) {
  views_.reserve(owner_.size());
  for (const nb::handle text : owner_) views_.push_back(view_of(text, views_.size(), where));
}

}  // namespace rf::python
