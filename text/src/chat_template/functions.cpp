// Filters, tests and functions of chat templates.
#include "chat_template/functions.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iterator>
#include <map>
#include <ranges>

#include "chat_template/strings.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"

namespace rf::text::chat {

namespace {

int64_t integer_or(const Value& value, int64_t otherwise, std::string_view what) {
  return value.is<None>() ? otherwise : value.as_integer(what);
}

Value attribute_path(const Value& value, const Value& path) {
  if (path.text() == nullptr) return item_of(value, path);
  Value found = value;
  for (const auto part : std::views::split(*path.text(), '.')) {
    const std::string_view name(part.begin(), part.end());
    const bool is_index = !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    found = item_of(found, is_index && name.size() < 10 ? Value(int64_t{std::stoi(std::string(name))}) : Value(name));
  }
  return found;
}

// --- Filters ---------------------------------------------------------------------------------------------------------

// Texts compare without regard to case, unless `exact`.
Value sort_key(const Value& value, bool exact) {
  return exact || value.text() == nullptr ? value : Value(lower(*value.text()));
}

Value length(const Value& value, Arguments& /*none*/) {
  if (const std::string* text = value.text()) return Value(int64_t{count_characters(*text)});
  if (const Dict* dict = value.dict()) return Value(std::ssize(*dict));
  if (const List* items = value.items()) return Value(std::ssize(*items));
  if (value.is_undefined()) return Value(int64_t{0});
  refuse("length must be of a string, a list or a mapping, got {}", value.type());
}

Value default_of(const Value& value, Arguments& arguments) {
  const Value otherwise = arguments.take("default_value", Value(""));
  const bool for_false = arguments.take("boolean", Value(false)).truth();
  return value.is_undefined() || (for_false && !value.truth()) ? otherwise : value;
}

Value json(const Value& value, Arguments& arguments) {
  JsonForm form;
  form.ascii = arguments.take("ensure_ascii", Value(false)).truth();
  const Value indent = arguments.take("indent", Value(None{})),
              separators = arguments.take("separators", Value(None{}));
  form.sorted = arguments.take("sort_keys", Value(false)).truth();
  form.indent = std::min<int64_t>(integer_or(indent, -1, "indent"), 64);
  if (form.indent >= 0) form.item_separator = ",";
  if (!separators.is<None>()) {
    const List* both = separators.items();
    if (both == nullptr || both->size() != 2) refuse("separators must be two strings, got {}", separators.type());
    form.item_separator = string_of((*both)[0], "a separator");
    form.key_separator = string_of((*both)[1], "a separator");
  }
  return Value(to_json(value, form));
}

Value join(const Value& value, Arguments& arguments) {
  const std::string between = arguments.take("d", Value("")).str();
  const Value attribute = arguments.take("attribute", Value(None{}));
  TextBuilder text;
  bool is_first = true;
  for (const Value& item : items_of(value)) {
    if (!std::exchange(is_first, false)) text.append(between);
    text.append(attribute.is<None>() ? item.str() : attribute_path(item, attribute).str());
  }
  return Value(text.take());
}

Value first(const Value& value, Arguments& /*none*/) {
  const List items = items_of(value);
  return items.empty() ? Value(Undefined{"the first item of an empty list"}) : items.front();
}

Value last(const Value& value, Arguments& /*none*/) {
  const List items = items_of(value);
  return items.empty() ? Value(Undefined{"the last item of an empty list"}) : items.back();
}

Value reverse(const Value& value, Arguments& /*none*/) {
  return slice_of(value.text() != nullptr ? value : Value(items_of(value)), Value(None{}), Value(None{}),
                  Value(int64_t{-1}));
}

Value items(const Value& value, Arguments& /*none*/) {
  if (value.is_undefined()) return Value(List{});
  if (value.dict() == nullptr) refuse("items must be of a mapping, got {}", value.type());
  return call_method(value, "items", {});
}

Value dictsort(const Value& value, Arguments& arguments) {
  const bool exact = arguments.take("case_sensitive", Value(false)).truth();
  const size_t by = arguments.take("by", Value("key")).str() == "value" ? 1 : 0;
  const bool reversed = arguments.take("reverse", Value(false)).truth();
  if (value.dict() == nullptr) refuse("dictsort must be of a mapping, got {}", value.type());
  List pairs = *call_method(value, "items", {}).items();
  std::ranges::stable_sort(pairs, [&](const Value& a, const Value& b) {
    const Value of_a = sort_key((*a.items())[by], exact), of_b = sort_key((*b.items())[by], exact);
    return reversed ? is_less(of_b, of_a) : is_less(of_a, of_b);
  });
  return Value(std::move(pairs));
}

Value sort(const Value& value, Arguments& arguments) {
  const bool reversed = arguments.take("reverse", Value(false)).truth();
  const bool exact = arguments.take("case_sensitive", Value(false)).truth();
  const Value attribute = arguments.take("attribute", Value(None{}));
  const auto key = [&](const Value& item) {
    return sort_key(attribute.is<None>() ? item : attribute_path(item, attribute), exact);
  };
  List sorted = items_of(value);
  std::ranges::stable_sort(sorted, [&](const Value& a, const Value& b) {
    return reversed ? is_less(key(b), key(a)) : is_less(key(a), key(b));
  });
  return Value(std::move(sorted));
}

Value unique(const Value& value, Arguments& arguments) {
  const bool exact = arguments.take("case_sensitive", Value(false)).truth();
  const Value attribute = arguments.take("attribute", Value(None{}));
  constexpr size_t kMaxCompared = 4096;
  List found, keys;
  for (const Value& item : items_of(value)) {
    Value key = sort_key(attribute.is<None>() ? item : attribute_path(item, attribute), exact);
    if (std::ranges::find(keys, key) != keys.end()) continue;
    if (keys.size() == kMaxCompared) refuse("unique must find at most {} items", kMaxCompared);
    keys.push_back(std::move(key));
    found.push_back(item);
  }
  return Value(std::move(found));
}

Value map(const Value& value, Arguments& arguments) {
  List mapped;
  if (arguments.has_positional()) {
    const Value filter = arguments.need("filter");
    const Arguments rest(arguments.take_positional(), arguments.take_named());
    for (const Value& item : items_of(value)) {
      mapped.push_back(apply_filter(string_of(filter, "a filter"), item, rest));
    }
    return Value(std::move(mapped));
  }
  const Value attribute = arguments.need("attribute");
  const Value otherwise = arguments.take("default", Value());
  for (const Value& item : items_of(value)) {
    Value found = attribute_path(item, attribute);
    mapped.push_back(found.is_undefined() && !otherwise.is_undefined() ? otherwise : std::move(found));
  }
  return Value(std::move(mapped));
}

// select and reject, of the items or of an attribute of each.
Value select(const Value& value, Arguments& arguments, bool by_attribute, bool selected) {
  const Value attribute = by_attribute ? arguments.need("attribute") : Value();
  const Value test = arguments.take("test", Value());
  const List rest = arguments.take_positional();
  List found;
  for (const Value& item : items_of(value)) {
    const Value tested = by_attribute ? attribute_path(item, attribute) : item;
    const bool fits =
        test.is_undefined() ? tested.truth() : apply_test(string_of(test, "a test"), tested, Arguments(rest, Dict{}));
    if (fits == selected) found.push_back(item);
  }
  return Value(std::move(found));
}

template <bool by_attribute, bool selected>
Value select_as(const Value& value, Arguments& arguments) {
  return select(value, arguments, by_attribute, selected);
}

bool read_text(const Value& value, double& number) {
  if (value.is_undefined()) refuse("a number must not be undefined");
  return value.text() != nullptr && read_number(*value.text(), number);
}

Value to_integer(const Value& value, Arguments& arguments) {
  const Value otherwise = arguments.take("default", Value(int64_t{0}));
  double number = 0;
  if (value.is_number()) {
    if (!value.is<double>()) return Value(value.as_integer(""));
    number = value.as_number();
  } else if (!read_text(value, number)) {
    return otherwise;
  }
  constexpr double kLimit = 9007199254740992.0;  // 2^53
  return std::abs(number) <= kLimit ? Value(static_cast<int64_t>(number)) : otherwise;
}

Value to_float(const Value& value, Arguments& arguments) {
  const Value otherwise = arguments.take("default", Value(0.0));
  double number = 0;
  if (value.is_number()) return Value(value.as_number());
  return read_text(value, number) ? Value(number) : otherwise;
}

Value absolute(const Value& value, Arguments& /*none*/) {
  return value.is<double>() ? Value(std::abs(value.as_number())) : Value(std::abs(value.as_integer("abs")));
}

Value sum(const Value& value, Arguments& arguments) {
  const Value attribute = arguments.take("attribute", Value(None{}));
  Value total = arguments.take("start", Value(int64_t{0}));
  for (const Value& item : items_of(value)) {
    total = operation("+", total, attribute.is<None>() ? item : attribute_path(item, attribute));
  }
  return total;
}

template <bool greatest>
Value extreme(const Value& value, Arguments& /*none*/) {
  const List items = items_of(value);
  if (items.empty()) return Value(Undefined{"the extreme of an empty list"});
  const Value* found = &items.front();
  for (const Value& item : items) {
    if (greatest ? is_less(*found, item) : is_less(item, *found)) found = &item;
  }
  return *found;
}

Value indent(const Value& value, Arguments& arguments) {
  const Value width = arguments.take("width", Value(int64_t{4}));
  const bool first_too = arguments.take("first", Value(false)).truth();
  const bool blank_too = arguments.take("blank", Value(false)).truth();
  constexpr int64_t kMaxWidth = 1000;
  const std::string space =
      width.text() != nullptr
          ? *width.text()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(width.as_integer("width"), 0, kMaxWidth)), ' ');
  const std::string lines = value.str() + "\n";
  TextBuilder text;
  bool is_first = true;
  for (const std::string_view line : lines_of(lines)) {
    if (!is_first) text.append("\n");
    if (is_first ? first_too : blank_too || !line.empty()) text.append(space);
    text.append(line);
    is_first = false;
  }
  return Value(text.take());
}

