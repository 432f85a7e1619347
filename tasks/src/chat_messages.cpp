// Prepares messages for chat templates (chat_messages.h).
#include "chat_messages.h"

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "rf/text/chat_template.h"

namespace rf::tasks {

namespace {

using OrderedJson = nlohmann::ordered_json;

// Parses arguments of calls that are JSON text: templates write arguments as JSON, and would quote a text.
void read_arguments(OrderedJson& message) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return;
  for (OrderedJson& call : message["tool_calls"]) {
    const bool has_text = call.is_object() && call.contains("function") && call["function"].is_object() &&
                          call["function"].contains("arguments") && call["function"]["arguments"].is_string();
    if (!has_text) continue;
    OrderedJson& arguments = call["function"]["arguments"];
    auto object = OrderedJson::parse(arguments.get<std::string>(), nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) arguments = std::move(object);
  }
}

}  // namespace

OrderedJson messages_of(OrderedJson messages) {
  const auto refuse = [](const char* rule) { fail<ArgumentError>(kContinuationWhere, "{}", rule); };
  if (!messages.is_array() || messages.empty()) refuse("messages must be a list of at least one message");
  for (OrderedJson& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse("a message must be an object with a role, got another value");
    text::complete_message(message);
    read_arguments(message);
    if (!message.contains("content")) continue;
    OrderedJson& content = message["content"];
    if (content.is_array()) {
      std::string text;
      for (const OrderedJson& part : content) {
        if (!part.is_object() || !part.contains("text") || !part["text"].is_string())
          refuse("a part of a message must be a text, got another one");
        if (!text.empty()) text += '\n';
        text += part["text"].get_ref<const std::string&>();
      }
      content = text;
    } else if (!content.is_string()) {
      refuse("the content of a message must be a text or a list of texts, got another value");
    }
    if (!is_utf8(content.get_ref<const std::string&>()))
      refuse("the content of a message must be UTF-8, got other bytes");
  }
  return messages;
}

}  // namespace rf::tasks
