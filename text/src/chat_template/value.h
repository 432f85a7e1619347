// The values of a chat template: the Python types that Jinja uses. Values are immutable, except namespaces.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rf::text::chat {

class Value;
struct Statement;

// An error without its place, which the caller of the reader or renderer adds.
class Problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Problem(fmt::format(format, std::forward<Args>(args)...));
}

struct Undefined {
  std::string name;  // for messages
};
struct None {};
using List = std::vector<Value>;
struct Tuple {
  List items;
};
using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of insertion
struct Namespace {
  Dict fields;
};
// A macro, a method with its object, or a function.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> self;
  const Statement* macro = nullptr;
};

class Value {
 public:
  using Content = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
                               std::shared_ptr<const List>, std::shared_ptr<const Tuple>, std::shared_ptr<const Dict>,
                               std::shared_ptr<Namespace>, std::shared_ptr<const Callable>>;

  Value() = default;  // undefined
  explicit Value(Undefined content) : content_(std::move(content)) {}
  explicit Value(None content) : content_(content) {}
  explicit Value(bool content) : content_(content) {}
  explicit Value(int64_t content) : content_(content) {}
  explicit Value(double content) : content_(content) {}
  explicit Value(std::string content) : content_(std::make_shared<const std::string>(std::move(content))) {}
  explicit Value(std::string_view content) : Value(std::string(content)) {}
  explicit Value(const char* content) : Value(std::string(content)) {}
  // Refuse namespaces as items, which could contain themselves, and nesting that could overflow the stack.
  explicit Value(List items);
  explicit Value(Tuple items);
  explicit Value(Dict items);
  explicit Value(Namespace fields) : content_(std::make_shared<Namespace>(std::move(fields))) {}
  explicit Value(Callable callable) : content_(std::make_shared<const Callable>(std::move(callable))) {}
  static Value of_json(const nlohmann::ordered_json& json);

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(content_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_number() const { return is<int64_t>() || is<double>() || is<bool>(); }
  bool is_tuple() const { return is<std::shared_ptr<const Tuple>>(); }
  const std::string* text() const;  // null for others, as in the next four
  const List* items() const;        // of a list or a tuple
  const Dict* dict() const;
  Namespace* fields() const;
  const Callable* callable() const;

  const Content& content() const { return content_; }

  bool truth() const;
  int64_t as_integer(std::string_view what) const;  // of an integer or bool; refuses others
  double as_number() const;                         // of a number
  std::string_view type() const;                    // Python's name of it
  std::string str() const;                          // Python's str()
  std::string repr() const;

 private:
  template <typename Items>
  static int depth_of(const Items& items) {
    int depth = 0;
    for (const Value& item : items) {
      if (item.fields() != nullptr) refuse("a namespace must not be an item of another value");
      depth = std::max(depth, item.depth_);
    }
    if (depth >= kMaxDepth) refuse("values must be nested at most {} times", kMaxDepth);
    return depth + 1;
  }
  static constexpr int kMaxDepth = 200;

  int depth_ = 0;  // of lists and mappings
  Content content_;
};

bool operator==(const Value& a, const Value& b);
// Python's a < b. Refuses types without an order.
bool is_less(const Value& a, const Value& b);
const Value* find(const Dict& dict, std::string_view key);  // null: absent
void assign(Dict& dict, std::string_view key, Value value);
// Python's json.dumps(value, ensure_ascii=False). indent below 0: in one line.
struct JsonForm {
  bool ascii = false, sorted = false;
  int64_t indent = -1;
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(const Value& value, const JsonForm& form);

}  // namespace rf::text::chat
