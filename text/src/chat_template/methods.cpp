// Attributes, items, slices, operators and methods of the values of chat templates.
#include <algorithm>
#include <cmath>
#include <map>

#include "chat_template/functions.h"
#include "chat_template/strings.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text::chat {

namespace {

List texts(const std::vector<std::string_view>& parts) {
  List out;
  for (const std::string_view part : parts) out.emplace_back(part);
  return out;
}

// --- Methods ---------------------------------------------------------------------------------------------------------

using Method = Value (*)(const Value&, Arguments&);

template <Side side>
Value strip_method(const Value& self, Arguments& arguments) {
  const Value characters = arguments.take("chars", Value(None{}));
  if (characters.is<None>()) return Value(strip(*self.text(), side));
  return Value(strip(*self.text(), string_of(characters, "characters"), side));
}

template <bool from_right>
Value split_method(const Value& self, Arguments& arguments) {
  const Value separator = arguments.take("sep", Value(None{}));
  const int64_t most = arguments.take("maxsplit", Value(int64_t{-1})).as_integer("maxsplit");
  if (!separator.is<None>()) {
    return Value(texts(split(*self.text(), string_of(separator, "a separator"), most, from_right)));
  }
  if (from_right && most >= 0) refuse("rsplit must have a separator if maxsplit is given");
  return Value(texts(split(*self.text(), most)));
}

template <bool at_end>
Value affix_method(const Value& self, Arguments& arguments) {
  const Value affix = arguments.need("prefix");
  const auto fits = [&](const Value& each) {
    const std::string_view part = string_of(each, "a prefix or suffix");
    return at_end ? self.text()->ends_with(part) : self.text()->starts_with(part);
  };
  return Value(affix.is_tuple() ? std::ranges::any_of(*affix.items(), fits) : fits(affix));
}

template <bool at_end>
Value remove_affix(const Value& self, Arguments& arguments) {
  const Value argument = arguments.need("prefix");
  const std::string_view affix = string_of(argument, "a prefix or suffix"), text = *self.text();
  if (at_end) return Value(text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
  return Value(text.starts_with(affix) ? text.substr(affix.size()) : text);
}

template <bool last, bool must_exist>
Value find_method(const Value& self, Arguments& arguments) {
  const Value argument = arguments.need("sub");
  const std::string_view part = string_of(argument, "a part"), text = *self.text();
  const size_t at = last ? text.rfind(part) : text.find(part);
  if (at != std::string_view::npos) return Value(int64_t{count_characters(text.substr(0, at))});
  if (must_exist) refuse("index must be of a part of the string, got {}", io::printable(part));
  return Value(int64_t{-1});
}

template <std::string (*function)(std::string_view)>
Value text_method(const Value& self, Arguments& /*none*/) {
  return Value(function(*self.text()));
}

// Whether the text is not empty, and the categories of all its characters begin with `first` and `second` (0: any).
template <char first, char second>
Value is_category(const Value& self, Arguments& /*none*/) {
  std::string_view text = *self.text();
  bool fits = !text.empty();
  while (fits && !text.empty()) {
    const std::string_view category = kCategories[general_category(take_utf8(text).code)];
    fits = category[0] == first && (second == 0 || category[1] == second);
  }
  return Value(fits);
}

Value count_method(const Value& self, Arguments& arguments) {
  const Value argument = arguments.need("sub");
  if (self.text() == nullptr) return Value(int64_t{std::ranges::count(*self.items(), argument)});
  const std::string_view part = string_of(argument, "a part");
  return Value(std::ssize(split(*self.text(), part, -1, false)) - 1);
}

const std::map<std::string_view, Method>& methods_of(const Value& value) {
  static const std::map<std::string_view, Method> kNone;
  static const std::map<std::string_view, Method> kOfText = {
      {"capitalize", text_method<capitalize>},
      {"count", count_method},
      {"endswith", affix_method<true>},
      {"find", find_method<false, false>},
      {"index", find_method<false, true>},
      {"isalpha", is_category<'L', 0>},
      {"isdigit", is_category<'N', 'd'>},
      {"join",
       [](const Value& self, Arguments& arguments) {
         TextBuilder text;
         bool is_first = true;
         for (const Value& item : items_of(arguments.need("iterable"))) {
           if (!std::exchange(is_first, false)) text.append(*self.text());
           text.append(string_of(item, "an item"));
         }
         return Value(text.take());
       }},
      {"lower", text_method<lower>},
      {"lstrip", strip_method<Side::kLeft>},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"replace",
       [](const Value& self, Arguments& arguments) {
         const Value old = arguments.need("old"), with = arguments.need("new");
         const int64_t most = arguments.take("count", Value(int64_t{-1})).as_integer("count");
         return Value(replace(*self.text(), string_of(old, "the old part"), string_of(with, "the new part"), most));
       }},
      {"rfind", find_method<true, false>},
      {"rindex", find_method<true, true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<Side::kRight>},
      {"split", split_method<false>},
      {"splitlines", [](const Value& self, Arguments&) { return Value(texts(lines_of(*self.text()))); }},
      {"startswith", affix_method<false>},
      {"strip", strip_method<Side::kBoth>},
      {"title", text_method<title>},
      {"upper", text_method<upper>},
  };
  static const std::map<std::string_view, Method> kOfDict = {
      {"get",
       [](const Value& self, Arguments& arguments) {
         const Value key = arguments.need("key"), otherwise = arguments.take("default", Value(None{}));
         const Value* found = key.text() == nullptr ? nullptr : find(*self.dict(), *key.text());
         return found == nullptr ? otherwise : *found;
       }},
      {"items",
       [](const Value& self, Arguments&) {
         List pairs;
         for (const auto& [key, item] : *self.dict()) pairs.emplace_back(Tuple{{Value(key), item}});
         return Value(std::move(pairs));
       }},
      {"keys", [](const Value& self, Arguments&) { return Value(items_of(self)); }},
      {"values",
       [](const Value& self, Arguments&) {
         List values;
         for (const auto& item : *self.dict()) values.push_back(item.second);
         return Value(std::move(values));
       }},
  };
  static const std::map<std::string_view, Method> kOfList = {
      {"count", count_method},
      {"index",
       [](const Value& self, Arguments& arguments) {
         const auto found = std::ranges::find(*self.items(), arguments.need("value"));
         if (found == self.items()->end()) refuse("index must be of an item of the list");
         return Value(int64_t{found - self.items()->begin()});
       }},
  };
  if (value.text() != nullptr) return kOfText;
  if (value.dict() != nullptr) return kOfDict;
  return value.items() != nullptr ? kOfList : kNone;
}

[[noreturn]] void refuse_undefined(const Value& value) {
  refuse("{} is undefined", io::printable(std::get<Undefined>(value.content()).name));
}

// The value's method, or undefined.
Value method_of(const Value& value, std::string_view name) {
  if (!methods_of(value).contains(name)) return Value(Undefined{std::string(name)});
  return Value(Callable{std::string(name), std::make_shared<const Value>(value)});
}

// --- Operators -------------------------------------------------------------------------------------------------------

// The index of an item, which counts from the end below 0; -1: none.
int64_t index_of(int64_t index, int64_t size) {
  if (index < 0) index += size;
  return index < size ? std::max<int64_t>(index, -1) : -1;
}

[[noreturn]] void refuse_operation(std::string_view name, const Value& a, const Value& b) {
  refuse("{} must be between numbers, or texts or lists where Python has it, got {} and {}", name, a.type(), b.type());
}

Value integer_operation(std::string_view name, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (name == "+") overflows = __builtin_add_overflow(a, b, &result);
  if (name == "-") overflows = __builtin_sub_overflow(a, b, &result);
  if (name == "*") overflows = __builtin_mul_overflow(a, b, &result);
  if (name == "//" || name == "%") {
    if (b == 0) refuse("a division must be by a number other than 0");
    if (b == -1) {
      if (name == "%") return Value(int64_t{0});
      overflows = __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      const bool rounds_down = a % b != 0 && (a < 0) != (b < 0);
      result = name == "//" ? a / b - (rounds_down ? 1 : 0) : a % b + (rounds_down ? b : 0);
    }
  }
  if (name == "**") {
    if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
    result = 1;
    for (int64_t i = 0; i < b && result != 0 && !(a == 1) && !overflows; ++i) {
      if (a == -1 && i >= 2) {
        result = b % 2 == 0 ? 1 : -1;
        break;
      }
      overflows = __builtin_mul_overflow(result, a, &result);
    }
  }
  if (overflows) refuse("an integer must be below 2^63, got a larger result of {}", name);
  return Value(result);
}

Value number_operation(std::string_view name, const Value& a, const Value& b) {
  if (name != "/" && !a.is<double>() && !b.is<double>()) {
    return integer_operation(name, a.as_integer(name), b.as_integer(name));
  }
  const double x = a.as_number(), y = b.as_number();
  if (name == "+") return Value(x + y);
  if (name == "-") return Value(x - y);
  if (name == "*") return Value(x * y);
  if (name == "**") return Value(std::pow(x, y));
  if (y == 0) refuse("a division must be by a number other than 0");
  if (name == "/") return Value(x / y);
  const double rest = std::fmod(x, y);
  const double modulo = rest == 0 ? std::copysign(0, y) : (rest < 0) != (y < 0) ? rest + y : rest;
  return Value(name == "%" ? modulo : std::floor((x - modulo) / y + 0.5));
}

Value repeated(const Value& value, int64_t times) {
  if (value.text() != nullptr) {
    TextBuilder text;
    if (value.text()->empty()) return value;
    for (int64_t i = 0; i < times; ++i) text.append(*value.text());
    return Value(text.take());
  }
  constexpr int64_t kMaxItems = int64_t{1} << 20;
  const List& items = *value.items();
  times = std::max<int64_t>(times, 0);
  if (!items.empty() && times > kMaxItems / std::ssize(items)) refuse("a list must have at most {} items", kMaxItems);
  List out;
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return value.is_tuple() ? Value(Tuple{std::move(out)}) : Value(std::move(out));
}

bool can_repeat(const Value& value, const Value& times) {
  return (value.text() != nullptr || value.items() != nullptr) && (times.is<int64_t>() || times.is<bool>());
}

}  // namespace

