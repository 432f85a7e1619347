// Records with named fields out of JSON lines, CSV and TSV files, and out of plain text where a field is named for its
// lines; plain or packed, with the place that each comes from: the input of tasks (docs/finetuning.md). Sources and
// formats are those of reader.h; Parquet is not read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/data/reader.h"

namespace rf::data {

struct Record {
  std::shared_ptr<const std::string> source;  // the file, or "standard input"
  int64_t line = 0;                           // on which it begins, from 1
  nlohmann::json fields;                      // an object; in a table every value is a string

  std::string place() const;                                  // "train.tsv line 3"
  const nlohmann::json* find(const std::string& name) const;  // nullptr where it is absent or null
  // Throws Error, naming place and the fields there are, where it is absent or null.
  const nlohmann::json& at(const std::string& name) const;
  // A string; of a number or a truth value its JSON text. Throws Error for another value.
  std::string text(const std::string& name) const;
  // A finite number, or a string that says one. Throws Error otherwise.
  double number(const std::string& name) const;
};

struct RecordOptions {
  std::vector<std::string> inputs{};  // as ReadOptions::inputs
  Format format = Format::kAuto;      // by the name; standard input: JSON lines
  Quotes quotes = Quotes::kRead;
  std::string text_field{};  // plain text: a line is a record with this field; "": plain text is not read
};

class RecordReader {
 public:
  explicit RecordReader(RecordOptions options);  // throws Error as DocumentReader does

  // Calls `record` for each in order; the callee may move from it. The first row of a table names the columns; lines of
  // white space alone are none. Throws Error, naming file and line, for what is no JSON object, a row with another
  // number of columns than the first, a name given twice, bytes that are not UTF-8, and all that DocumentReader throws
  // for.
  void read(const std::function<void(Record&)>& record);
  int64_t bytes_read() const { return bytes_read_; }  // so far, as they lie on the disk
  int64_t total_bytes() const;                        // of the regular files

 private:
  RecordOptions options_;
  std::vector<std::string> files_;
  int64_t bytes_read_ = 0;
};

}  // namespace rf::data
