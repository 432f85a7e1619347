// Values of chat templates, and how Python writes them.
#include "chat_template/value.h"

#include <algorithm>
#include <cmath>
#include <ranges>

namespace rf::text::chat {

namespace {

template <typename... Kinds>
struct Overloaded : Kinds... {
  using Kinds::operator()...;
};

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string python_string(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos,
             has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out.append({'\\', c});
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out += quote;
}

template <typename Items, typename Write>
std::string joined(std::string_view open, const Items& items, std::string_view close, Write write) {
  std::string out(open);
  for (const auto& item : items) {
    if (out.size() > open.size()) out += ", ";
    out += write(item);
  }
  return out += close;
}

std::string repr_of_dict(const Dict& dict) {
  return joined("{", dict, "}", [](const auto& item) { return python_string(item.first) + ": " + item.second.repr(); });
}

std::string json_string(std::string_view text, bool ascii) {
  return nlohmann::json(text).dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

int64_t integer_of(const nlohmann::ordered_json& json) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    refuse("an integer must be at most 2^63 - 1, got {}", json.get<uint64_t>());
  }
  return json.get<int64_t>();
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonForm& form) : form_(form) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value) {
    if (const std::string* text = value.text()) {
      out_ += json_string(*text, form_.ascii);
    } else if (const List* items = value.items()) {
      write_all('[', *items, ']', [this](const Value& item) { write(item); });
    } else if (const Dict* dict = value.dict()) {
      Dict sorted;
      if (form_.sorted) {
        sorted = *dict;
        std::ranges::sort(sorted, {}, &Dict::value_type::first);
      }
      write_all('{', form_.sorted ? sorted : *dict, '}', [this](const auto& item) {
        out_ += json_string(item.first, form_.ascii) + form_.key_separator;
        write(item.second);
      });
    } else if (value.is<None>()) {
      out_ += "null";
    } else if (value.is<bool>()) {
      out_ += value.truth() ? "true" : "false";
    } else if (value.is<double>() && !std::isfinite(value.as_number())) {
      const double number = value.as_number();
      out_ += std::isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity";
    } else if (value.is_number()) {
      out_ += value.str();
    } else {
      refuse("tojson must have texts, numbers, lists and mappings, got {}", value.type());
    }
  }

 private:
  template <typename Items, typename Write>
  void write_all(char open, const Items& items, char close, Write write_item) {
    out_ += open;
    ++depth_;
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) out_ += form_.item_separator;
      is_first = false;
      begin_line();
      write_item(item);
    }
    --depth_;
    if (!is_first) begin_line();
    out_ += close;
  }
  void begin_line() {
    if (form_.indent >= 0) out_ += '\n' + std::string(static_cast<size_t>(depth_ * form_.indent), ' ');
  }

  const JsonForm& form_;
  int64_t depth_ = 0;
  std::string out_;
};

}  // namespace

Value::Value(List items) : depth_(depth_of(items)), content_(std::make_shared<const List>(std::move(items))) {}

Value::Value(Tuple items) : depth_(depth_of(items.items)), content_(std::make_shared<const Tuple>(std::move(items))) {}

Value::Value(Dict items)
    : depth_(depth_of(items | std::views::values)), content_(std::make_shared<const Dict>(std::move(items))) {}

Value Value::of_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::null: return Value(None{});
    case nlohmann::json::value_t::boolean: return Value(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned: return Value(integer_of(json));
    case nlohmann::json::value_t::number_float: return Value(json.get<double>());
    case nlohmann::json::value_t::string: return Value(json.get<std::string>());
    case nlohmann::json::value_t::array: {
      List items;
      for (const auto& item : json) items.push_back(of_json(item));
      return Value(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      Dict items;
      for (const auto& [key, item] : json.items()) items.emplace_back(key, of_json(item));
      return Value(std::move(items));
    }
    default: return {};
  }
}

const std::string* Value::text() const {
  const auto* text = std::get_if<std::shared_ptr<const std::string>>(&content_);
  return text == nullptr ? nullptr : text->get();
}

const List* Value::items() const {
  if (const auto* list = std::get_if<std::shared_ptr<const List>>(&content_)) return list->get();
  const auto* tuple = std::get_if<std::shared_ptr<const Tuple>>(&content_);
  return tuple == nullptr ? nullptr : &(*tuple)->items;
}

const Dict* Value::dict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&content_);
  return dict == nullptr ? nullptr : dict->get();
}

Namespace* Value::fields() const {
  const auto* fields = std::get_if<std::shared_ptr<Namespace>>(&content_);
  return fields == nullptr ? nullptr : fields->get();
}

