// Translation of exceptions (errors.h).
#include "errors.h"

#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include "rf/io/shown_text.h"

namespace rf::python {

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

}  // namespace

void give_warning(const std::string& text) {
  const nanobind::gil_scoped_acquire acquire;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw nanobind::python_error();
}

void register_errors() { nanobind::register_exception_translator(translate); }

}  // namespace rf::python
