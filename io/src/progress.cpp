// The progress line on stderr: carriage return, erase to the end of the line, text.
#include "rf/io/progress.h"

#include <chrono>
#include <cstdio>

namespace rf::io {
namespace {

constexpr int64_t kIntervalNs = 100'000'000;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void rewrite(const std::string& line) {
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
}

}  // namespace

void Progress::update(const std::string& line) {
  if (!enabled_) return;
  const int64_t now = now_ns();
  if (open_ && now - last_ns_ < kIntervalNs) {
    pending_ = line;
    return;
  }
  pending_.clear();
  rewrite(line);
  open_ = true;
  last_ns_ = now;
}

void Progress::finish() {
  if (!open_) return;
  if (!pending_.empty()) rewrite(pending_);
  pending_.clear();
  std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace rf::io
