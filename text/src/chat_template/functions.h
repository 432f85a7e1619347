// The filters, tests, methods and functions of Jinja and of Python that published chat templates use.
#pragma once

#include <string_view>
#include <utility>

#include "chat_template/value.h"

namespace rf::text::chat {

// The arguments of a call. Each is taken once, by its position or its name; finish() refuses the others.
class Arguments {
 public:
  Arguments() = default;
  Arguments(List positional, Dict named) : positional_(std::move(positional)), named_(std::move(named)) {}

  Value take(std::string_view name, Value otherwise);  // the next one by position, or the one of this name
  Value need(std::string_view name);
  bool has_positional() const { return next_ < positional_.size(); }
  Value take_named(std::string_view name);  // undefined: absent
  List take_positional();                   // the rest
  Dict take_named();
  void add(std::string_view name, Value value) { assign(named_, name, std::move(value)); }
  void finish() const;

 private:
  List positional_;
  Dict named_;
  size_t next_ = 0;
};

Value apply_filter(std::string_view name, const Value& value, Arguments arguments);
bool apply_test(std::string_view name, const Value& value, Arguments arguments);
Value call_function(std::string_view name, Arguments arguments);
Value call_method(const Value& self, std::string_view name, Arguments arguments);

bool is_function(std::string_view name);

// The content of a string. `what` names the value in the message for another type.
std::string_view string_of(const Value& value, std::string_view what);
Value attribute_of(const Value& value, std::string_view name);  // value.name
Value item_of(const Value& value, const Value& key);            // value[key]
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step);
Value operation(std::string_view operation, const Value& a, const Value& b);
bool contains(const Value& value, const Value& item);  // item in value
List items_of(const Value& value);                     // what a loop goes through

}  // namespace rf::text::chat