using Filter = Value (*)(const Value&, Arguments&);

// A filter that is a function of strings.
template <std::string (*function)(std::string_view)>
Value of_text(const Value& value, Arguments& /*none*/) {
  return Value(function(value.str()));
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> kFilters = {
      {"abs", absolute},
      {"capitalize", of_text<capitalize>},
      {"count", length},
      {"d", default_of},
      {"default", default_of},
      {"dictsort", dictsort},
      {"first", first},
      {"float", to_float},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", [](const Value& value, Arguments&) { return Value(items_of(value)); }},
      {"lower", of_text<lower>},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select_as<false, false>},
      {"rejectattr", select_as<true, false>},
      {"replace",
       [](const Value& value, Arguments& arguments) {
         const Value old = arguments.need("old"), with = arguments.need("new"),
                     count = arguments.take("count", Value(None{}));
         return Value(replace(value.str(), old.str(), with.str(), integer_or(count, -1, "count")));
       }},
      {"reverse", reverse},
      {"safe", [](const Value& value, Arguments&) { return Value(value.str()); }},
      {"select", select_as<false, true>},
      {"selectattr", select_as<true, true>},
      {"sort", sort},
      {"string", [](const Value& value, Arguments&) { return Value(value.str()); }},
      {"sum", sum},
      {"title", of_text<title>},
      {"tojson", json},
      {"trim",
       [](const Value& value, Arguments& arguments) {
         const Value characters = arguments.take("chars", Value(None{}));
         const std::string text = value.str();
         return Value(characters.is<None>() ? strip(text) : strip(text, string_of(characters, "chars")));
       }},
      {"unique", unique},
      {"upper", of_text<upper>},
  };
  return kFilters;
}

