// Reads an input file as text pieces, lines, or rows, depending on its format. reader.cpp turns them into documents and
// records.cpp into records. Parquet has columns instead (parquet.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/data/reader.h"

namespace rf::data {

struct CsvRow {
  int64_t line;  // first line, from 1
  std::vector<std::string_view> columns;
  int64_t last_line = line;           // last line
  int64_t text_after_quote_line = 0;  // the line with text after a closing quotation mark; 0: none
};

class InputFile {
 public:
  // `bytes_read`, on disk, grows while the file is read. Text arrives in pieces of at most `piece_bytes`: with small
  // pieces, bytes_read closely follows the text that was passed on.
  InputFile(const std::string& path, Quotes quotes, int64_t& bytes_read, size_t piece_bytes);

  const std::string& name() const { return name_; }              // for messages: the path, or "standard input"
  void count_bytes(int64_t read) const { bytes_read_ += read; }  // of a file that is read by other means

  // Arguments of callbacks are valid only during the call. Lines and rows are numbered from 1, by the line on which
  // they begin. Throws Error for a line or a row of more than 512 MiB.

  // The text without a byte order mark.
  void read_pieces(const std::function<void(std::string_view)>& take) const;
  // The lines without "\n", including empty lines. Characters after the last "\n" form a line.
  void read_all_lines(const std::function<void(int64_t number, std::string_view line)>& take) const;
  // The lines that are not only white space.
  void read_lines(const std::function<void(int64_t number, std::string_view line)>& take) const;
  // Rows with as many columns as the first one. `first` receives the first row and decides whether it is a header or is
  // passed on. `refuse` receives the lines of other rows, and of rows with an unclosed quotation mark or text after a
  // closing one.
  enum class FirstRow { kNames, kValues };
  using Refuse = std::function<void(int64_t line, const std::string& problem)>;
  void read_rows(char delimiter, const std::function<FirstRow(const CsvRow&)>& first,
                 const std::function<void(const CsvRow&)>& take, const Refuse& refuse) const;

 private:
  void check_record_size(int64_t line, size_t bytes) const;

  const std::string& path_;
  const std::string name_;
  const Quotes quotes_;
  int64_t& bytes_read_;
  const size_t piece_bytes_;
};

}  // namespace rf::data
