#include "rf/io/json_field.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"

namespace rf::io {
namespace {

constexpr int kMaxNesting = 500;

// Bytes that end a run of plain characters in a string: the quote, the backslash, and control characters, which must be
// escaped in JSON.
constexpr std::array<bool, 256> kSpecial = [] {
  std::array<bool, 256> special{};
  for (size_t c = 0; c < ' '; ++c) special[c] = true;
  special['"'] = special['\\'] = true;
  return special;
}();

struct SyntaxError {
  const char* at;
  const char* wanted;
};

// The value of the field so far.
struct FieldValue {
  enum class Kind { kNothing, kText, kNull, kOther } kind = Kind::kNothing;
  std::string_view raw{};  // between the quotes
  bool escaped = false;
  std::string_view json{};  // the unparsed value, with its quotes
};

using Paths = std::array<std::vector<std::string>, 2>;  // an empty one: no field
using OnPaths = std::array<bool, 2>;                    // whether the keys so far are the first ones of each path

class Scanner {
 public:
  Scanner(std::string_view json, const Paths& paths)
      : at_(json.data()), end_(json.data() + json.size()), paths_(paths) {}

  std::array<FieldValue, 2> run() {
    skip_space();
    if (at_ == end_ || *at_ != '{') throw SyntaxError{at_, "an object"};
    value(0, {!paths_[0].empty(), !paths_[1].empty()});
    skip_space();
    if (at_ != end_) throw SyntaxError{at_, "the end of the line"};
    return found_;
  }

 private:
  struct String {
    std::string_view raw;
    bool escaped;
  };

  // A value `depth` containers deep.
  void value(int depth, OnPaths on) {
    skip_space();
    if (at_ == end_) throw SyntaxError{at_, "a value"};
    const char* const begin = at_;
    FieldValue value = any_value(depth, on);
    value.json = {begin, at_};
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (on[i] && static_cast<size_t>(depth) == paths_[i].size()) found_[i] = value;
    }
  }

  FieldValue any_value(int depth, OnPaths on) {
    FieldValue value{.kind = FieldValue::Kind::kOther};
    switch (*at_) {
      case '{': object(depth, on); break;
      case '[': list(depth, on); break;
      case '"': {
        const String text = string();
        value = {FieldValue::Kind::kText, text.raw, text.escaped};
        break;
      }
      case 'n':
        value.kind = FieldValue::Kind::kNull;
        word("null");
        break;
      case 't': word("true"); break;
      case 'f': word("false"); break;
      case 'N': word("NaN"); break;
      case 'I': word("Infinity"); break;
      default: number();
    }
    return value;
  }

  void object(int depth, OnPaths on) {
    enter(depth);
    if (take('}')) return;
    do {
      skip_space();
      if (at_ == end_ || *at_ != '"') throw SyntaxError{at_, "a key"};
      const String key = string();
      const OnPaths inside = extended(on, depth, [&](const std::string& wanted) { return is_key(key, wanted); });
      for (size_t i = 0; i < inside.size(); ++i) {
        if (inside[i]) found_[i] = {};  // of equal keys the last counts
      }
      if (!take(':')) throw SyntaxError{at_, "a colon"};
      value(depth + 1, inside);
    } while (take(','));
    if (!take('}')) throw SyntaxError{at_, "a comma or }"};
  }

  void list(int depth, OnPaths on) {
    enter(depth);
    if (take(']')) return;
    size_t index = 0;
    do {
      value(depth + 1, extended(on, depth, [&](const std::string& wanted) { return wanted == std::to_string(index); }));
      ++index;
    } while (take(','));
    if (!take(']')) throw SyntaxError{at_, "a comma or ]"};
  }

  // Which paths still match after one more key or index. is_wanted(): whether it equals the given part of a path.
  template <typename IsWanted>
  OnPaths extended(OnPaths on, int depth, const IsWanted& is_wanted) const {
    const auto place = static_cast<size_t>(depth);
    for (size_t i = 0; i < on.size(); ++i) on[i] = on[i] && place < paths_[i].size() && is_wanted(paths_[i][place]);
    return on;
  }

  void enter(int depth) {
    if (depth >= kMaxNesting) throw SyntaxError{at_, "less nesting"};
    ++at_;
  }

  String string() {
    const char* const begin = ++at_;
    bool escaped = false;
    while (true) {
      while (at_ != end_ && !kSpecial[static_cast<unsigned char>(*at_)]) ++at_;
      if (at_ == end_) throw SyntaxError{at_, "a closing quotation mark"};
      if (*at_ == '"') break;
      if (*at_ != '\\') throw SyntaxError{at_, "an escape for a control character"};
      escaped = true;
      escape();
    }
    return {{begin, at_++}, escaped};
  }
  void escape() {
    ++at_;
    if (at_ == end_ || std::string_view("\"\\/bfnrtu").find(*at_) == std::string_view::npos)
      throw SyntaxError{at_, "a valid escape"};
    if (*at_++ != 'u') return;
    for (int i = 0; i < 4; ++i, ++at_) {
      const bool hex = at_ != end_ && std::isxdigit(static_cast<unsigned char>(*at_)) != 0;
      if (!hex) throw SyntaxError{at_, "four hex digits"};
    }
  }

  void number() {
    const char* const begin = at_;
    if (at_ != end_ && *at_ == '-') ++at_;
    if (at_ != begin && at_ != end_ && *at_ == 'I') return word("Infinity");
    if (at_ != end_ && *at_ == '0') {
      ++at_;
    } else {
      digits("a value");
    }
    if (at_ != end_ && *at_ == '.') {
      ++at_;
      digits("a digit");
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      digits("a digit");
    }
  }
  void digits(const char* wanted) {
    const auto is_digit = [this] { return at_ != end_ && *at_ >= '0' && *at_ <= '9'; };
    if (!is_digit()) throw SyntaxError{at_, wanted};
    while (is_digit()) ++at_;
  }

