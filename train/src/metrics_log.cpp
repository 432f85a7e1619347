// metrics.jsonl (metrics_log.h).
#include "metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"

namespace rf::train {

namespace {

// Bytes of the leading complete lines whose step is at most last_step.
size_t kept_bytes(const std::string& text, int64_t last_step) {
  size_t kept = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', kept)) {
    const nlohmann::json line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(kept),
                                                      text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    const auto step = line.is_object() ? line.find("step") : line.end();
    if (step == line.end() || !step->is_number_integer() || step->get<int64_t>() > last_step) break;
    kept = end + 1;
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(std::string path, int64_t last_step) : path_(std::move(path)) {
  const size_t kept = std::filesystem::exists(path_) ? kept_bytes(io::read_file(path_), last_step) : 0;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("train", "{} must be writable, got: {}", path_, std::strerror(errno));
  if (::ftruncate(fd_, static_cast<off_t>(kept)) != 0) {
    const int error = errno;
    ::close(fd_);
    fail("train", "{} must be writable, got: {}", path_, std::strerror(error));
  }
}

MetricsLog::~MetricsLog() {
  ::close(fd_);
}

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
