#include "rf/io/shown_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "rf/io/utf8.h"

namespace rf::io {
namespace {

struct Character {
  uint32_t code;
  size_t bytes;
  bool valid;  // false: one byte that does not begin a character
};

// The first character of a text that is not empty.
Character first_character(std::string_view text) {
  const Decoded decoded = decode_utf8(text);
  if (!decoded.valid) return {static_cast<uint8_t>(text[0]), 1, false};
  return {decoded.code, static_cast<size_t>(decoded.length), true};
}

bool is_ascii(char c) { return c >= ' ' && c <= '~'; }

bool is_terminal_control(const Character& c) {
  if (!c.valid) return true;
  if (c.code < 0x20) return c.code != '\n' && c.code != '\t';
  if (c.code < 0x7F) return false;
  const auto within = [&](uint32_t first, uint32_t last) { return c.code >= first && c.code <= last; };
  return within(0x7F, 0x9F) || c.code == 0x061C || within(0x200E, 0x200F) || within(0x202A, 0x202E) ||
         within(0x2066, 0x2069);
}

// The text with terminal control characters replaced by the output of `escape`.
template <typename Escape>
std::string replaced(std::string_view text, Escape&& escape) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t ascii = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_ascii) - text.begin());
    out += text.substr(0, ascii);
    text.remove_prefix(ascii);
    if (text.empty()) break;
    const Character c = first_character(text);
    if (is_terminal_control(c)) {
      escape(c, text.substr(0, c.bytes), out);
    } else {
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

bool is_plain(char c) {
  constexpr std::string_view kSigns = "_@%+=:,./-";
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') || kSigns.find(c) != std::string_view::npos;
}

}  // namespace

std::string terminal_text(std::string_view text) {
  return replaced(text, [](const Character& c, std::string_view, std::string& out) {
    const bool is_byte = !c.valid || c.code < 0x80;
    out += is_byte ? fmt::format("\\x{:02x}", c.code) : fmt::format("\\u{:04x}", c.code);
  });
}

std::string message_text(std::string_view message) {
  constexpr size_t kMostBytes = 4096, kEndBytes = 400, kBeginBytes = 1200;
  if (message.size() <= kMostBytes) return std::string(message);
  const auto cut = [&](size_t at) {  // between characters
    while (at < message.size() && !begins_character(message[at])) ++at;
    return at;
  };
  const size_t begin = cut(kBeginBytes), end = cut(message.size() - kEndBytes);
  return fmt::format("{}... ({} bytes) ...{}", message.substr(0, begin), end - begin, message.substr(end));
}

std::string json_text(std::string_view json) {
  return replaced(json, [](const Character& c, std::string_view, std::string& out) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", c.valid ? c.code : 0xFFFD);
  });
}

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  if (text.find_first_of("\n\t") == std::string_view::npos && terminal_text(text) == text) {
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return word + "'";
  }
  std::string word = "$'";  // with escapes
  for (const char c : text) {
    if (c == '\'' || c == '\\') word += '\\';
    if (is_ascii(c)) {
      word += c;
    } else {
      fmt::format_to(std::back_inserter(word), "\\x{:02x}", static_cast<uint8_t>(c));
    }
  }
  return word + "'";
}

}  // namespace rf::io
