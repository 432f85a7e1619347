// Texts: each line of a text file and each record of the other formats, in order. An empty line and a record with null
// are empty texts, so that result i belongs to text i. Inputs and formats are as in reader.h; files may be compressed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/data/reader.h"

namespace rf::data {

struct SourceText {
  std::string_view text;       // as in the file; it may hold bytes that are not UTF-8
  const std::string& source;   // the file, or "standard input"
  int64_t line;                // first line, from 1; in Parquet, its row
  std::string_view problem{};  // with BadRecords::kSkip: why the record is bad, without its place; its text is then
                               // empty
  // ReadOptions::ids: the record's id as JSON text in one line, or empty without an id. Ids are any value except null
  // in JSON lines, texts in tables, and texts, integers or floating-point numbers in Parquet.
  std::string_view id{};
};

class TextReader {
 public:
  // The option document_rule is ignored. A bad record is an error, or with BadRecords::kSkip a text with a problem, so
  // that later texts keep their numbers. Throws Error as DocumentReader does.
  explicit TextReader(ReadOptions options);

  const std::vector<std::string>& files() const { return files_; }        // in reading order, each once
  const std::vector<std::string>& left_out() const { return left_out_; }  // because they are outputs
  int64_t total_bytes() const;                                            // total size of the regular files
  int64_t bytes_read() const { return bytes_read_; }                      // so far, on disk

  // Calls `take` for each text; its argument is valid only during the call. Lines of white space between JSON objects
  // and empty rows of a table are not records. Throws Error, naming file and line, for bad records, damaged archives,
  // and files that fail to read.
  void read(const std::function<void(const SourceText&)>& take);

 private:
  void read_file(const std::string& path, const std::function<void(const SourceText&)>& take);

  ReadOptions options_;
  std::vector<std::string> files_, left_out_;
  int64_t bytes_read_ = 0;
};

}  // namespace rf::data
