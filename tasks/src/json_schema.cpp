// JSON schemas to automata (rf/tasks/json_schema.h).
#include "rf/tasks/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/percent.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "schema_parts.h"

namespace rf::tasks {

namespace {

using Schema = nlohmann::ordered_json;

constexpr const char* kSchemaWhere = "schema";
constexpr int kMostSchemaNesting = 200;

// Keywords that do not restrict the texts.
const std::set<std::string_view> kAnnotations = {
    "title",      "description", "default",         "examples",         "$comment",
    "deprecated", "readOnly",    "writeOnly",       "$schema",          "$id",
    "$defs",      "definitions", "contentEncoding", "contentMediaType", "discriminator"};
// The supported keywords, with the type that they describe; "": all types.
const std::map<std::string_view, const char*> kKeywords = {{"type", ""},
                                                           {"enum", ""},
                                                           {"const", ""},
                                                           {"anyOf", ""},
                                                           {"oneOf", ""},
                                                           {"allOf", ""},
                                                           {"$ref", ""},
                                                           {"properties", "object"},
                                                           {"required", "object"},
                                                           {"additionalProperties", "object"},
                                                           {"items", "array"},
                                                           {"prefixItems", "array"},
                                                           {"minItems", "array"},
                                                           {"maxItems", "array"},
                                                           {"uniqueItems", "array"},
                                                           {"minLength", "string"},
                                                           {"maxLength", "string"},
                                                           {"pattern", "string"},
                                                           {"format", "string"},
                                                           {"minimum", "number"},
                                                           {"maximum", "number"},
                                                           {"exclusiveMinimum", "number"},
                                                           {"exclusiveMaximum", "number"}};
// Formats as expressions; dates are the days that every month has.
const std::map<std::string_view, const char*> kFormats = {
    {"date", R"(^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$)"},
    {"time", R"(^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-3]):[0-5]\d)$)"},
    {"date-time",
     R"(^[12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-3]):[0-5]\d)$)"},
    {"uuid", R"(^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$)"},
    {"ipv4", R"(^((25[0-5]|2[0-4]\d|1?\d\d|\d)\.){3}(25[0-5]|2[0-4]\d|1?\d\d|\d)$)"},
    {"email", R"(^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$)"}};

class SchemaReader {
 public:
  explicit SchemaReader(const Schema& root) : root_(root) {}

  ByteAutomaton read() {
    check_nesting(root_, 0);
    space_ = space_rule();
    character_ = automaton_.add_rule();
    add_any_character(automaton_, character_.begin, character_.end);
    const ByteAutomaton::Rule whole = automaton_.add_rule();
    const int32_t begin = automaton_.called(whole.begin, space_);
    automaton_.add_empty(value(root_, "#", begin), whole.end);
    // References are read when others are, so that schemas may contain themselves.
    while (!open_.empty()) {
      const auto [target, rule] = open_.back();
      open_.pop_back();
      const auto& [pointer, tag] = target;
      automaton_.add_empty(value(target_of(pointer), pointer, rule.begin, tag), rule.end);
    }
    automaton_.finish(whole);
    return std::move(automaton_);
  }

  // The rule of any value, which refers to itself.
  ByteAutomaton::Rule any_value() {
    static const Schema kAny = Schema::object();
    if (any_) return *any_;
    any_ = automaton_.add_rule();
    const int32_t begin = any_->begin, end = any_->end;
    for (const char* type : {"object", "array", "string", "number", "boolean", "null"})
      automaton_.add_empty(typed(kAny, "#", type, begin), end);
    return *any_;
  }

 private:
  template <typename... Args>
  [[noreturn]] static void refuse(fmt::format_string<Args...> format, Args&&... args) {
    throw ArgumentError(kSchemaWhere, fmt::format(format, std::forward<Args>(args)...));
  }

  static void check_nesting(const Schema& part, int depth) {
    if (depth > kMostSchemaNesting) refuse("a schema must nest at most {} deep, got more", kMostSchemaNesting);
    if (!part.is_structured()) return;
    for (const Schema& each : part) check_nesting(each, depth + 1);
  }

