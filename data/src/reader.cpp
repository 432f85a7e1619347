#include "rf/data/reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "rf/io/error.h"

namespace rf::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhitespace{" \t\r\n\f\v"};
constexpr size_t kPieceBytes = size_t{1} << 20;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kWhitespace) == std::string_view::npos;
}

std::string reason(int error) {
  return std::strerror(error);
}

// Collects lines into documents. "\r\n" becomes "\n"; a byte order mark at the start of the file is dropped.
class DocumentSplitter {
 public:
  DocumentSplitter(DocumentRule rule, const std::function<void(std::string_view)>& document, size_t max_bytes)
      : rule_(rule), document_(document), max_bytes_(max_bytes) {}

  void add(std::string_view piece) {
    while (!piece.empty()) {
      const size_t newline = piece.find('\n');
      text_ += piece.substr(0, newline);
      if (newline == std::string_view::npos) break;
      end_line();
      piece.remove_prefix(newline + 1);
    }
    cut_long();
  }

  void finish() {
    if (text_.size() > line_begin_) end_line();
    cut_long();
    emit(text_);
  }

 private:
  void end_line() {
    if (text_.size() > line_begin_ && text_.back() == '\r') text_.pop_back();
    if (first_line_ && text_.starts_with("\xEF\xBB\xBF")) text_.erase(0, 3);
    first_line_ = false;
    const bool blank = is_blank(std::string_view(text_).substr(line_begin_));
    if (rule_ == DocumentRule::kLine || (rule_ == DocumentRule::kBlankLine && blank)) {
      if (blank) text_.resize(line_begin_);
      cut_long();
      emit(text_);
      text_.clear();
    } else {
      text_ += '\n';
    }
    line_begin_ = text_.size();
  }

  // Emits pieces of at most max_bytes_ until the rest is no longer than that.
  void cut_long() {
    std::string_view rest = text_;
    while (rest.size() > max_bytes_) {
      const size_t length = cut_at(rest);
      emit(rest.substr(0, length));
      rest.remove_prefix(length);
    }
    const size_t gone = text_.size() - rest.size();
    text_.erase(0, gone);
    line_begin_ -= std::min(line_begin_, gone);
  }

  // After the last line end, or else space, or else whole character, within max_bytes_.
  size_t cut_at(std::string_view text) const {
    const std::string_view head = text.substr(0, max_bytes_);
    for (const char separator : {'\n', ' '}) {
      const size_t at = head.rfind(separator);
      if (at != std::string_view::npos) return at + 1;
    }
    size_t length = max_bytes_;
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
    return length > 0 ? length : max_bytes_;
  }

  void emit(std::string_view text) const {
    if (!is_blank(text)) document_(text);
  }

  DocumentRule rule_;
  const std::function<void(std::string_view)>& document_;
  size_t max_bytes_;
  std::string text_;
  size_t line_begin_ = 0;
  bool first_line_ = true;
};

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

void add_directory(const std::string& path, std::vector<std::string>& files) {
  const size_t before = files.size();
  try {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.path().extension() == ".txt" && !entry.is_directory()) files.push_back(entry.path().string());
    }
  } catch (const fs::filesystem_error& error) {
    fail("input", "{} must be readable, got: {}", error.path1().string(), error.code().message());
  }
  if (files.size() == before) fail("input", "a directory must hold at least one .txt file, got {}", path);
}

}  // namespace

DocumentRule document_rule(const std::string& name) {
  if (name == "file") return DocumentRule::kFile;
  if (name == "blank-line") return DocumentRule::kBlankLine;
  if (name == "line") return DocumentRule::kLine;
  fail("input", "the document rule must be file, blank-line or line, got {}", name);
}

const char* document_rule_name(DocumentRule rule) {
  switch (rule) {
    case DocumentRule::kFile:
      return "file";
    case DocumentRule::kBlankLine:
      return "blank-line";
    case DocumentRule::kLine:
      return "line";
  }
  return "";
}

std::vector<std::string> list_text_files(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) fail("input", "{} must exist, got: {}", path, error ? error.message() : reason(ENOENT));
    if (fs::is_directory(status)) {
      add_directory(path, found);
    } else {
      found.push_back(path);
    }
  }
  for (const std::string& path : found) {
    std::error_code error;
    const bool regular = fs::is_regular_file(path, error);
    if (!error && !regular) fail("input", "an input must be a file or a directory, got {}", path);
    if (::access(path.c_str(), R_OK) != 0) fail("input", "{} must be readable, got: {}", path, reason(errno));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> files;
  std::set<fs::path> seen;
  for (std::string& path : found) {
    if (seen.insert(fs::canonical(path)).second) files.push_back(std::move(path));
  }
  if (files.empty()) fail("input", "at least one file or directory must be given, got none");
  return files;
}

void read_documents(const std::string& path, DocumentRule rule, const std::function<void(std::string_view)>& document,
                    int64_t max_document_bytes) {
  if (max_document_bytes < 1) fail("input", "max_document_bytes must be at least 1, got {}", max_document_bytes);
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fail("input", "{} must be readable, got: {}", path, reason(errno));
  DocumentSplitter splitter(rule, document, static_cast<size_t>(max_document_bytes));
  std::string piece(kPieceBytes, '\0');
  while (true) {
    const ssize_t count = ::read(file.fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("input", "{} must be readable, got: {}", path, reason(errno));
    if (count == 0) break;
    splitter.add(std::string_view(piece).substr(0, static_cast<size_t>(count)));
  }
  splitter.finish();
}

}  // namespace rf::data
