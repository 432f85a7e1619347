// Warnings about files that are still read: an unknown key, values that contradict each other. The code that opens a
// model chooses their destination by a scope of the thread; without a scope they are dropped.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace rf::io {

using TakeWarning = std::function<void(const std::string&)>;

// While it exists, warnings of this thread go to `take`; with an empty `take` the enclosing scope still receives them.
class WarningScope {
 public:
  explicit WarningScope(TakeWarning take);
  ~WarningScope();
  WarningScope(const WarningScope&) = delete;
  WarningScope& operator=(const WarningScope&) = delete;

 private:
  TakeWarning take_;
  const TakeWarning* before_;
};

// A line in the form of errors: "[where] rule, got value".
void warn_text(const std::string& text);
template <typename... Args>
void warn(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  warn_text(fmt::format("[{}] {}", where, fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace rf::io
