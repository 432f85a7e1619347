// The text of a source (byte_source.h) in pieces, and its lines: the first step for every format but Parquet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "byte_source.h"

namespace rf::data {

// Throws Error for a record of more than 512 MiB; `name` and `line` say where it begins.
void check_record_size(const std::string& name, int64_t line, size_t bytes);

class SourceText {
 public:
  explicit SourceText(const std::string& path) : source_(path) {}
  // The next piece, without a byte order mark, valid until the next call; empty at the end.
  std::string_view next();
  int64_t bytes_read() const { return source_.bytes_read(); }  // on disk

 private:
  ByteSource source_;
  std::string head_;
  bool begun_ = false;
};

// Lines of text that arrives in pieces of any size, without their "\n".
class Lines {
 public:
  // The text passed to `line` is valid during the call only; numbers are from 1.
  explicit Lines(std::function<void(int64_t number, std::string_view line)> line) : line_(std::move(line)) {}

  void add(std::string_view text);
  void finish() { line_(number_, rest_); }
  int64_t number() const { return number_; }          // of the current line
  size_t line_bytes() const { return rest_.size(); }  // of the current line, so far

 private:
  std::function<void(int64_t, std::string_view)> line_;
  int64_t number_ = 1;
  std::string rest_;  // the beginning of a line that spans several pieces
};

}  // namespace rf::data
