// Chat templates of rerankers (see the header).
#include "pair_template.h"

#include <array>
#include <cctype>

#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::tasks {

namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

std::string_view without_spaces_before(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  return begin == std::string_view::npos ? "" : text.substr(begin);
}

std::string_view without_spaces_after(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

std::string_view without_spaces(std::string_view text) { return without_spaces_after(without_spaces_before(text)); }

[[noreturn]] void refuse(std::string_view part, const std::string& where) {
  constexpr size_t kShown = 120;
  fail(where,
       "the chat template of a reranker must be text and contents of messages by role (selectattr, map, first, "
       "default, trim, set), got {}",
       io::escaped(part, kShown));
}

// Parts of an expression between |, outside quotes.
std::vector<std::string_view> split_filters(std::string_view source) {
  std::vector<std::string_view> parts;
  char quote = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= source.size(); ++i) {
    const char c = i < source.size() ? source[i] : '|';
    if (quote != 0 && i < source.size()) {
      if (c == '\\' && i + 1 < source.size()) ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '|') {
      parts.push_back(without_spaces(source.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  return parts;
}

// A quoted string at the front of `source`, which loses it; nullopt: none. Only \n, \\ and quotes are escaped.
std::optional<std::string> take_string(std::string_view& source) {
  source = without_spaces_before(source);
  if (source.empty() || (source[0] != '"' && source[0] != '\'')) return std::nullopt;
  std::string text;
  for (size_t i = 1; i < source.size(); ++i) {
    if (source[i] == source[0]) {
      source = without_spaces_before(source.substr(i + 1));
      return text;
    }
    if (source[i] != '\\') {
      text += source[i];
      continue;
    }
    const char next = i + 1 < source.size() ? source[++i] : '\0';
    if (next != 'n' && next != '\\' && next != '"' && next != '\'') return std::nullopt;
    text += next == 'n' ? '\n' : next;
  }
  return std::nullopt;
}

bool take(std::string_view& source, std::string_view word) {
  source = without_spaces_before(source);
  if (!source.starts_with(word)) return false;
  source.remove_prefix(word.size());
  return true;
}

// The strings of a call such as selectattr("role", "eq", "query"); none if it is another one.
std::vector<std::string> arguments_of(std::string_view call, std::string_view name) {
  std::vector<std::string> found;
  if (!take(call, name) || !take(call, "(")) return {};
  do {
    take(call, "attribute=");
    const std::optional<std::string> text = take_string(call);
    if (!text) return {};
    found.push_back(*text);
  } while (take(call, ","));
  return take(call, ")") && without_spaces(call).empty() ? found : std::vector<std::string>{};
}

// A tag, and the text before it.
struct Tag {
  std::string_view text, inner;
  char kind = 0;  // '{', '%' or '#'; 0: none, at the end
};

Tag next_tag(std::string_view& rest, const std::string& where) {
  size_t open = rest.find('{');
  while (open != std::string_view::npos &&
         (open + 1 == rest.size() || std::string_view("{%#").find(rest[open + 1]) == std::string_view::npos)) {
    open = rest.find('{', open + 1);
  }
  if (open == std::string_view::npos) {
    const Tag last{.text = rest, .inner = {}};
    rest = {};
    return last;
  }
  const char kind = rest[open + 1];
  const std::array<char, 2> close = {kind == '{' ? '}' : kind, '}'};
  const size_t end = rest.find(std::string_view(close.data(), 2), open + 2);
  if (end == std::string_view::npos) refuse(rest.substr(open), where);
  Tag tag{.text = rest.substr(0, open), .inner = rest.substr(open + 2, end - open - 2), .kind = kind};
  rest.remove_prefix(end + 2);
  const size_t line = tag.text.find_last_not_of(" \t");
  if (tag.inner.starts_with('-')) {
    tag.inner.remove_prefix(1);
    tag.text = without_spaces_after(tag.text);
  } else if (kind != '{' && line != std::string_view::npos && tag.text[line] == '\n') {
    tag.text = tag.text.substr(0, line + 1);
  }
  if (tag.inner.ends_with('-')) {
    tag.inner.remove_suffix(1);
    rest = without_spaces_before(rest);
  } else if (kind != '{' && rest.starts_with('\n')) {
    rest.remove_prefix(1);
  }
  tag.inner = without_spaces(tag.inner);
  return tag;
}

}  // namespace

PairTemplate::Part PairTemplate::expression(std::string_view source, const std::string& where) const {
  const std::vector<std::string_view> steps = split_filters(source);
  Part part;
  size_t next = 1;
  if (steps[0] == "messages" && steps.size() >= 4) {
    const std::vector<std::string> select = arguments_of(steps[1], "selectattr");
    const bool by_role =
        select.size() == 3 && select[0] == "role" && (select[1] == "eq" || select[1] == "equalto" || select[1] == "==");
    const bool content = arguments_of(steps[2], "map") == std::vector<std::string>{"content"};
    next = steps[3] == "list" ? 5 : 4;
    if (!by_role || !content || steps.size() < next || steps[next - 1] != "first") refuse(source, where);
    part.role = select[2];
  } else if (const auto found = variables_.find(steps[0]); found != variables_.end()) {
    part = found->second;
  } else {
    std::string_view text = steps[0];
    const std::optional<std::string> constant = take_string(text);
    if (!constant || !text.empty()) refuse(source, where);
    part.text = *constant;
  }
  for (; next < steps.size(); ++next) {
    const std::vector<std::string> otherwise = arguments_of(steps[next], "default");
    if (steps[next] == "trim") {
      part.trimmed = true;
    } else if (otherwise.size() == 1 && !part.trimmed) {
      if (!part.otherwise) part.otherwise = otherwise[0];
    } else {
      refuse(source, where);
    }
  }
  return part;
}

PairTemplate::PairTemplate(std::string_view source, const std::string& where) {
  if (source.ends_with('\n')) source.remove_suffix(1);
  while (!source.empty()) {
    const Tag tag = next_tag(source, where);
    if (!tag.text.empty()) parts_.push_back({.text = std::string(tag.text), .role = {}, .otherwise = {}});
    if (tag.kind == '{') parts_.push_back(expression(tag.inner, where));
    if (tag.kind != '%') continue;
    std::string_view set = tag.inner;
    const bool is_set = take(set, "set ");
    const size_t equals = set.find('=');
    if (!is_set || equals == std::string_view::npos) refuse(tag.inner, where);
    const std::string name(without_spaces(set.substr(0, equals)));
    for (const char c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') refuse(tag.inner, where);
    }
    variables_[name] = expression(without_spaces(set.substr(equals + 1)), where);
  }
}

std::string PairTemplate::render(std::string_view prompt, std::string_view query, std::string_view document) const {
  std::string text;
  for (const Part& part : parts_) {
    std::string_view value = part.text;
    if (part.role == "query") value = query;
    if (part.role == "document") value = document;
    if (part.role == "system") value = prompt;
    const bool absent = !part.role.empty() && part.role != "query" && part.role != "document" && value.empty();
    if (absent) value = part.otherwise ? std::string_view(*part.otherwise) : "";
    text += part.trimmed ? without_spaces(value) : value;
  }
  return text;
}

}  // namespace rf::tasks
