// Parses rows of CSV (RFC 4180) and TSV from text that arrives in pieces of any size. As in Python's csv module, a
// quoted field ends at the next single quotation mark, a doubled mark stands for one, and an empty line is not a row.
// There are two differences. A single "\r" is text, because writers of "\n" files leave it unquoted. Text between the
// closing mark and the end of the field is an error, as is a file that ends inside quotes.
#pragma once

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

class CsvRows {
 public:
  // The argument of `row` is valid only during the call.
  CsvRows(char delimiter, Quotes quotes, std::function<void(const CsvRow&)> row);

  void add(std::string_view text);
  // Ends the file. Returns false inside quotes: then the last row, which begins on line(), is not passed on.
  bool finish();
  int64_t line() const { return view_.line; }
  int64_t last_line() const;                                                      // of the text so far
  size_t row_bytes() const { return text_.size() + ends_.size() * kFieldBytes; }  // in memory so far

 private:
  enum class State { kRowBegin, kFieldBegin, kPlain, kQuoted, kQuoteInQuoted };

  // Memory of a field in addition to its text: its end and its view, in vectors with up to twice the capacity.
  static constexpr size_t kFieldBytes = 2 * (sizeof(size_t) + sizeof(std::string_view));

  size_t plain_run(std::string_view text) const;
  void add_char(char c);
  void end_field();
  void end_line(int64_t number);

  char delimiter_;
  Quotes quotes_;
  std::function<void(const CsvRow&)> row_;
  State state_ = State::kRowBegin;
  bool return_waits_ = false;  // a "\r" outside quotes that may belong to "\r\n"
  int64_t lines_ = 0;          // number of ended lines
  std::string text_;           // of the fields, without quotes
  std::vector<size_t> ends_;   // end of each field in text_
  CsvRow view_{.line = 1, .columns = {}};
};

}  // namespace rf::data