// --- Tests -----------------------------------------------------------------------------------------------------------

bool is_text(const Value& value) { return value.text() != nullptr; }
bool is_sequence(const Value& value) {
  return is_text(value) || value.items() != nullptr || value.dict() != nullptr || value.is_undefined();
}

using Test = bool (*)(const Value&, Arguments&);

const std::map<std::string_view, Test>& tests() {
  static const Test kEqual = [](const Value& a, Arguments& rest) { return a == rest.need("other"); };
  static const Test kUnequal = [](const Value& a, Arguments& rest) { return !(a == rest.need("other")); };
  static const Test kLess = [](const Value& a, Arguments& rest) { return is_less(a, rest.need("other")); };
  static const Test kGreater = [](const Value& a, Arguments& rest) { return is_less(rest.need("other"), a); };
  static const Test kAtMost = [](const Value& a, Arguments& rest) { return !is_less(rest.need("other"), a); };
  static const Test kAtLeast = [](const Value& a, Arguments& rest) { return !is_less(a, rest.need("other")); };
  static const std::map<std::string_view, Test> kTests = {
      {"!=", kUnequal},
      {"<", kLess},
      {"<=", kAtMost},
      {"==", kEqual},
      {">", kGreater},
      {">=", kAtLeast},
      {"boolean", [](const Value& value, Arguments&) { return value.is<bool>(); }},
      {"callable", [](const Value& value, Arguments&) { return value.callable() != nullptr; }},
      {"defined", [](const Value& value, Arguments&) { return !value.is_undefined(); }},
      {"divisibleby", [](const Value& value,
                         Arguments& rest) { return operation("%", value, rest.need("num")) == Value(int64_t{0}); }},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"even",
       [](const Value& value, Arguments&) { return operation("%", value, Value(int64_t{2})) == Value(int64_t{0}); }},
      {"false", [](const Value& value, Arguments&) { return value.is<bool>() && !value.truth(); }},
      {"float", [](const Value& value, Arguments&) { return value.is<double>(); }},
      {"ge", kAtLeast},
      {"greaterthan", kGreater},
      {"gt", kGreater},
      {"in", [](const Value& value, Arguments& rest) { return contains(rest.need("seq"), value); }},
      {"integer", [](const Value& value, Arguments&) { return value.is<int64_t>(); }},
      {"iterable", [](const Value& value, Arguments&) { return is_sequence(value); }},
      {"le", kAtMost},
      {"lessthan", kLess},
      {"lt", kLess},
      {"mapping", [](const Value& value, Arguments&) { return value.dict() != nullptr; }},
      {"ne", kUnequal},
      {"none", [](const Value& value, Arguments&) { return value.is<None>(); }},
      {"number", [](const Value& value, Arguments&) { return value.is_number(); }},
      {"odd",
       [](const Value& value, Arguments&) { return operation("%", value, Value(int64_t{2})) == Value(int64_t{1}); }},
      {"sequence", [](const Value& value, Arguments&) { return is_sequence(value); }},
      {"string", [](const Value& value, Arguments&) { return is_text(value); }},
      {"true", [](const Value& value, Arguments&) { return value.is<bool>() && value.truth(); }},
      {"undefined", [](const Value& value, Arguments&) { return value.is_undefined(); }},
  };
  return kTests;
}

