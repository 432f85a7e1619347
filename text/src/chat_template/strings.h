// Python's operations on strings, over UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rf::text::chat {

// A text under construction, of at most 64 MiB.
class TextBuilder {
 public:
  void append(std::string_view text);
  size_t size() const { return text_.size(); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Letters outside ASCII that have two cases are refused by all but lower().
std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // as the filter `title` finds words

bool is_space(char32_t code);  // str.isspace
// Without the characters at the ends, or without white space.
enum class Side { kBoth, kLeft, kRight };
std::string_view strip(std::string_view text, Side side = Side::kBoth);
std::string_view strip(std::string_view text, std::string_view characters, Side side = Side::kBoth);
// most: below 0, without a limit.
std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t most);
std::vector<std::string_view> split(std::string_view text, int64_t most);  // at white space
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t most, bool from_right);
std::vector<std::string_view> lines_of(std::string_view text);  // str.splitlines
std::vector<std::string_view> characters_of(std::string_view text);
bool read_number(std::string_view text, double& value);  // as float(text) reads decimal numbers

}  // namespace rf::text::chat
