// metrics.jsonl (metrics_log.h).
#include "metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "run_file.h"

namespace rf::train {

namespace {

// A line of the file, with its line end, and its value; null if it is damaged.
struct Line {
  std::string_view text;
  nlohmann::json value;
};

// The complete lines.
std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    nlohmann::json value = nlohmann::json::parse(text.substr(0, end), nullptr, false);
    const auto step = value.is_object() ? value.find("step") : value.end();
    if (step == value.end() || !step->is_number_integer()) value = nullptr;
    lines.push_back({text.substr(0, end + 1), std::move(value)});
  }
  return lines;
}

// Writes `text` to the first of <path>.damaged-1, -2, .. that does not exist, and returns its name.
std::string keep_damaged(const std::string& path, const std::string& text) {
  for (int number = 1;; ++number) {
    const std::string name = fmt::format("{}.damaged-{}", path, number);
    if (std::filesystem::exists(name)) continue;
    io::write_file(name, text);
    return name;
  }
}

}  // namespace

TrainingCurve training_curve(const std::string& run_dir) {
  const std::string path = run_dir + "/metrics.jsonl";
  const std::string text = io::read_file(path);
  TrainingCurve curve;
  for (const Line& line : lines_of(text)) {
    if (line.value.is_null()) continue;
    io::StrictObject entry(line.value, path, "");
    if (entry.text("type", "") != "train") continue;
    const int64_t step = entry.integer("step", 0, 0, INT64_MAX);
    if (step <= (curve.steps.empty() ? 0 : curve.steps.back())) continue;
    entry.require({"loss", "seconds"});
    curve.steps.push_back(step);
    curve.losses.push_back(entry.number("loss", 0, kAnyNumber));
    curve.seconds.push_back(entry.number("seconds", 0, kNotNegative));
    curve.tokens += entry.integer("tokens", 0, 0, INT64_MAX);
  }
  return curve;
}

MetricsLog::MetricsLog(std::string path, int64_t last_step, const std::function<void(const std::string&)>& note)
    : path_(std::move(path)) {
  if (io::has_file(path_)) {
    const std::string text = io::read_file(path_);
    std::string kept;
    int64_t damaged = 0;
    for (const Line& line : lines_of(text)) {
      damaged += line.value.is_null() ? 1 : 0;
      if (!line.value.is_null() && line.value["step"] <= last_step) kept += line.text;
    }
    if (damaged > 0) {
      const std::string beside = keep_damaged(path_, text);
      if (note) {
        note(fmt::format("warning: {} has {} damaged lines, which are removed; the original file is kept as {}", path_,
                         damaged, beside));
      }
    }
    if (kept != text) io::write_file(path_, kept);
  }
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("train", "{} must be writable, got: {}", path_, std::strerror(errno));
}

MetricsLog::~MetricsLog() { ::close(fd_); }

void MetricsLog::append(const nlohmann::json& line) {
  const std::string text = line.dump() + "\n";
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(fd_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("train", "{} must be writable, got: {}", path_, std::strerror(errno));
    written += static_cast<size_t>(count);
  }
}

void MetricsLog::sync() {
  if (::fsync(fd_) != 0) fail("train", "{} must reach the disk, got: {}", path_, std::strerror(errno));
}

}  // namespace rf::train
