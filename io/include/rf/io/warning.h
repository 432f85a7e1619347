// Warnings about files that are read all the same: a key that nobody knows, values that contradict each other. Whoever
// opens a model says where they go; the scope belongs to the thread, and without one they are dropped.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace rf::io {

using TakeWarning = std::function<void(const std::string&)>;

// While it lives, warnings of this thread go to `take`; an empty one leaves those of the scope around it.
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

// A line of the form of errors: "[where] rule, got value".
void warn_text(const std::string& text);
template <typename... Args>
void warn(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  warn_text(fmt::format("[{}] {}", where, fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace rf::io
