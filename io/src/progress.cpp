// Messages and progress on stderr. A terminal's line: carriage return, erase to the end of the line, text.
#include "rf/io/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "rf/io/shown_text.h"

namespace rf::io {
namespace {

constexpr int64_t kTerminalIntervalNs = 100'000'000;
constexpr int64_t kLogIntervalNs = 30'000'000'000;
constexpr const char* kErase = "\r\x1b[K";

// Errors of writing are ignored: work continues without its diagnostics.
void write(const std::string& text) {
  [[maybe_unused]] const size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Progress::Progress(Show show, Clock clock) : show_(show), clock_(std::move(clock)), last_ns_(clock_()) {}

std::string Progress::with_parts(const std::string& line) const {
  std::string whole;
  for (const std::string& part : parts_) whole += part + ": ";
  return terminal_text(whole + line);
}

void Progress::update(const std::string& line) {
  if (show_ == Show::kNothing) return;
  const int64_t now = clock_();
  if (show_ == Show::kLog) {
    if (now - last_ns_ < kLogIntervalNs) return;
    write(with_parts(line) + "\n");
    last_ns_ = now;
    return;
  }
  line_ = with_parts(line);
  stale_ = open_ && now - last_ns_ < kTerminalIntervalNs;
  if (stale_) return;
  write(kErase + line_);
  open_ = true;
  last_ns_ = now;
}

void Progress::message(const std::string& text) {
  if (show_ == Show::kNothing) return;
  write((open_ ? kErase : "") + with_parts(message_text(text)) + "\n" + (open_ ? line_ : ""));
  if (show_ == Show::kLog) last_ns_ = clock_();
  stale_ = false;
}

void Progress::clear() {
  if (!open_) return;
  write(kErase);
  open_ = stale_ = false;
}

void Progress::finish() {
  if (!open_) return;
  write((stale_ ? kErase + line_ : "") + "\n");
  open_ = stale_ = false;
}

std::string duration_text(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{}h{:02d}m", s / 3600, s / 60 % 60);
  return fmt::format("{}m{:02d}s", s / 60, s % 60);
}

TimeEstimate::TimeEstimate(double size, double done, Clock clock)
    : size_(size), first_(done), clock_(std::move(clock)), start_ns_(clock_()) {}

double TimeEstimate::seconds() const { return static_cast<double>(clock_() - start_ns_) * 1e-9; }

std::string TimeEstimate::left(double done) const {
  if (done <= first_ || done > size_) return "";
  return fmt::format(", {} left", duration_text((size_ - done) * seconds() / (done - first_)));
}

std::function<void(int64_t)> counted(Progress& progress, const std::string& what, int64_t size) {
  return [&progress, what, size, estimate = TimeEstimate(static_cast<double>(size))](int64_t done) {
    progress.update(
        fmt::format("{}: {} of {}{}", what, done, std::max(size, done), estimate.left(static_cast<double>(done))));
  };
}

}  // namespace rf::io
