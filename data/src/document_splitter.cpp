#include "document_splitter.h"

#include <algorithm>

namespace rf::data {

void DocumentSplitter::add(std::string_view text) {
  if (text.empty()) return;
  if (return_waits_ && text.front() != '\n') add_lines("\r");
  return_waits_ = text.back() == '\r';
  if (return_waits_) text.remove_suffix(1);
  add_lines(text);
}

// `text` does not end in a "\r" that may belong to a "\r\n" with the following text.
void DocumentSplitter::add_lines(std::string_view text) {
  if (rule_ == DocumentRule::kFile) {
    for (size_t end = text.find("\r\n"); end != std::string_view::npos; end = text.find("\r\n")) {
      cutter_.add(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    cutter_.add(text);
    return;
  }
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    add_line(line);
    text.remove_prefix(end + 1);
  }
  if (rule_ == DocumentRule::kLine) {
    cutter_.add(text);
  } else {
    add_to_blank_line_document(text);
  }
}

// The rest of a line, without its end.
void DocumentSplitter::add_line(std::string_view line) {
  if (rule_ == DocumentRule::kLine) {
    cutter_.add_document(line);
    return;
  }
  add_to_blank_line_document(line);
  if (line_is_blank_) {
    waiting_.clear();
    cutter_.end_document();
  } else {
    waiting_ = '\n';
  }
  line_is_blank_ = true;
}

void DocumentSplitter::add_to_blank_line_document(std::string_view text) {
  if (line_is_blank_) {
    const size_t blanks = leading_blanks(text);
    waiting_ += text.substr(0, std::min(blanks, kLongDocumentBytes - waiting_.size()));
    text.remove_prefix(blanks);
    if (text.empty()) return;
    line_is_blank_ = false;
    cutter_.add(waiting_);
    waiting_.clear();
  }
  cutter_.add(text);
}

void DocumentSplitter::finish() {
  return_waits_ = false;
  waiting_.clear();
  line_is_blank_ = true;
  cutter_.end_document();
}

}  // namespace rf::data