  ByteAutomaton::Rule space_rule() {
    constexpr int kMostIndent = 20;
    const ByteAutomaton::Rule rule = automaton_.add_rule();
    automaton_.add_empty(rule.begin, rule.end);
    automaton_.add_bytes(rule.begin, ' ', ' ', rule.end);
    int32_t at = automaton_.add_text(rule.begin, "\n");
    automaton_.add_empty(at, rule.end);
    for (int i = 0; i < kMostIndent; ++i) {
      const int32_t next = i + 1 < kMostIndent ? automaton_.add_state() : rule.end;
      for (const uint8_t blank : {' ', '\t'}) automaton_.add_bytes(at, blank, blank, next);
      if (next != rule.end) automaton_.add_empty(next, rule.end);
      at = next;
    }
    return rule;
  }

  // All functions below add the allowed texts from a state on, and return the state after them.
  // tag: a property that objects must have; "": none.
  int32_t value(const Schema& schema, const std::string& where, int32_t from, const std::string& tag = "") {
    if (schema.is_boolean())
      return schema.get<bool>() ? automaton_.called(from, any_value()) : automaton_.add_state();  // false: none
    if (!schema.is_object()) refuse("{} must be an object or a boolean, got {}", where, io::shown(schema));
    check_keywords(schema, where);
    const bool adds_tag = !tag.empty() && schema.contains("properties") && schema["properties"].contains(tag) &&
                          schema.value("required", Schema::array()).is_array();
    if (!adds_tag) return described(schema, where, from, tag);
    Schema tagged = schema;
    tagged["required"].push_back(tag);
    return described(tagged, where, from, tag);
  }

  int32_t described(const Schema& schema, const std::string& where, int32_t from, const std::string& tag) {
    for (const char* name : {"$ref", "anyOf", "oneOf", "allOf"}) {
      if (!schema.contains(name)) continue;
      check_alone(schema, where, name);
      if (std::string_view(name) == "$ref") return reference(schema[name], where, from, tag);
      return combined(schema[name], where + "/" + name, name, from);
    }
    const std::vector<std::string> types = types_of(schema, where);
    if (schema.contains("const"))
      return literals(schema, where, "const", Schema::array({schema["const"]}), types, from);
    if (schema.contains("enum")) {
      if (!schema["enum"].is_array()) refuse("{}/enum must be a list, got {}", where, io::shown(schema["enum"]));
      return literals(schema, where, "enum", schema["enum"], types, from);
    }
    if (types.empty()) return automaton_.called(from, any_value());
    const int32_t to = automaton_.add_state();
    for (const std::string& type : types) automaton_.add_empty(typed(schema, where, type, from), to);
    return to;
  }

  void check_keywords(const Schema& schema, const std::string& where) const {
    for (const auto& [key, given] : schema.items()) {
      if (kAnnotations.contains(key) || key.starts_with("x-")) continue;
      if (!kKeywords.contains(key)) {
        refuse("{} must have keywords that are computed (docs/generation.md), got {}", where, io::printable(key));
      }
    }
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != false)
      refuse("{}/uniqueItems must be false, got {}", where, io::shown(schema["uniqueItems"]));
  }

  // Combining this keyword with others is not supported.
  void check_alone(const Schema& schema, const std::string& where, std::string_view name) const {
    for (const auto& [key, given] : schema.items()) {
      const bool is_needed = key == name || kAnnotations.contains(key) || key.starts_with("x-");
      if (!is_needed) refuse("{} must have {} without other keywords, got {}", where, name, io::printable(key));
    }
  }

  std::vector<std::string> types_of(const Schema& schema, const std::string& where) const {
    static const std::set<std::string> kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};
    std::vector<std::string> types;
    if (!schema.contains("type")) {
      for (const auto& [key, given] : schema.items()) {
        const auto keyword = kKeywords.find(key);
        if (keyword != kKeywords.end() && *keyword->second != '\0' && std::ranges::count(types, keyword->second) == 0)
          types.emplace_back(keyword->second);
      }
      return types;
    }
    const Schema list = schema["type"].is_array() ? schema["type"] : Schema::array({schema["type"]});
    for (const Schema& type : list) {
      if (!type.is_string() || !kTypes.contains(type.get<std::string>()))
        refuse("{}/type must be one of JSON's types, got {}", where, io::shown(type));
      types.push_back(type.get<std::string>());
    }
    if (types.empty()) refuse("{}/type must have a type, got []", where);
    return types;
  }

