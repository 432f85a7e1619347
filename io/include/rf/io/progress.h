// A progress line on a terminal, nothing when the output is not one.
#pragma once

#include <cstdint>
#include <string>

namespace rf::io {

class Progress {
 public:
  // `enabled`: the caller's choice, usually isatty(stderr).
  explicit Progress(bool enabled) : enabled_(enabled) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(const std::string& line);  // rewrites the line, at most about ten times a second
  void finish();                         // shows the last line given and ends it, once

 private:
  bool enabled_;
  bool open_ = false;
  int64_t last_ns_ = 0;
  std::string pending_;  // the last line, when it came too early to be shown
};

}  // namespace rf::io
