// A list of Python strings as views of UTF-8, without copies of the texts.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rf::python {

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

}  // namespace rf::python
