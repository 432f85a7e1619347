// Reads the tokens of a chat template, as Jinja's lexer does.
#include "chat_template/lexer.h"

#include <algorithm>
#include <array>

#include "chat_template/value.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"

namespace rf::text::chat {

namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || is_digit(c); }

// Every end of a line as "\n", and without the last one.
std::string normalized_lines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    out += source[i] == '\r' ? '\n' : source[i];
    if (source[i] == '\r' && source.substr(i + 1).starts_with('\n')) ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, int& line) : line_(line), rest_(source) { line_ = 1; }

  std::vector<Token> read() {
    while (!rest_.empty()) read_section();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void skip(size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(rest_.substr(0, bytes), '\n'));
    rest_.remove_prefix(bytes);
  }
  void skip_spaces() { skip(std::min(rest_.find_first_not_of(kSpaces), rest_.size())); }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    skip(text.size());
    return true;
  }

  // Text, and the tag after it.
  void read_section() {
    size_t open = rest_.find('{');
    while (open != std::string_view::npos &&
           (open + 1 == rest_.size() || kKinds.find(rest_[open + 1]) == kKinds.npos)) {
      open = rest_.find('{', open + 1);
    }
    const bool is_last = open == std::string_view::npos;
    std::string_view text = rest_.substr(0, open);
    const bool begins_line = begins_line_;
    const char kind = is_last ? '\0' : rest_[open + 1];
    const char sign = is_last || open + 2 >= rest_.size() ? '\0' : rest_[open + 2];
    if (sign == '-') {
      text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
    } else if (sign != '+' && (kind == '%' || kind == '#')) {
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || begins_line) && text.find_first_not_of(" \t", line) == std::string_view::npos)
        text = text.substr(0, line);
    }
    if (!text.empty()) add(Token::Kind::kText, std::string(text));
    if (is_last) return skip(rest_.size());
    skip(open + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') return skip_comment();
    if (kind == '%' && is_raw()) return;
    add(kind == '{' ? Token::Kind::kOutput : Token::Kind::kBlock, "");
    read_tag(kind == '{' ? "}}" : "%}");
  }

  // Whether the tag ends here: with its sign, and with the spaces after it that it removes.
  bool take_end(std::string_view end) {
    const bool trims = rest_.starts_with('-') && rest_.substr(1).starts_with(end);
    const bool keeps = end != "}}" && rest_.starts_with('+') && rest_.substr(1).starts_with(end);
    if (!trims && !keeps && !rest_.starts_with(end)) return false;
    skip(end.size() + (trims || keeps ? 1 : 0));
    const std::string_view before = rest_;
    if (trims) {
      skip_spaces();
    } else if (!keeps && end != "}}") {
      take("\n");
    }
    begins_line_ = before.substr(0, before.size() - rest_.size()).ends_with('\n');
    return true;
  }
  void skip_comment() {
    while (!take_end("#}")) {
      if (rest_.empty()) refuse("a comment must end with #}}, got the end of the template");
      skip(1);
    }
  }
  // {% raw %}: its content is text.
  bool is_raw() {
    const std::string_view before = rest_;
    const int line = line_;
    skip_spaces();
    if (take("raw")) {
      skip_spaces();
      if (take_end("%}")) {
        std::string text;
        while (!take_endraw(text)) {
          if (rest_.empty()) refuse("raw must end with endraw, got the end of the template");
          text += rest_.front();
          skip(1);
        }
        return true;
      }
    }
    rest_ = before;
    line_ = line;
    return false;
  }

  // {% endraw %} at the front ends the raw text before it.
  bool take_endraw(std::string& text) {
    std::string_view tag = rest_;
    if (!tag.starts_with("{%")) return false;
    const char sign = tag.substr(2).empty() ? '\0' : tag[2];
    tag.remove_prefix(sign == '-' || sign == '+' ? 3 : 2);
    tag.remove_prefix(std::min(tag.find_first_not_of(kSpaces), tag.size()));
    if (!tag.starts_with("endraw")) return false;
    if (sign == '-') text.erase(text.find_last_not_of(kSpaces) + 1);
    add(Token::Kind::kText, std::move(text));
    skip(rest_.size() - tag.size() + 6);
    skip_spaces();
    if (!take_end("%}")) refuse("endraw must have no arguments");
    return true;
  }

  void read_tag(std::string_view end) {
    std::string open;  // brackets
    while (true) {
      skip_spaces();
      if (rest_.empty()) refuse("a tag must end with {}, got the end of the template", end);
      if (open.empty() && take_end(end)) return add(Token::Kind::kTagEnd, "");
      const char c = rest_.front();
      if (begins_name(c)) {
        add_while(Token::Kind::kName, continues_name);
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '"' || c == '\'') {
        read_string();
      } else {
        read_operator(open);
      }
    }
  }
  template <typename Belongs>
  void add_while(Token::Kind kind, Belongs belongs) {
    const size_t length = static_cast<size_t>(std::ranges::find_if_not(rest_, belongs) - rest_.begin());
    add(kind, std::string(rest_.substr(0, length)));
    skip(length);
  }
  void read_number() {
    const auto digits = [this](size_t at) {
      while (at < rest_.size() && (is_digit(rest_[at]) || rest_[at] == '_')) ++at;
      return at;
    };
    const auto has_digit = [this](size_t at) { return at < rest_.size() && is_digit(rest_[at]); };
    size_t length = digits(0);
    bool is_float = false;
    // An index such as x.0.1 is not a float.
    const bool is_index =
        !tokens_.empty() && tokens_.back().text == "." && tokens_.back().kind == Token::Kind::kOperator;
    if (!is_index && rest_.substr(length).starts_with('.') && has_digit(length + 1)) {
      length = digits(length + 1);
      is_float = true;
    }
    if (!is_index && length < rest_.size() && (rest_[length] | 0x20) == 'e') {
      const size_t sign = length + 1 < rest_.size() && (rest_[length + 1] == '+' || rest_[length + 1] == '-') ? 1 : 0;
      if (has_digit(length + 1 + sign)) {
        length = digits(length + 1 + sign);
        is_float = true;
      }
    }
    std::string text(rest_.substr(0, length));
    std::erase(text, '_');
    if (length < rest_.size() && continues_name(rest_[length]))
      refuse("a number must be decimal, got {}", io::printable(rest_.substr(0, length + 1)));
    add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(text));
    skip(length);
  }
  // A code of `digits` hexadecimal digits at the front, which it removes.
  char32_t take_code(size_t digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = rest_.empty() ? '\0' : rest_.front();
      const char letter = static_cast<char>(c | 0x20);
      if (!is_digit(c) && (letter < 'a' || letter > 'f')) refuse("an escape must have {} hexadecimal digits", digits);
      code = code << 4 | static_cast<uint32_t>(is_digit(c) ? c - '0' : letter - 'a' + 10);
      skip(1);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      refuse("an escape must be a character, got U+{:04X}", code);
    return code;
  }
  void read_string() {
    const char quote = rest_.front();
    const int line = line_;
    skip(1);
    std::string text;
    while (!take({&quote, 1})) {
      if (rest_.empty()) {
        line_ = line;
        refuse("a string must end with {}, got the end of the template", quote);
      }
      if (take("\\")) {
        read_escape(text);
      } else {
        text += rest_.front();
        skip(1);
      }
    }
    tokens_.push_back({Token::Kind::kString, std::move(text), line});
  }
  void read_escape(std::string& text) {
    constexpr std::string_view kLetters = "ntr\\'\"abfv", kValues = "\n\t\r\\'\"\a\b\f\v";
    if (rest_.empty()) return;
    const char c = rest_.front();
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
      text += kValues[at];
      skip(1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      skip(1);
      append_utf8(take_code(c == 'x' ? 2 : c == 'u' ? 4 : 8), text);
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int i = 0; i < 3 && !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '7'; ++i) {
        code = code * 8 + static_cast<char32_t>(rest_.front() - '0');
        skip(1);
      }
      append_utf8(code, text);
    } else if (!take("\n")) {
      text += '\\';  // as Python keeps unknown escapes
    }
  }
  void read_operator(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found =
        std::ranges::find_if(kOperators, [this](std::string_view each) { return rest_.starts_with(each); });
    if (found == kOperators.end())
      refuse("an expression must be made of names, numbers, strings and operators, got {}",
             io::printable(rest_.substr(0, 1)));
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) refuse("brackets must be closed in order, got {}", c);
      open.pop_back();
    }
    add(Token::Kind::kOperator, std::string(*found));
    skip(found->size());
  }

  static constexpr std::string_view kKinds = "{%#";
  int& line_;
  std::string_view rest_;
  bool begins_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source, int& line) {
  if (!is_utf8(source)) refuse("a template must be UTF-8");
  const std::string normalized = normalized_lines(source);
  return Lexer(normalized, line).read();
}

}  // namespace rf::text::chat
