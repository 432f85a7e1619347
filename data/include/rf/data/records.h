// Records with named fields, and the file and line of each: the input of tasks (docs/finetuning.md). They come from
// JSON lines, CSV and TSV files, and from lines of plain text if text_field names their field. Inputs and formats are
// as in reader.h, also compressed; Parquet is not read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/data/reader.h"

namespace rf::data {

// A string, or the JSON text of a number or a truth value; nullopt for another value.
std::optional<std::string> text_of(const nlohmann::json& value);

struct Record {
  std::shared_ptr<const std::string> source;  // the file, or "standard input"
  int64_t line = 0;                           // where it begins, from 1
  nlohmann::json fields;                      // an object; in a table every value is a string

  std::string place() const;                                  // "train.tsv line 3"
  const nlohmann::json* find(const std::string& name) const;  // nullptr where it is absent or null
  // Throws Error, naming the place and the record's fields, if it is absent or null.
  const nlohmann::json& at(const std::string& name) const;
  // As text_of(). Throws Error for another value.
  std::string text(const std::string& name) const;
  // A finite number, also from a string. Throws Error otherwise.
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

  // Calls `record` for each in order; the callee may move from it. The first row of a table names the columns. Empty
  // rows of a table and lines of white space between JSON objects are not records; a line of plain text always is one.
  // Throws Error, naming file and line, for a line that is not a JSON object, a row with another number of columns than
  // the first, a column named twice, bytes that are not UTF-8, and as DocumentReader does.
  void read(const std::function<void(Record&)>& record);
  int64_t bytes_read() const { return bytes_read_; }  // so far, on disk
  int64_t total_bytes() const;                        // of the regular files

 private:
  RecordOptions options_;
  std::vector<std::string> files_;
  int64_t bytes_read_ = 0;
};

}  // namespace rf::data