  int32_t reference(const Schema& given, const std::string& where, int32_t from, const std::string& tag) {
    if (!given.is_string() || !given.get<std::string>().starts_with('#')) {
      refuse("{}/$ref must be within the schema, as #/$defs/name, got {}", where, io::shown(given));
    }
    const auto pointer = given.get<std::string>();
    const auto [known, is_new] = references_.try_emplace({pointer, tag});
    if (is_new) {
      known->second = automaton_.add_rule();
      open_.emplace_back(*known);
      static_cast<void>(target_of(pointer));
    }
    return automaton_.called(from, known->second);
  }

  // A reference is a URI whose fragment is a JSON pointer: RFC 6901, section 6.
  const Schema& target_of(const std::string& reference) const {
    try {
      return root_.at(
          Schema::json_pointer(io::percent_decoded(reference.substr(std::min<size_t>(1, reference.size())))));
    } catch (const Schema::exception&) {
      refuse("$ref must name a part of the schema, got {}", io::printable(reference));
    }
  }

  int32_t combined(const Schema& list, const std::string& where, std::string_view name, int32_t from) {
    if (!list.is_array() || list.empty()) refuse("{} must be a list of schemas, got {}", where, io::shown(list));
    if (name == "allOf" && list.size() > 1) refuse("{} must have one schema, got {}", where, list.size());
    const std::string tag = name == "oneOf" && list.size() > 1 ? tag_of(list, where) : "";
    const int32_t to = automaton_.add_state();
    for (size_t i = 0; i < list.size(); ++i)
      automaton_.add_empty(value(list[i], fmt::format("{}/{}", where, i), from, tag), to);
    return to;
  }

  // The schemas of oneOf do not share a value if their types differ. Several objects must differ in the constants of a
  // property, which every object must then have. Returns this property; "" for fewer than two objects.
  std::string tag_of(const Schema& list, const std::string& where) const {
    std::set<std::string> seen;
    std::vector<const Schema*> objects;
    bool is_disjoint = true;
    for (const Schema& each : list) {
      const bool is_reference = each.is_object() && each.contains("$ref") && each["$ref"].is_string();
      const Schema& schema = is_reference ? target_of(each["$ref"].get<std::string>()) : each;
      std::vector<std::string> types;
      if (schema.is_object()) types = types_of(schema, where);
      if (types == std::vector<std::string>{"object"}) {
        objects.push_back(&schema);
        continue;
      }
      is_disjoint = is_disjoint && !types.empty();
      for (const std::string& type : types)
        is_disjoint = seen.insert(type == "integer" ? "number" : type).second && is_disjoint;
    }
    if (!is_disjoint || (!objects.empty() && seen.contains("object")))
      refuse("{} must have schemas of different types, got others (anyOf allows the same texts)", where);
    if (objects.size() < 2) return "";
    const Schema properties = objects[0]->value("properties", Schema::object());
    for (const auto& [name, property] : properties.items()) {
      if (tells_apart(objects, name)) return name;
    }
    refuse("{} must have objects with different constants of a property, got others (anyOf allows the same texts)",
           where);
  }

  static bool tells_apart(const std::vector<const Schema*>& objects, const std::string& name) {
    std::set<nlohmann::json> seen;  // 1 and 1.0 are equal, and so are objects in any order
    return std::ranges::all_of(objects, [&](const Schema* object) {
      const Schema properties = object->value("properties", Schema());
      const Schema property = properties.is_object() ? properties.value(name, Schema()) : Schema();
      if (!property.is_object()) return false;
      const Schema constants =
          property.contains("const") ? Schema::array({property["const"]}) : property.value("enum", Schema::array());
      return !constants.empty() && std::ranges::all_of(constants, [&](const Schema& constant) {
        return seen.insert(nlohmann::json(constant)).second;
      });
    });
  }

  int32_t literals(const Schema& schema, const std::string& where, const char* name, const Schema& values,
                   const std::vector<std::string>& types, int32_t from) {
    for (const auto& [key, given] : schema.items()) {
      if (key != name && key != "type" && kKeywords.contains(key))
        refuse("{} must have {} without other keywords but type, got {}", where, name, io::printable(key));
    }
    const int32_t to = automaton_.add_state();
    std::map<std::pair<int32_t, char>, int32_t> next;  // common beginnings once
    for (const Schema& each : values) {
      if (schema.contains("type") && std::ranges::none_of(types, [&](const auto& type) { return is_of(each, type); }))
        continue;
      int32_t at = from;
      for (const char byte : each.dump(-1, ' ', false, Schema::error_handler_t::replace)) {
        const auto [known, is_new] = next.try_emplace({at, byte}, -1);
        if (is_new) known->second = automaton_.add_text(at, std::string_view(&byte, 1));
        at = known->second;
      }
      automaton_.add_empty(at, to);
    }
    return to;
  }

