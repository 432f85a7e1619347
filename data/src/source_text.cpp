#include "source_text.h"

#include "rf/io/error.h"

namespace rf::data {

namespace {

constexpr size_t kMaxRecordBytes = size_t{1} << 29;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void check_record_size(const std::string& name, int64_t line, size_t bytes) {
  if (bytes > kMaxRecordBytes) {
    fail("input", "{} line {} must have a record of at most {} bytes, got more", name, line, kMaxRecordBytes);
  }
}

std::string_view SourceText::next() {
  if (begun_) return source_.next();
  begun_ = true;
  for (std::string_view bytes = "x"; head_.size() < kByteOrderMark.size() && !bytes.empty(); head_ += bytes) {
    bytes = source_.next();
  }
  if (!head_.starts_with(kByteOrderMark)) return head_;
  const std::string_view text = std::string_view(head_).substr(kByteOrderMark.size());
  return text.empty() ? source_.next() : text;
}

void Lines::add(std::string_view text) {
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    if (rest_.empty()) {
      line_(number_, text.substr(0, end));
    } else {
      line_(number_, rest_ += text.substr(0, end));
      rest_.clear();
    }
    ++number_;
    text.remove_prefix(end + 1);
  }
  rest_ += text;
}

}  // namespace rf::data
