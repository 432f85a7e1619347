// Runs a nlohmann SAX handler over JSON text and tracks the position of the reader, which nlohmann gives only for
// syntax errors. nlohmann's grammar is strict: NaN, Infinity, comments, trailing commas and bytes that are not UTF-8
// are refused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::io {

// The text with a mark on the last byte read.
struct JsonText {
  std::string_view text;
  std::string_view where;  // for messages: usually the file's path
  const char* mark;

  JsonText(std::string_view text_, std::string_view where_) : text(text_), where(where_), mark(text_.data()) {}

  template <typename... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string_view before = text.substr(0, static_cast<size_t>(mark - text.data()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    fail(where, "{} (line {}, column {})", fmt::format(format, std::forward<Args>(args)...), line, column);
  }
};

// The base of handlers: text cannot contain binary values, and syntax errors become rf::Error.
class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonHandler(const JsonText& source) : source_(source) {}
  bool binary(binary_t&) override { source_.fail_here("JSON has no binary values"); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ...", with the last bytes read, which may be
    // anything.
    const std::string_view what = error.what();
    constexpr size_t kMaxMessage = 240;
    fail(source_.where, "must be valid JSON, got a {}", escaped(what.substr(what.find("] ") + 2), kMaxMessage));
  }

 protected:
  const JsonText& source_;
};

// Walks the text and leaves its position in `mark`.
class MarkingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  MarkingIterator() = default;
  MarkingIterator(const char* at, const char** mark) : at_(at), mark_(mark) {}
  reference operator*() const { return *at_; }
  MarkingIterator& operator++() {
    *mark_ = at_++;
    return *this;
  }
  MarkingIterator operator++(int) {
    MarkingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const MarkingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const MarkingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char** mark_ = nullptr;
};

// The handler reports by throwing.
inline void run_sax(JsonText& source, JsonHandler& handler) {
  const char* const begin = source.text.data();
  // nlohmann treats NUL as the end of the text and would ignore the rest.
  if (const size_t nul = source.text.find('\0'); nul != std::string_view::npos) {
    source.mark = begin + nul;
    source.fail_here("must be valid JSON, got a NUL byte");
  }
  nlohmann::json::sax_parse(MarkingIterator(begin, &source.mark),
                            MarkingIterator(begin + source.text.size(), &source.mark), &handler);
}

}  // namespace rf::io