// --- Functions -------------------------------------------------------------------------------------------------------

Value range(Arguments arguments) {
  constexpr int64_t kMaxRange = 100000;  // Jinja's sandbox has this bound
  const List bounds = arguments.take_positional();
  arguments.finish();
  if (bounds.empty() || bounds.size() > 3) refuse("range must have one to three arguments, got {}", bounds.size());
  const auto bound = [&](size_t i) { return bounds[i].as_integer("range"); };
  const int64_t begin = bounds.size() == 1 ? 0 : bound(0), end = bound(bounds.size() == 1 ? 0 : 1);
  const int64_t step = bounds.size() == 3 ? bound(2) : 1;
  if (step == 0) refuse("range must have a step other than 0");
  List numbers;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(numbers) == kMaxRange) refuse("range must have at most {} numbers", kMaxRange);
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value(std::move(numbers));
}

Value time_now(Arguments arguments) {
  const Value format = arguments.need("format");
  arguments.finish();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[256];
  return Value(std::string_view(
      text, std::strftime(text, sizeof text, std::string(string_of(format, "a format of time")).c_str(), &local)));
}

Value dict_or_namespace(std::string_view name, Arguments arguments) {
  const Value given = arguments.take("", Value(Dict{}));
  if (given.dict() == nullptr) refuse("{} must be made of a mapping, got {}", name, given.type());
  Dict fields = *given.dict();
  for (auto& [key, value] : arguments.take_named()) {
    if (value.fields() != nullptr) refuse("a namespace must not be an item of another value");
    assign(fields, key, std::move(value));
  }
  arguments.finish();
  return name == "namespace" ? Value(Namespace{std::move(fields)}) : Value(std::move(fields));
}

}  // namespace

// --- Arguments -------------------------------------------------------------------------------------------------------

Value Arguments::take(std::string_view name, Value otherwise) {
  if (has_positional()) return positional_[next_++];
  const Value named = take_named(name);
  return named.is_undefined() ? otherwise : named;
}

Value Arguments::take_named(std::string_view name) {
  const auto found = std::ranges::find(named_, name, &Dict::value_type::first);
  if (found == named_.end()) return {};
  Value value = std::move(found->second);
  named_.erase(found);
  return value;
}

Value Arguments::need(std::string_view name) {
  if (next_ == positional_.size() && find(named_, name) == nullptr) refuse("the argument {} must be given", name);
  return take(name, Value());
}

List Arguments::take_positional() {
  List rest(positional_.begin() + static_cast<ptrdiff_t>(next_), positional_.end());
  next_ = positional_.size();
  return rest;
}

Dict Arguments::take_named() { return std::exchange(named_, {}); }

void Arguments::finish() const {
  if (next_ < positional_.size())
    refuse("a call must have at most {} positional arguments, got {}", next_, positional_.size());
  if (!named_.empty()) refuse("an argument must not be named {}", io::printable(named_.front().first));
}

// --- Calls -----------------------------------------------------------------------------------------------------------

bool is_function(std::string_view name) {
  return name == "range" || name == "namespace" || name == "dict" || name == "raise_exception" ||
         name == "strftime_now";
}

Value apply_filter(std::string_view name, const Value& value, Arguments arguments) {
  if (!filters().contains(name)) refuse("the filter {} is not computed", io::printable(name));
  Value result = filters().at(name)(value, arguments);
  arguments.finish();
  return result;
}

bool apply_test(std::string_view name, const Value& value, Arguments arguments) {
  if (!tests().contains(name)) refuse("the test {} is not computed", io::printable(name));
  const bool result = tests().at(name)(value, arguments);
  arguments.finish();
  return result;
}

Value call_function(std::string_view name, Arguments arguments) {
  if (name == "range") return range(std::move(arguments));
  if (name == "strftime_now") return time_now(std::move(arguments));
  if (name == "raise_exception") throw Problem(arguments.need("message").str());
  return dict_or_namespace(name, std::move(arguments));
}

}  // namespace rf::text::chat
