#include "input_file.h"

#include <algorithm>
#include <utility>

#include "byte_source.h"
#include "document_splitter.h"
#include "rf/io/error.h"

namespace rf::data {
namespace {

// The text of a source in pieces, without a byte order mark.
class MarklessText {
 public:
  explicit MarklessText(const std::string& path) : source_(path) {}

  // The next piece, valid until the next call; empty at the end.
  std::string_view next() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (begun_) return source_.next();
    begun_ = true;
    for (std::string_view bytes = "x"; head_.size() < kByteOrderMark.size() && !bytes.empty(); head_ += bytes) {
      bytes = source_.next();
    }
    if (!head_.starts_with(kByteOrderMark)) return head_;
    const std::string_view text = std::string_view(head_).substr(kByteOrderMark.size());
    return text.empty() ? source_.next() : text;
  }
  int64_t bytes_read() const { return source_.bytes_read(); }  // on disk

 private:
  ByteSource source_;
  std::string head_;
  bool begun_ = false;
};

// Lines of text that arrives in pieces of any size, without their "\n".
class Lines {
 public:
  explicit Lines(std::function<void(int64_t, std::string_view)> line) : line_(std::move(line)) {}

  void add(std::string_view text) {
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      if (rest_.empty()) {
        line_(number_, text.substr(0, end));
      } else {
        line_(number_, rest_ += text.substr(0, end));
        rest_.clear();
      }
      ++number_;
      text.remove_prefix(end + 1);
    }
    rest_ += text;
  }
  void finish() {
    if (!rest_.empty()) line_(number_, rest_);
  }
  int64_t number() const { return number_; }          // of the current line
  size_t line_bytes() const { return rest_.size(); }  // of the current line, so far

 private:
  std::function<void(int64_t, std::string_view)> line_;
  int64_t number_ = 1;
  std::string rest_;  // the beginning of a line that spans several pieces
};

// Parses rows of CSV (RFC 4180) and TSV from text that arrives in pieces of any size. As in Python's csv module, a
// quoted field ends at the next single quotation mark, a doubled mark stands for one, and an empty line is not a row.
// There are two differences. A single "\r" is text, because writers of "\n" files leave it unquoted. Text between the
// closing mark and the end of the field is an error, as is a file that ends inside quotes.
class CsvRows {
 public:
  // The argument of `row` is valid only during the call.
  CsvRows(char delimiter, Quotes quotes, std::function<void(const CsvRow&)> row)
      : delimiter_(delimiter), quotes_(quotes), row_(std::move(row)) {}

  void add(std::string_view text) {
    while (!text.empty()) {
      const size_t run = plain_run(text);
      text_ += text.substr(0, run);
      text.remove_prefix(run);
      if (text.empty()) return;
      const char c = text.front();
      text.remove_prefix(1);
      if (std::exchange(return_waits_, false) && c != '\n') add_char('\r');
      if (c == '\n') ++lines_;
      if (c == '\n' && state_ != State::kQuoted) {
        end_line(lines_);
      } else if (c == '\r' && state_ != State::kQuoted) {
        return_waits_ = true;
      } else {
        add_char(c);
      }
    }
  }
  // Ends the file. Returns false inside quotes: then the last row, which begins on line(), is not passed on.
  bool finish() {
    if (state_ == State::kQuoted) return false;
    end_line(lines_ + 1);
    return true;
  }
  int64_t line() const { return view_.line; }
  // of the text so far
  int64_t last_line() const { return text_.ends_with('\n') ? lines_ : lines_ + 1; }
  size_t row_bytes() const { return text_.size() + ends_.size() * kFieldBytes; }  // in memory so far

 private:
  enum class State { kRowBegin, kFieldBegin, kPlain, kQuoted, kQuoteInQuoted };

  // Memory of a field in addition to its text: its end and its view, in vectors with up to twice the capacity.
  static constexpr size_t kFieldBytes = 2 * (sizeof(size_t) + sizeof(std::string_view));

