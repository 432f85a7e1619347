#include "rf/io/shown_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace rf::io {
namespace {

struct Character {
  uint32_t code;
  size_t bytes;
  bool valid;  // false: one byte that begins no character
};

// The first character of a text that is not empty.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {lead, 1, false};
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {lead, 1, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  static constexpr uint32_t kMinCode[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kMinCode[bytes] || code > 0x10FFFF || is_surrogate) return {lead, 1, false};
  return {code, bytes, true};
}

bool is_ascii(char c) {
  return c >= ' ' && c <= '~';
}

bool is_terminal_control(const Character& c) {
  if (!c.valid) return true;
  if (c.code < 0x20) return c.code != '\n' && c.code != '\t';
  if (c.code < 0x7F) return false;
  const auto within = [&](uint32_t first, uint32_t last) { return c.code >= first && c.code <= last; };
  return within(0x7F, 0x9F) || c.code == 0x061C || within(0x200E, 0x200F) || within(0x202A, 0x202E) ||
         within(0x2066, 0x2069);
}

// The text with terminal control characters replaced by what `escape` appends for them.
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
