// Extracts one or two values of a JSON object (RFC 8259) in one pass, without building a JSON value: the rest is
// checked and skipped. Follows Python's json: the last of equal keys counts, and NaN, Infinity and -Infinity are
// numbers. Bytes above 0x7F in strings are not checked. Nesting deeper than 500 is refused.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace rf::io {

class JsonField {
 public:
  // "a", "a.b", or a JSON pointer (RFC 6901) "/a/0/b"; numbers are indices if the value is a list. Throws Error for an
  // empty key. value_field: the second field, of the same form, or "".
  explicit JsonField(const std::string& field, const std::string& value_field = "");

  struct Result {
    enum class Kind { kText, kNull, kBad } kind;
    // Of the field, valid until the next call and while the line exists; of kBad the JSON of another value.
    std::string_view text{};
    std::string problem{};  // of a bad line: "must be ..., got ..."
    // The second field's value, of any kind, as one line of JSON: strings are escaped by JSON's rules, with U+FFFD for
    // invalid UTF-8; numbers keep their digits. Empty if the field is missing, null or a value outside of JSON (NaN),
    // and if the line is not an object.
    std::string value{};
  };
  // A lone half of a surrogate pair becomes the byte 0xFF: like any byte that is not UTF-8, the tokenizer replaces it
  // by U+FFFD and counts it.
  Result find(std::string_view json);

 private:
  std::string field_;
  std::array<std::vector<std::string>, 2> paths_;  // an empty one: no field
  std::string unescaped_;
};

// A text as JSON, with U+FFFD for invalid UTF-8.
std::string quoted_json(std::string_view text);

// "[0.5,2]": each number with the fewest digits that give it back; null for NaN and infinity, which JSON cannot
// represent.
template <typename Values>
std::string json_list(const Values& values) {
  std::string text = "[";
  for (const auto& value : values) {
    if (text.size() > 1) text += ',';
    if (std::isfinite(static_cast<double>(value))) {
      fmt::format_to(std::back_inserter(text), "{}", value);
    } else {
      text += "null";
    }
  }
  return text += ']';
}

}  // namespace rf::io
