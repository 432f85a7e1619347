// An input file as what its format consists of: pieces of text, lines, or rows. reader.cpp makes documents of them and
// records.cpp records. Parquet has columns instead (parquet.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "csv_rows.h"
#include "rf/data/reader.h"

namespace rf::data {

class InputFile {
 public:
  // `bytes_read`, on disk, grows while the file is read. Text arrives in pieces of at most `piece_bytes`: with small
  // ones bytes_read matches what was passed on so far.
  InputFile(const std::string& path, Quotes quotes, int64_t& bytes_read, size_t piece_bytes);

  const std::string& name() const { return name_; }  // for messages: the path, or "standard input"

  // What a callback is given is valid during its call only. Lines and rows are numbered from 1, by the line where they
  // begin. Throws Error for a line or a row of more than 512 MiB.

  // The text without a byte order mark.
  void read_pieces(const std::function<void(std::string_view)>& take) const;
  // The lines without "\n", also empty ones. After the last "\n" there is a line if it has characters.
  void read_all_lines(const std::function<void(int64_t number, std::string_view line)>& take) const;
  // Those that are not only white space.
  void read_lines(const std::function<void(int64_t number, std::string_view line)>& take) const;
  // Rows with as many columns as the first one. `first` is given that one and says whether it names the columns or is
  // passed on too. `refuse` is given the lines of the other rows, and of those whose quotation marks are not closed or
  // have text behind them.
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
