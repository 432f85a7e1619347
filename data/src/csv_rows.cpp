#include "csv_rows.h"

#include <utility>

namespace rf::data {

CsvRows::CsvRows(char delimiter, Quotes quotes, std::function<void(const CsvRow&)> row)
    : delimiter_(delimiter), quotes_(quotes), row_(std::move(row)) {}

void CsvRows::add(std::string_view text) {
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

// The number of ordinary characters at the beginning.
size_t CsvRows::plain_run(std::string_view text) const {
  size_t run = 0;
  if (state_ == State::kPlain && !return_waits_) {
    while (run < text.size() && text[run] != delimiter_ && text[run] != '\n' && text[run] != '\r') ++run;
  } else if (state_ == State::kQuoted) {
    while (run < text.size() && text[run] != '"' && text[run] != '\n') ++run;
  }
  return run;
}

// Handles a character that does not end a row.
void CsvRows::add_char(char c) {
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

void CsvRows::end_field() {
  ends_.push_back(text_.size());
  state_ = State::kFieldBegin;
}

void CsvRows::end_line(int64_t number) {
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

int64_t CsvRows::last_line() const { return text_.ends_with('\n') ? lines_ : lines_ + 1; }

bool CsvRows::finish() {
  if (state_ == State::kQuoted) return false;
  end_line(lines_ + 1);
  return true;
}

}  // namespace rf::data