  // The number of ordinary characters at the beginning.
  size_t plain_run(std::string_view text) const {
    size_t run = 0;
    if (state_ == State::kPlain && !return_waits_) {
      while (run < text.size() && text[run] != delimiter_ && text[run] != '\n' && text[run] != '\r') ++run;
    } else if (state_ == State::kQuoted) {
      while (run < text.size() && text[run] != '"' && text[run] != '\n') ++run;
    }
    return run;
  }
  // Handles a character that does not end a row.
  void add_char(char c) {
    if (state_ == State::kQuoted) {
      if (c == '"') {
        state_ = State::kQuoteInQuoted;
      } else {
        text_ += c;
      }
      return;
    }
    const bool begins_field = state_ == State::kRowBegin || state_ == State::kFieldBegin;
    if (c == delimiter_) {
      end_field();
    } else if (c == '"' && begins_field && quotes_ == Quotes::kRead) {
      state_ = State::kQuoted;
    } else {
      text_ += c;
      const bool doubled = c == '"' && state_ == State::kQuoteInQuoted;
      if (state_ == State::kQuoteInQuoted && !doubled && view_.text_after_quote_line == 0) {
        view_.text_after_quote_line = lines_ + 1;
      }
      state_ = doubled ? State::kQuoted : State::kPlain;
    }
  }
  void end_field() {
    ends_.push_back(text_.size());
    state_ = State::kFieldBegin;
  }
  void end_line(int64_t number) {
    if (state_ != State::kRowBegin) {
      end_field();
      view_.columns.clear();
      view_.last_line = number;
      size_t begin = 0;
      for (const size_t end : ends_) {
        view_.columns.push_back(std::string_view(text_).substr(begin, end - begin));
        begin = end;
      }
      row_(view_);
      text_.clear();
      ends_.clear();
      view_.text_after_quote_line = 0;
      state_ = State::kRowBegin;
    }
    view_.line = lines_ + 1;
  }

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

// Why a row is bad, or empty if it is valid. `columns` is the number of columns in the first row, 0 for the first row
// itself.
std::string row_problem(const CsvRow& row, size_t columns) {
  if (row.text_after_quote_line > 0) {
    const bool same = row.text_after_quote_line == row.line;
    return fmt::format("must end a field at its closing quotation mark, got text after it{}",
                       same ? "" : fmt::format(" in line {}", row.text_after_quote_line));
  }
  if (columns > 0 && row.columns.size() != columns) {
    return fmt::format("must have {} columns, as the first row has, got {}", columns, row.columns.size());
  }
  return "";
}

// Quotation marks can join several lines to one row; each line counts as a bad record.
void refuse_lines(int64_t first, int64_t last, const std::string& problem, const InputFile::Refuse& refuse) {
  for (int64_t line = first; line <= last; ++line) refuse(line, problem);
}

}  // namespace

InputFile::InputFile(const std::string& path, Quotes quotes, int64_t& bytes_read, size_t piece_bytes)
    : path_(path), name_(source_name(path)), quotes_(quotes), bytes_read_(bytes_read), piece_bytes_(piece_bytes) {}

void InputFile::check_record_size(int64_t line, size_t bytes) const {
  constexpr size_t kMaxRecordBytes = size_t{1} << 29;
  if (bytes > kMaxRecordBytes) {
    fail("input", "{} line {} must have a record of at most {} bytes, got more", name_, line, kMaxRecordBytes);
  }
}

void InputFile::read_pieces(const std::function<void(std::string_view)>& take) const {
  MarklessText source(path_);
  const int64_t begin = bytes_read_;
  int64_t before = 0;
  for (std::string_view text = source.next(); !text.empty(); text = source.next()) {
    const int64_t packed = source.bytes_read() - before;
    for (size_t at = 0; at < text.size();) {
      const size_t end = at + std::min(piece_bytes_, text.size() - at);
      bytes_read_ = begin + before + packed * static_cast<int64_t>(end) / static_cast<int64_t>(text.size());
      take(text.substr(at, end - at));
      at = end;
    }
    before += packed;
  }
  bytes_read_ = begin + source.bytes_read();
}

void InputFile::read_lines(const std::function<void(int64_t, std::string_view)>& take) const {
  read_all_lines([&](int64_t number, std::string_view line) {
    if (!is_blank(line)) take(number, line);
  });
}

void InputFile::read_all_lines(const std::function<void(int64_t, std::string_view)>& take) const {
  Lines lines(take);
  read_pieces([&](std::string_view text) {
    lines.add(text);
    check_record_size(lines.number(), lines.line_bytes());
  });
  lines.finish();
}

void InputFile::read_rows(char delimiter, const std::function<FirstRow(const CsvRow&)>& first,
                          const std::function<void(const CsvRow&)>& take, const Refuse& refuse) const {
  const char* const hint = quotes_ == Quotes::kRead ? " (are its quotation marks text? --no-quotes)" : "";
  size_t columns = 0;
  CsvRows rows(delimiter, quotes_, [&](const CsvRow& row) {
    const std::string problem = row_problem(row, columns);
    if (!problem.empty()) return refuse_lines(row.line, row.last_line, problem + hint, refuse);
    if (columns == 0) {
      columns = row.columns.size();
      if (first(row) == FirstRow::kNames) return;
    }
    take(row);
  });
  read_pieces([&](std::string_view text) {
    rows.add(text);
    check_record_size(rows.line(), rows.row_bytes());
  });
  if (!rows.finish()) {
    refuse_lines(rows.line(), rows.last_line(),
                 fmt::format("must close its quotation marks, got none to the end{}", hint), refuse);
  }
}

}  // namespace rf::data
