// Texts, one for each line of a text file and each record of the other formats, in order and all of them: an empty line
// and a record with null are empty texts, so that result i belongs to text i. Inputs and formats are those of reader.h,
// also compressed.
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
  int64_t line;                // where it begins, from 1; in Parquet its row
  std::string_view problem{};  // with BadRecords::kSkip: why the record is bad, without its place; its text is empty
  // ReadOptions::ids: the record's id as JSON text in one line; empty: it has none. In a JSON line any value but null,
  // in a table a text, in Parquet a text, an integer or a floating-point number.
  std::string_view id{};
};

class TextReader {
 public:
  // The option document_rule has no meaning here. A bad record is an error, or with BadRecords::kSkip a text with a
  // problem, so that the texts after it keep their numbers. Throws Error as DocumentReader does.
  explicit TextReader(ReadOptions options);

  const std::vector<std::string>& files() const { return files_; }        // in the order they are read, each once
  const std::vector<std::string>& left_out() const { return left_out_; }  // as outputs
  int64_t total_bytes() const;                                            // of the regular files
  int64_t bytes_read() const { return bytes_read_; }                      // so far, on disk

  // Calls `take` for each text; what it is given is valid during the call only. Lines of white space alone between JSON
  // objects, and empty rows of a table, are not records. Throws Error, naming file and line, for bad records, damaged
  // archives, and files that fail to read.
  void read(const std::function<void(const SourceText&)>& take);

 private:
  void read_file(const std::string& path, const std::function<void(const SourceText&)>& take);

  ReadOptions options_;
  std::vector<std::string> files_, left_out_;
  int64_t bytes_read_ = 0;
};

}  // namespace rf::data