  void word(std::string_view expected) {
    if (!std::string_view(at_, end_).starts_with(expected)) throw SyntaxError{at_, "a value"};
    at_ += expected.size();
  }
  bool take(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  static bool is_key(const String& key, const std::string& wanted);

  const char* at_;
  const char* end_;
  const Paths& paths_;
  std::array<FieldValue, 2> found_;
};

uint32_t hex4(const char* digits) {
  uint32_t value = 0;
  std::from_chars(digits, digits + 4, value, 16);
  return value;
}

bool is_high(uint32_t code) { return code >= 0xD800 && code < 0xDC00; }
bool is_low(uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

// `rest` begins after "\u". Takes the digits, and the second half of a surrogate pair.
void unescape_unicode(std::string_view& rest, std::string& out) {
  constexpr char kNotUtf8 = '\xFF';
  const uint32_t code = hex4(rest.data());
  rest.remove_prefix(4);
  if (is_high(code) && rest.size() >= 6 && rest.starts_with("\\u") && is_low(hex4(rest.data() + 2))) {
    append_utf8(0x10000 + ((code - 0xD800) << 10) + (hex4(rest.data() + 2) - 0xDC00), out);
    rest.remove_prefix(6);
  } else if (is_high(code) || is_low(code)) {
    out += kNotUtf8;
  } else {
    append_utf8(code, out);
  }
}

// The escapes in `raw` are well-formed.
void unescape(std::string_view raw, std::string& out) {
  out.clear();
  while (true) {
    const size_t plain = std::min(raw.find('\\'), raw.size());
    out.append(raw, 0, plain);
    if (plain == raw.size()) return;
    const char escape = raw[plain + 1];
    raw.remove_prefix(plain + 2);
    constexpr std::string_view kNames = "bfnrt", kValues = "\b\f\n\r\t";
    if (escape == 'u') {
      unescape_unicode(raw, out);
    } else {
      const size_t known = kNames.find(escape);
      out += known == std::string_view::npos ? escape : kValues[known];
    }
  }
}

bool Scanner::is_key(const String& key, const std::string& wanted) {
  if (!key.escaped) return key.raw == wanted;
  std::string plain;
  unescape(key.raw, plain);
  return plain == wanted;
}

// A key of a JSON pointer: "~1" is "/" and "~0" is "~".
std::string pointer_key(std::string_view text) {
  std::string key;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1');
    key += escaped ? "~/"[text[++i] - '0'] : text[i];
  }
  return key;
}

std::vector<std::string> parse_path(std::string_view field) {
  const bool is_pointer = field.starts_with('/');
  std::string_view rest = is_pointer ? field.substr(1) : field;
  std::vector<std::string> path;
  while (true) {
    const size_t end = rest.find(is_pointer ? '/' : '.');
    const std::string_view key = rest.substr(0, end);
    if (key.empty()) fail("input", "the field must be keys that are not empty, got {}", printable(field));
    path.push_back(is_pointer ? pointer_key(key) : std::string(key));
    if (end == std::string_view::npos) return path;
    rest.remove_prefix(end + 1);
  }
}

// JSON without the white space between its tokens.
std::string without_space(std::string_view json) {
  std::string out;
  bool is_inside = false;  // a string
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (!is_inside && (c == ' ' || c == '\t' || c == '\r' || c == '\n')) continue;
    out += c;
    if (c == '"') is_inside = !is_inside;
    if (is_inside && c == '\\') out += json[++i];
  }
  return out;
}

// The text of JsonField::Result::value.
std::string json_value(const FieldValue& found) {
  if (found.kind == FieldValue::Kind::kNothing || found.kind == FieldValue::Kind::kNull) return "";
  if (found.kind == FieldValue::Kind::kText) {
    std::string text;
    unescape(found.raw, text);
    return quoted_json(text);
  }
  return nlohmann::json::accept(found.json) ? without_space(found.json) : "";
}

}  // namespace

JsonField::JsonField(const std::string& field, const std::string& value_field) : field_(field) {
  paths_[0] = parse_path(field);
  if (!value_field.empty()) paths_[1] = parse_path(value_field);
}

JsonField::Result JsonField::find(std::string_view json) {
  constexpr size_t kShownBytes = 40;
  std::array<FieldValue, 2> both;
  try {
    both = Scanner(json, paths_).run();
  } catch (const SyntaxError& bad) {
    const auto offset = static_cast<size_t>(bad.at - json.data());
    const std::string_view rest = json.substr(offset);
    return {.kind = Result::Kind::kBad,
            .problem =
                fmt::format("must be a JSON object with {} at byte {}, got {}", bad.wanted, offset + 1,
                            rest.empty() ? "the end of the line" : fmt::format("\"{}\"", escaped(rest, kShownBytes)))};
  }
  const FieldValue& found = both[0];
  Result result{.kind = Result::Kind::kBad, .value = json_value(both[1])};
  switch (found.kind) {
    case FieldValue::Kind::kText:
      result.kind = Result::Kind::kText;
      result.text = found.raw;
      if (!found.escaped) break;
      unescape(found.raw, unescaped_);
      result.text = unescaped_;
      break;
    case FieldValue::Kind::kNull: result.kind = Result::Kind::kNull; break;
    case FieldValue::Kind::kOther:
      result.text = found.json;
      result.problem = fmt::format("must have a text or null as {}, got another value", printable(field_));
      break;
    case FieldValue::Kind::kNothing:
      result.problem = fmt::format("must have the field {}, got \"{}\"", printable(field_), escaped(json, kShownBytes));
  }
  return result;
}

std::string quoted_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rf::io