std::string_view string_of(const Value& value, std::string_view what) {
  if (value.text() == nullptr) refuse("{} must be a string, got {}", what, value.type());
  return *value.text();
}

Value call_method(const Value& self, std::string_view name, Arguments arguments) {
  Value result = methods_of(self).at(name)(self, arguments);
  arguments.finish();
  return result;
}

Value attribute_of(const Value& value, std::string_view name) {
  if (value.is_undefined()) refuse_undefined(value);
  if (value.fields() != nullptr) {
    const Value* found = find(value.fields()->fields, name);
    return found != nullptr ? *found : Value(Undefined{std::string(name)});
  }
  const Value method = method_of(value, name);
  return method.is_undefined() && value.dict() != nullptr ? item_of(value, Value(name)) : method;
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) refuse_undefined(value);
  if (value.dict() != nullptr && key.text() != nullptr) {
    const Value* found = find(*value.dict(), *key.text());
    if (found != nullptr) return *found;
  }
  if (key.is<int64_t>() && (value.items() != nullptr || value.text() != nullptr)) {
    const int64_t size =
        value.text() != nullptr ? int64_t{count_characters(*value.text())} : std::ssize(*value.items());
    const int64_t index = index_of(key.as_integer("an index"), size);
    if (index >= 0) {
      const auto at = static_cast<size_t>(index);
      return value.text() != nullptr ? Value(characters_of(*value.text())[at]) : (*value.items())[at];
    }
    return Value(Undefined{fmt::format("item {}", key.as_integer("an index"))});
  }
  if (value.fields() != nullptr && key.text() != nullptr) return attribute_of(value, *key.text());
  return key.text() != nullptr ? method_of(value, *key.text()) : Value(Undefined{"an item"});
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (value.is_undefined()) refuse_undefined(value);
  if (value.text() == nullptr && value.items() == nullptr) {
    refuse("a slice must be of a string or a list, got {}", value.type());
  }
  const int64_t by = step.is<None>() ? 1 : step.as_integer("the step of a slice");
  if (by == 0) refuse("the step of a slice must not be 0");
  const std::vector<std::string_view> characters =
      value.text() != nullptr ? characters_of(*value.text()) : std::vector<std::string_view>{};
  const int64_t size = value.text() != nullptr ? std::ssize(characters) : std::ssize(*value.items());
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto bound = [&](const Value& given, int64_t otherwise) {
    if (given.is<None>()) return otherwise;
    const int64_t index = given.as_integer("a bound of a slice");
    return std::clamp(index < 0 && index >= -size ? index + size : index < 0 ? low : index, low, high);
  };
  const int64_t from = bound(begin, by > 0 ? low : high), to = bound(end, by > 0 ? high : low);
  std::string text;
  List items;
  for (int64_t i = from; by > 0 ? i < to : i > to;) {
    if (value.text() != nullptr) {
      text += characters[static_cast<size_t>(i)];
    } else {
      items.push_back((*value.items())[static_cast<size_t>(i)]);
    }
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (value.text() != nullptr) return Value(std::move(text));
  return value.is_tuple() ? Value(Tuple{std::move(items)}) : Value(std::move(items));
}

