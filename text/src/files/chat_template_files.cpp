// Finds the chat template of a model.
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "rf/io/files.h"
#include "rf/io/gguf.h"
#include "rf/io/printable.h"
#include "rf/text/chat_template.h"
#include "rf/text/tokenizer.h"

namespace rf::text {

namespace {

using nlohmann::json;

constexpr const char* kKey = "chat_template";

// One template, or a list of {"name", "template"}. Null: the file lacks a template of this name.
const json* named_template(const json& file, const std::string& name, const std::string& where) {
  const auto found = file.is_object() ? file.find(kKey) : file.end();
  if (found == file.end() || found->is_null()) return nullptr;
  const bool is_list = found->is_array();
  const json* source = is_list || name != kDefaultChatTemplate ? nullptr : &*found;
  for (const json& each : is_list ? *found : json::array()) {
    const bool is_named = each.is_object() && each.contains("name") && each.contains("template");
    if (!is_named) fail(where, "chat_template must be a list of name and template, got {}", io::shown(each));
    if (each["name"] == name) source = &each["template"];
  }
  if (source != nullptr && !source->is_string()) {
    fail(where, "chat_template must be a text, got {}", io::shown(*source));
  }
  return source;
}

}  // namespace

std::optional<ChatTemplate> read_chat_template(const std::string& model, const std::string& name) {
  const bool is_default = name == kDefaultChatTemplate, is_gguf = std::filesystem::is_regular_file(model);
  const std::string own =
      model + (is_default ? "/chat_template.jinja" : "/additional_chat_templates/" + name + ".jinja");
  if (!is_gguf && io::has_file(own)) return ChatTemplate(io::read_file(own), own);
  const std::string where = is_gguf ? model : model + "/tokenizer_config.json";
  json file;
  std::string asked = name;
  if (is_gguf) {
    const io::GgufFile gguf(model);
    const auto found = gguf.metadata().find(is_default ? "tokenizer.chat_template" : "tokenizer.chat_template." + name);
    if (found != gguf.metadata().end()) file[kKey] = *found;
    asked = kDefaultChatTemplate;
  } else if (io::has_file(where)) {
    file = io::read_json(where);
  }
  const json* source = named_template(file, asked, where);
  if (source == nullptr) return std::nullopt;
  return ChatTemplate(source->get<std::string>(), where);
}

void complete_message(nlohmann::ordered_json& message) {
  for (auto item = message.begin(); item != message.end();)
    item = item->is_null() ? message.erase(item) : std::next(item);
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!message.contains(name)) continue;
    const nlohmann::ordered_json reasoning = message[name];
    nlohmann::ordered_json named = {{"thinking", reasoning}};  // in front, as there
    named.update(message);
    named["reasoning_content"] = reasoning;
    message = std::move(named);
    return;
  }
}

nlohmann::ordered_json chat_variables(const Tokenizer& tokenizer, nlohmann::ordered_json messages,
                                      GenerationPrompt prompt) {
  nlohmann::ordered_json variables = {{"messages", std::move(messages)},
                                      {"tools", nullptr},
                                      {"documents", nullptr},
                                      {"add_generation_prompt", prompt == GenerationPrompt::kAdded}};
  for (const SpecialRole role : kSpecialRoles) {
    const int32_t id = id_of(tokenizer.vocabulary().special(), role);
    if (id >= 0) variables[std::string(config_key(role))] = tokenizer.vocabulary().token(id);
  }
  return variables;
}

}  // namespace rf::text
