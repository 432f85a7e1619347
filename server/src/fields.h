// The fields of a request's JSON object. Fields that nobody asks for are ignored, as other servers do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rf::server {

// Throws HttpError (400) for text that is not a JSON object, that is nested deeper or has more values than any request,
// or that gives a field twice.
nlohmann::json parse_object(std::string_view body);

// All throw HttpError (400) that names the field, if a required field is missing or any field has another type.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object) : object_(object) {}

  const nlohmann::json* find(const char* name) const;  // nullptr for an absent one and for null
  const nlohmann::json& required(const char* name) const;
  std::string text(const char* name) const;
  std::string text_or(const char* name, std::string fallback) const;
  bool flag(const char* name, bool fallback) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;
  double number(const char* name, double fallback, double low, double high) const;
  // A text, or a list of texts.
  std::vector<std::string> texts(const char* name) const;
  // The first one if it is absent.
  std::string one_of(const char* name, std::initializer_list<const char*> allowed) const;
  // Refuses every other value of a field that other servers support and this server does not.
  void only(const char* name, const nlohmann::json& allowed) const;

 private:
  const nlohmann::json& object_;
};

// A JSON value that must be a text; `name` is the field's.
std::string text_of(const nlohmann::json& value, const std::string& name);

}  // namespace rf::server
