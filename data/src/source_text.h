// The text of a source (byte_source.h) in pieces, and the lines in it: what every format but Parquet begins with.
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
  int64_t bytes_read() const { return source_.bytes_read(); }  // as they lie on the disk

 private:
  ByteSource source_;
  std::string head_;
  bool begun_ = false;
};

// Lines out of text that comes in any pieces, without their "\n".
class Lines {
 public:
  // What `line` is given is gone after the call; numbers are from 1.
  explicit Lines(std::function<void(int64_t number, std::string_view line)> line) : line_(std::move(line)) {}

  void add(std::string_view text);
  void finish() { line_(number_, rest_); }
  int64_t number() const { return number_; }          // of the line that has begun
  size_t line_bytes() const { return rest_.size(); }  // of it, so far

 private:
  std::function<void(int64_t, std::string_view)> line_;
  int64_t number_ = 1;
  std::string rest_;  // what has come of a line that several pieces share
};

}  // namespace rf::data
