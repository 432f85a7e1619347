// Parses JSON more strictly than nlohmann's parser: duplicate keys and nesting deep enough to exhaust a stack are
// errors.

#include <string>
#include <utility>
#include <vector>

#include "json_sax.h"
#include "rf/io/files.h"

namespace rf::io {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;

class DomHandler final : public JsonHandler {
 public:
  using JsonHandler::JsonHandler;
  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }

  bool start_object(size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) source_.fail_here("keys must be unique, got a second {}", printable(name));
    key_ = std::move(name);
    return true;
  }

 private:
  json* place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == kMaxDepth) source_.fail_here("nesting must be at most {} deep, got more", kMaxDepth);
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  json root_;
  std::vector<json*> open_;  // a parent does not grow while a child is open, so the pointers stay valid
  std::string key_;
};

}  // namespace

json parse_json(std::string_view text, std::string_view where) {
  JsonText source(text, where);
  DomHandler handler(source);
  run_sax(source, handler);
  return handler.take();
}

json read_json(const std::string& path) { return parse_json(read_file(path), path); }

}  // namespace rf::io