Value operation(std::string_view name, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return number_operation(name, a, b);
  if (name == "*" && can_repeat(a, b)) return repeated(a, b.as_integer(name));
  if (name == "*" && can_repeat(b, a)) return repeated(b, a.as_integer(name));
  if (name != "+") refuse_operation(name, a, b);
  if (a.text() != nullptr && b.text() != nullptr) {
    TextBuilder text;
    text.append(*a.text());
    text.append(*b.text());
    return Value(text.take());
  }
  if (a.items() == nullptr || b.items() == nullptr || a.is_tuple() != b.is_tuple()) refuse_operation(name, a, b);
  List items = *a.items();
  items.insert(items.end(), b.items()->begin(), b.items()->end());
  return a.is_tuple() ? Value(Tuple{std::move(items)}) : Value(std::move(items));
}

bool contains(const Value& value, const Value& item) {
  if (value.text() != nullptr)
    return value.text()->find(string_of(item, "what is searched in a string")) != std::string::npos;
  if (value.dict() != nullptr) {
    if (item.dict() != nullptr || (item.items() != nullptr && !item.is_tuple())) {
      refuse("a key must be hashable, got {}", item.type());
    }
    return item.text() != nullptr && find(*value.dict(), *item.text()) != nullptr;
  }
  if (value.items() != nullptr) return std::ranges::find(*value.items(), item) != value.items()->end();
  if (value.is_undefined()) return false;
  refuse("in must search a string, a list or a mapping, got {}", value.type());
}

List items_of(const Value& value) {
  if (value.items() != nullptr) return *value.items();
  if (value.text() != nullptr) return texts(characters_of(*value.text()));
  if (value.is_undefined()) return {};
  if (value.dict() == nullptr) refuse("a loop must go through a list, a mapping or a string, got {}", value.type());
  List keys;
  for (const auto& item : *value.dict()) keys.emplace_back(item.first);
  return keys;
}

}  // namespace rf::text::chat