  static bool is_of(const Schema& value, const std::string& type) {
    if (type == "integer")
      return value.is_number_integer() || (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    if (type == "null") return value.is_null();
    return value.is_number() ? type == "number" : type == value.type_name();
  }

  int32_t typed(const Schema& schema, const std::string& where, std::string_view type, int32_t from) {
    if (type == "object") return object(schema, where, from);
    if (type == "array") return array(schema, where, from);
    if (type == "string") return string(schema, where, from);
    if (type == "null") return automaton_.add_text(from, "null");
    if (type == "number" || type == "integer") return number(schema, where, type, from);
    const int32_t to = automaton_.add_state();
    for (const char* word : {"true", "false"}) automaton_.add_empty(automaton_.add_text(from, word), to);
    return to;
  }

  std::optional<NumberBound> bound(const Schema& schema, const std::string& where, const char* name, bool is_strict) {
    if (!schema.contains(name)) return std::nullopt;
    if (!schema[name].is_number()) refuse("{}/{} must be a number, got {}", where, name, io::shown(schema[name]));
    return number_bound(schema[name].dump(), is_strict, where + "/" + name);
  }

  int32_t number(const Schema& schema, const std::string& where, std::string_view type, int32_t from) {
    const auto limit = [&](const char* name, const char* strict_name) {
      const auto given = bound(schema, where, name, false), strict = bound(schema, where, strict_name, true);
      if (given && strict) refuse("{} must have {} or {}, got both", where, name, strict_name);
      return given ? given : strict;
    };
    const auto low = limit("minimum", "exclusiveMinimum"), high = limit("maximum", "exclusiveMaximum");
    const auto kind = type == "integer" ? NumberKind::kInteger : NumberKind::kNumber;
    if (low || high) return add_number(automaton_, kind, low, high, from);
    std::optional<ByteAutomaton::Rule>& rule = kind == NumberKind::kInteger ? integer_ : number_;
    if (!rule) {
      rule = automaton_.add_rule();
      automaton_.add_empty(add_number(automaton_, kind, {}, {}, rule->begin), rule->end);
    }
    return automaton_.called(from, *rule);
  }

  // A count that a keyword gives.
  static int64_t count_in(const Schema& schema, const std::string& where, const char* name, int64_t fallback) {
    constexpr int64_t kMost = 1'000'000;
    if (!schema.contains(name)) return fallback;
    const Schema& given = schema[name];
    const double count = given.is_number() ? given.get<double>() : -1;
    if (!(count >= 0) || count != static_cast<double>(static_cast<int64_t>(std::min(count, 1e15))))
      refuse("{}/{} must be an integer of at least 0, got {}", where, name, io::shown(given));
    if (count > kMost) refuse("{}/{} must be at most {}, got {}", where, name, kMost, io::shown(given));
    return static_cast<int64_t>(count);
  }

  int32_t string(const Schema& schema, const std::string& where, int32_t from) {
    int32_t at = automaton_.add_text(from, "\"");
    const int64_t least = count_in(schema, where, "minLength", 0), most = count_in(schema, where, "maxLength", -1);
    for (const char* name : {"pattern", "format"}) {
      if (!schema.contains(name)) continue;
      const std::string place = where + "/" + name;
      if (!schema[name].is_string()) refuse("{} must be a text, got {}", place, io::shown(schema[name]));
      if (least > 0 || most >= 0) refuse("{} must be without minLength and maxLength, got both", place);
      if (schema.contains("pattern") && schema.contains("format"))
        refuse("{} must have pattern or format, got both", where);
      auto text = schema[name].get<std::string>();
      if (std::string_view(name) == "format") {
        const auto known = kFormats.find(text);
        if (known == kFormats.end()) {
          refuse("{} must be date, time, date-time, uuid, ipv4 or email, got {}", place, io::printable(text));
        }
        text = known->second;
      }
      return automaton_.add_text(add_pattern(automaton_, text, place, at), "\"");
    }
    const int32_t end = automaton_.add_state();
    for (int64_t i = 0; i < least; ++i) at = automaton_.called(at, character_);
    automaton_.add_empty(at, end);
    if (most < 0) {
      const int32_t loop = automaton_.add_state();
      automaton_.add_empty(at, loop);
      automaton_.add_call(loop, character_, loop);
      automaton_.add_empty(loop, end);
    }
    if (most >= 0 && most < least) return automaton_.add_state();  // none
    for (int64_t i = least; i < most; ++i) {
      at = automaton_.called(at, character_);
      automaton_.add_empty(at, end);
    }
    return automaton_.add_text(end, "\"");
  }

  int32_t comma(int32_t from) { return automaton_.called(automaton_.add_text(from, ","), space_); }

  int32_t array(const Schema& schema, const std::string& where, int32_t from) {
    const int64_t least = count_in(schema, where, "minItems", 0), most = count_in(schema, where, "maxItems", -1);
    static const Schema kAnything = true, kNone = Schema::array();
    const Schema& items = schema.contains("items") ? schema["items"] : kAnything;
    const Schema& first = schema.contains("prefixItems") ? schema["prefixItems"] : kNone;
    if (!first.is_array()) refuse("{}/prefixItems must be a list of schemas, got {}", where, io::shown(first));
    const ByteAutomaton::Rule item = automaton_.add_rule();
    automaton_.add_empty(value(items, where + "/items", item.begin), item.end);
    const int32_t end = automaton_.add_state();
    int32_t at = automaton_.called(automaton_.add_text(from, "["), space_);
    const int64_t fixed = std::max(least, std::ssize(first));
    for (int64_t i = 0;; ++i) {
      if (i >= least) automaton_.add_empty(at, end);
      if (most >= 0 && i >= most) break;
      const bool is_last = most < 0 && i >= fixed;
      int32_t next = i == 0 ? at : comma(at);
      if (i < std::ssize(first)) {
        next = value(first[static_cast<size_t>(i)], fmt::format("{}/prefixItems/{}", where, i), next);
      } else {
        next = automaton_.called(next, item);
      }
      if (is_last) {
        automaton_.add_call(comma(next), item, next);
        automaton_.add_empty(next, end);
        break;
      }
      at = next;
    }
    if (most >= 0 && most < least) return automaton_.add_state();  // none
    return automaton_.add_text(automaton_.called(end, space_), "]");
  }

  struct Property {
    std::string name;
    const Schema* schema;
    std::string where;
    bool is_required;
  };

  int32_t object(const Schema& schema, const std::string& where, int32_t from) {
    static const Schema kNone = Schema::object(), kAnything = true, kNothing = false;
    const Schema& given = schema.contains("properties") ? schema["properties"] : kNone;
    if (!given.is_object()) refuse("{}/properties must be an object, got {}", where, io::shown(given));
    const Schema& others = schema.contains("additionalProperties") ? schema["additionalProperties"]
                           : given.empty()                         ? kAnything
                                                                   : kNothing;
    std::vector<Property> properties;
    for (const auto& [name, each] : given.items())
      properties.push_back({name, &each, fmt::format("{}/properties/{}", where, name), false});
    require(schema, where, schema.contains("additionalProperties") ? others : kAnything, properties);
    const int32_t end = automaton_.add_state();
    int32_t none = automaton_.called(automaton_.add_text(from, "{"), space_);  // no property yet
    int32_t some = automaton_.add_state();
    for (const Property& each : properties) {
      const int32_t begin = automaton_.add_state(), after = automaton_.add_state();
      automaton_.add_empty(none, begin);
      automaton_.add_empty(comma(some), begin);
      const int32_t colon =
          automaton_.add_text(begin, Schema(each.name).dump(-1, ' ', false, Schema::error_handler_t::replace) + ":");
      automaton_.add_empty(value(*each.schema, each.where, automaton_.called(colon, space_)), after);
      const int32_t none_after = automaton_.add_state();
      if (!each.is_required) {
        automaton_.add_empty(none, none_after);
        automaton_.add_empty(some, after);
      }
      none = none_after;
      some = after;
    }
    add_others(others, where, properties, none, some);
    for (const int32_t at : {none, some}) automaton_.add_empty(at, end);
    return automaton_.add_text(automaton_.called(end, space_), "}");
  }

  // Marks the required properties, and adds the required properties that `properties` lacks, with the schema `others`.
  void require(const Schema& schema, const std::string& where, const Schema& others,
               std::vector<Property>& properties) const {
    if (!schema.contains("required")) return;
    const Schema& required = schema["required"];
    if (!required.is_array()) refuse("{}/required must be a list of names, got {}", where, io::shown(required));
    for (const Schema& name : required) {
      if (!name.is_string()) refuse("{}/required must have names, got {}", where, io::shown(name));
      const auto known = std::ranges::find(properties, name.get<std::string>(), &Property::name);
      if (known != properties.end()) {
        known->is_required = true;
      } else {
        properties.push_back({name.get<std::string>(), &others, where + "/additionalProperties", true});
      }
    }
  }

  void add_others(const Schema& others, const std::string& where, const std::vector<Property>& properties, int32_t none,
                  int32_t some) {
    if (others.is_boolean() && !others.get<bool>()) return;
    const int32_t begin = automaton_.add_state(), key = automaton_.add_text(begin, "\""), end = automaton_.add_state();
    automaton_.add_empty(none, begin);
    automaton_.add_empty(comma(some), begin);
    std::vector<std::string_view> names;
    for (const Property& each : properties) names.emplace_back(each.name);
    add_other_key(std::move(names), key, end);
    const int32_t colon = automaton_.called(automaton_.add_text(end, ":"), space_);
    automaton_.add_empty(value(others, where + "/additionalProperties", colon), some);
  }

  // A key without escapes, except `names`, and its closing quotation mark; without names, any key.
  void add_other_key(std::vector<std::string_view> names, int32_t from, int32_t to) {
    if (names.empty()) {
      automaton_.add_call(from, character_, from);
      return automaton_.add_bytes(from, '"', '"', to);
    }
    const int32_t rest = automaton_.add_state();
    const auto add_plain = [&](int32_t at, char32_t low, char32_t high, int32_t next) {
      constexpr std::pair<char32_t, char32_t> kPlain[] = {{' ', '!'}, {'#', '['}, {']', 0x10FFFF}};
      for (const auto& [first, last] : kPlain)
        automaton_.add_characters(at, std::max(low, first), std::min(high, last), next);
    };
    add_plain(rest, 0, 0x10FFFF, rest);
    automaton_.add_bytes(rest, '"', '"', to);
    const auto add_branches = [&](const auto& self, std::vector<std::string_view> ends, int32_t at) -> void {
      std::map<char32_t, std::vector<std::string_view>> by_first;
      bool is_name = false;
      for (std::string_view each : ends) {
        is_name = is_name || each.empty();
        if (each.empty()) continue;
        const char32_t code = take_utf8(each).code;
        by_first[code].push_back(each);
      }
      if (!is_name) automaton_.add_bytes(at, '"', '"', to);
      char32_t next = 0;
      for (auto& [code, below] : by_first) {
        if (code > next) add_plain(at, next, code - 1, rest);
        const int32_t child = automaton_.add_state();
        add_plain(at, code, code, child);
        self(self, std::move(below), child);
        next = code + 1;
      }
      add_plain(at, next, 0x10FFFF, rest);
    };
    add_branches(add_branches, std::move(names), from);
  }

  const Schema& root_;
  ByteAutomaton automaton_;
  ByteAutomaton::Rule space_{}, character_{};
  std::optional<ByteAutomaton::Rule> any_, integer_, number_;
  using Reference = std::pair<std::string, std::string>;  // and the tag
  std::map<Reference, ByteAutomaton::Rule> references_;
  std::vector<std::pair<Reference, ByteAutomaton::Rule>> open_;
};

}  // namespace

JsonSchema::JsonSchema(const nlohmann::ordered_json& schema)
    : automaton_(std::make_shared<const ByteAutomaton>(SchemaReader(schema).read())) {}

JsonSchema JsonSchema::any_object() { return JsonSchema(Schema{{"type", "object"}}); }

bool JsonSchema::accepts(std::string_view text) const {
  AutomatonWalk walk(automaton_);
  int32_t state = AutomatonWalk::kBegin;
  for (const char byte : text) state = walk.next(state, static_cast<uint8_t>(byte));
  return walk.accepts(state);
}

}  // namespace rf::tasks
