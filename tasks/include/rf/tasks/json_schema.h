// JSON schemas (https://json-schema.org, draft 2020-12) as grammars: which texts a model may write.
//
// A text is one JSON value that the schema allows, in a restricted form. The properties of an object come in the order
// of the schema, each once; others only if additionalProperties allows them. White space is a space, or a line break
// and up to 20 spaces or tabs.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace rf::tasks {

class ByteAutomaton;  // tasks/src/byte_automaton.h

class JsonSchema {
 public:
  // Throws ArgumentError for a value that is not a schema, for unsupported keywords, which it names, and for a schema
  // that does not allow any text.
  explicit JsonSchema(const nlohmann::ordered_json& schema);
  // Any object.
  static JsonSchema any_object();

  bool accepts(std::string_view text) const;
  const std::shared_ptr<const ByteAutomaton>& automaton() const { return automaton_; }

 private:
  std::shared_ptr<const ByteAutomaton> automaton_;
};

}  // namespace rf::tasks