const Callable* Value::callable() const {
  const auto* callable = std::get_if<std::shared_ptr<const Callable>>(&content_);
  return callable == nullptr ? nullptr : callable->get();
}

bool Value::truth() const {
  if (is_number()) return as_number() != 0;
  if (const std::string* own = text()) return !own->empty();
  if (const List* list = items()) return !list->empty();
  if (const Dict* own = dict()) return !own->empty();
  return !is<Undefined>() && !is<None>();
}

int64_t Value::as_integer(std::string_view what) const {
  if (const bool* own = std::get_if<bool>(&content_)) return *own ? 1 : 0;
  const int64_t* own = std::get_if<int64_t>(&content_);
  if (own == nullptr) refuse("{} must be an integer, got {}", what, type());
  return *own;
}

double Value::as_number() const {
  const double* own = std::get_if<double>(&content_);
  return own != nullptr ? *own : static_cast<double>(as_integer("a number"));
}

std::string_view Value::type() const {
  return std::visit(Overloaded{[](const Undefined&) -> std::string_view { return "an undefined value"; },
                               [](const None&) -> std::string_view { return "none"; },
                               [](bool) -> std::string_view { return "a boolean"; },
                               [](int64_t) -> std::string_view { return "an integer"; },
                               [](double) -> std::string_view { return "a float"; },
                               [](const std::shared_ptr<const std::string>&) -> std::string_view { return "a string"; },
                               [](const std::shared_ptr<const List>&) -> std::string_view { return "a list"; },
                               [](const std::shared_ptr<const Tuple>&) -> std::string_view { return "a tuple"; },
                               [](const std::shared_ptr<const Dict>&) -> std::string_view { return "a mapping"; },
                               [](const std::shared_ptr<Namespace>&) -> std::string_view { return "a namespace"; },
                               [](const std::shared_ptr<const Callable>&) -> std::string_view { return "a function"; }},
                    content_);
}

std::string Value::str() const { return text() != nullptr ? *text() : is_undefined() ? "" : repr(); }

std::string Value::repr() const {
  const auto repr_of = [](const Value& item) { return item.repr(); };
  if (const std::string* own = text()) return python_string(*own);
  if (is_tuple()) return joined("(", *items(), items()->size() == 1 ? ",)" : ")", repr_of);
  if (const List* list = items()) return joined("[", *list, "]", repr_of);
  if (const Dict* own = dict()) return repr_of_dict(*own);
  if (is<None>()) return "None";
  if (is<bool>()) return truth() ? "True" : "False";
  if (is<int64_t>()) return fmt::format("{}", as_integer(""));
  if (is<double>()) return number_text(as_number());
  if (is_undefined()) return "Undefined";
  refuse("a text must not be made of {}", type());
}

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is<double>() || b.is<double>()) return a.as_number() == b.as_number();
    return a.as_integer("") == b.as_integer("");
  }
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  if (a.items() != nullptr && b.items() != nullptr) return a.is_tuple() == b.is_tuple() && *a.items() == *b.items();
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->size() != b.dict()->size()) return false;
    return std::ranges::all_of(*a.dict(), [&](const auto& item) {
      const Value* other = find(*b.dict(), item.first);
      return other != nullptr && item.second == *other;
    });
  }
  if (a.fields() != nullptr || b.fields() != nullptr) return a.fields() == b.fields();
  if (a.callable() != nullptr || b.callable() != nullptr) return a.callable() == b.callable();
  return (a.is<None>() && b.is<None>()) || (a.is_undefined() && b.is_undefined());
}

bool is_less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is<double>() || b.is<double>()) return a.as_number() < b.as_number();
    return a.as_integer("") < b.as_integer("");
  }
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() < *b.text();
  if (a.items() != nullptr && b.items() != nullptr) {
    return std::ranges::lexicographical_compare(*a.items(), *b.items(), is_less);
  }
  refuse("an order must be between numbers or between strings, got {} and {}", a.type(), b.type());
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto found = std::ranges::find(dict, key, &Dict::value_type::first);
  return found == dict.end() ? nullptr : &found->second;
}

void assign(Dict& dict, std::string_view key, Value value) {
  const auto found = std::ranges::find(dict, key, &Dict::value_type::first);
  if (found != dict.end()) {
    found->second = std::move(value);
  } else {
    dict.emplace_back(std::string(key), std::move(value));
  }
}

std::string to_json(const Value& value, const JsonForm& form) {
  JsonWriter writer(form);
  writer.write(value);
  return writer.take();
}

}  // namespace rf::text::chat
