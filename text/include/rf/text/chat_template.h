// Chat templates: write a conversation as the prompt that a model was trained on. A template is a program in Jinja
// (https://jinja.palletsprojects.com), which a model's directory has in chat_template.jinja or in
// tokenizer_config.json; the result equals `transformers`' apply_chat_template, which removes the first newline after a
// block and the spaces before one (trim_blocks, lstrip_blocks).
//
// Supports for, if, set, macro, call, filter, generation, break and continue; the operators; and the filters, tests,
// methods and functions that published templates use. Others (include, import, extends, unpacking) are refused when the
// template is read, or when they are reached. A template can only read its variables: it cannot access files or the
// environment, and its work, its output and its recursion are bounded.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace rf::text {

class Tokenizer;
namespace chat {
struct Template;
}

class ChatTemplate {
 public:
  // source: the template, UTF-8; where: its file, for messages. Throws Error with the line of invalid or unsupported
  // Jinja.
  ChatTemplate(std::string_view source, std::string where);

  // variables: an object such as {"messages": [{"role": "user", "content": ".."}], "add_generation_prompt": true}; the
  // order of its keys is the order in which a template sees them. Throws Error for what the template refuses by
  // raise_exception, for an operation between wrong types, and beyond the bounds.
  std::string render(const nlohmann::ordered_json& variables) const;
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::string where_;
  std::shared_ptr<const chat::Template> template_;
};

inline constexpr const char* kDefaultChatTemplate = "default";

// The template of a model directory, chat_template.jinja or the key chat_template of tokenizer_config.json, or of a
// GGUF file, tokenizer.chat_template. nullopt: the model lacks a template of this name. Other names are in a list in
// tokenizer_config.json, or name files in additional_chat_templates.
std::optional<ChatTemplate> read_chat_template(const std::string& model,
                                               const std::string& name = kDefaultChatTemplate);

// Changes a message, an object, as transformers does before rendering: removes null values, and stores the reasoning
// under each of its names.
void complete_message(nlohmann::ordered_json& message);

enum class GenerationPrompt { kNone, kAdded };

// The variables of a template, to which a caller may add: the messages, a list of {"role", "content"}; tools and
// documents, which are null; and the tokenizer's special tokens by their names, such as bos_token.
nlohmann::ordered_json chat_variables(const Tokenizer& tokenizer, nlohmann::ordered_json messages,
                                      GenerationPrompt prompt);

}  // namespace rf::text
