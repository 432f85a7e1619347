// Operations on the strings of chat templates.
#include "chat_template/strings.h"

#include <algorithm>
#include <charconv>

#include "chat_template/value.h"
#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text::chat {

namespace {

char upper_of(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char lower_of(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

void check_case(std::string_view text) {
  while (!text.empty()) {
    const char32_t code = take_utf8(text).code;
    if (code < 0x80) continue;
    const std::string_view category = kCategories[general_category(code)];
    if (category == "Lu" || category == "Ll" || category == "Lt") {
      refuse("the case of letters outside ASCII is not changed, got U+{:04X}", static_cast<uint32_t>(code));
    }
  }
}

template <typename Is>
std::string_view strip_if(std::string_view text, Side side, Is is) {
  while (side != Side::kRight && !text.empty() && is(decode_utf8(text).code)) take_utf8(text);
  while (side != Side::kLeft && !text.empty()) {
    const Decoded last = decode_last_utf8(text);
    if (!is(last.code)) break;
    text.remove_suffix(static_cast<size_t>(last.length));
  }
  return text;
}

// Where the next part of a text ends, and how many bytes separate it from what follows.
struct Cut {
  size_t end, separator;
};

}  // namespace

void TextBuilder::append(std::string_view text) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  if (text_.size() + text.size() > kMaxBytes) refuse("a text must have at most 64 MiB");
  text_ += text;
}

std::string lower(std::string_view text) {
  check_case(text);
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower_of);
  return out;
}

std::string upper(std::string_view text) {
  check_case(text);
  std::string out(text);
  std::ranges::transform(out, out.begin(), upper_of);
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out = lower(text);
  if (!out.empty()) out.front() = upper_of(out.front());
  return out;
}

std::string title(std::string_view text) {
  std::string out = lower(text);
  bool begins = true;
  for (char& c : out) {
    if (begins) c = upper_of(c);
    begins = std::string_view("- \t\n\r\f\v({[<").find(c) != std::string_view::npos;
  }
  return out;
}

bool is_space(char32_t code) { return is_white_space(code) || (code >= 0x1C && code <= 0x1F); }

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip(std::string_view text, std::string_view characters, Side side) {
  std::u32string set;
  while (!characters.empty()) set += take_utf8(characters).code;
  return strip_if(text, side, [&](char32_t code) { return set.find(code) != std::u32string::npos; });
}

std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t most) {
  TextBuilder out;
  if (old.empty()) refuse("replace must have a string that is not empty, got \"\"");
  while (most != 0) {
    const size_t at = text.find(old);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at));
    out.append(with);
    text.remove_prefix(at + old.size());
    --most;
  }
  out.append(text);
  return out.take();
}

std::vector<std::string_view> split(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    std::string_view rest = text;
    if (most >= 0 && std::ssize(parts) == most) {
      parts.push_back(strip(text, Side::kRight));
      break;
    }
    while (!rest.empty() && !is_space(decode_utf8(rest).code)) take_utf8(rest);
    parts.push_back(text.substr(0, text.size() - rest.size()));
    text = strip(rest, Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t most, bool from_right) {
  if (separator.empty()) refuse("split must have a separator that is not empty, got \"\"");
  std::vector<std::string_view> parts;
  for (; most != 0; --most) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.push_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view before = rest;
    const char32_t code = take_utf8(rest).code;
    const bool is_end = (code >= U'\n' && code <= U'\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
                        code == 0x2028 || code == 0x2029;
    if (!is_end) continue;
    if (code == U'\r' && rest.starts_with('\n')) rest.remove_prefix(1);
    lines.push_back(text.substr(0, text.size() - before.size()));
    text = rest;
  }
  if (!text.empty()) lines.push_back(text);
  return lines;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const std::string_view before = text;
    take_utf8(text);
    characters.push_back(before.substr(0, before.size() - text.size()));
  }
  return characters;
}

bool read_number(std::string_view text, double& value) {
  text = strip(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const bool has_digit = text.find_first_of("0123456789") != std::string_view::npos;
  const bool is_decimal = text.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return has_digit && is_decimal && error == std::errc() && end == text.data() + text.size();
}

}  // namespace rf::text::chat
