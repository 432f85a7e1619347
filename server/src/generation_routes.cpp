// Continuations of prompts, and answers in chats, whole or as server-sent events.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "handlers.h"
#include "rf/engine/generator.h"
#include "rf/io/json_field.h"

namespace rf::server {

namespace {

using tasks::PromptForm;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostNewTokens = int64_t{1} << 20;

struct Generation {
  PromptForm form;
  std::vector<std::string> prompts;
  engine::GenerationOptions options;
  tasks::Stops stops;
  bool states_usage = false;  // in a last event
};

[[noreturn]] void refuse_generation(const std::string& message) { throw HttpError(http::status::bad_request, message); }

// What both routes have.
Generation generation_of(const Fields& fields, const tasks::Continuer& continuer, PromptForm form) {
  Generation generation{.form = form, .prompts = {}, .options = {}, .stops = continuer.default_stops()};
  engine::GenerationOptions& options = generation.options;
  const double temperature = fields.number("temperature", 1, 0, 2);
  options.search = temperature == 0 ? engine::Search::kGreedy : engine::Search::kSample;
  if (temperature > 0) options.temperature = temperature;
  options.top_p = fields.number("top_p", 1, 1e-6, 1);
  options.top_k = fields.integer("top_k", 0, INT32_MAX).value_or(0);
  options.seed = static_cast<uint64_t>(fields.integer("seed", 0, INT64_MAX).value_or(0));
  for (const char* name : {"presence_penalty", "frequency_penalty"}) fields.only(name, 0);
  fields.only("logit_bias", nlohmann::json::object());
  fields.only("n", 1);
  if (fields.find("stop") != nullptr) {
    const tasks::Stops given = continuer.stops_of(fields.texts("stop"), "stop");
    generation.stops.ids.insert(generation.stops.ids.end(), given.ids.begin(), given.ids.end());
    generation.stops.texts = given.texts;
  }
  if (const nlohmann::json* streamed = fields.find("stream_options")) {
    if (!streamed->is_object()) refuse_generation("stream_options must be an object, got another value");
    generation.states_usage = Fields(*streamed).flag("include_usage", false);
  }
  return generation;
}

Generation completion_of(const Fields& fields, const tasks::Continuer& continuer) {
  Generation generation = generation_of(fields, continuer, PromptForm::kText);
  generation.prompts = fields.texts("prompt");
  constexpr int64_t kDefaultTokens = 16;  // OpenAI's
  generation.options.max_new_tokens = fields.integer("max_tokens", 1, kMostNewTokens).value_or(kDefaultTokens);
  fields.only("best_of", 1);
  fields.only("echo", false);
  fields.only("suffix", "");
  fields.only("logprobs", 0);
  return generation;
}

// The messages as templates read them: a list of parts is their text.
OrderedJson messages_of(OrderedJson messages) {
  if (!messages.is_array() || messages.empty()) refuse_generation("messages must be a list of at least one message");
  for (OrderedJson& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse_generation("a message must be an object with a role, got another value");
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) {
      message["content"] = "";
    } else if (content->is_array()) {
      std::string text;
      for (const OrderedJson& part : *content) {
        if (!part.is_object() || !part.contains("text") || !part["text"].is_string())
          refuse_generation("a part of a message must be a text, got another one");
        text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
      }
      *content = text;
    } else if (!content->is_string()) {
      refuse_generation("the content of a message must be a text or a list of texts, got another value");
    }
  }
  return messages;
}

Generation chat_of(const Fields& fields, const std::string& body, const tasks::Continuer& continuer) {
  Generation generation = generation_of(fields, continuer, PromptForm::kChat);
  fields.only("logprobs", false);
  fields.only("response_format", {{"type", "text"}});
  const OrderedJson given = OrderedJson::parse(body);  // in the order that templates write
  OrderedJson variables = given.value("chat_template_kwargs", OrderedJson::object());
  if (!variables.is_object()) refuse_generation("chat_template_kwargs must be an object, got another value");
  if (fields.find("tools") != nullptr && fields.one_of("tool_choice", {"auto", "none"}) == "auto")
    variables["tools"] = given["tools"];
  static_cast<void>(fields.required("messages"));
  generation.prompts = {continuer.chat(messages_of(given["messages"]), variables)};
  const auto most = fields.integer("max_completion_tokens", 1, kMostNewTokens);
  text::Encoding prompt;
  if (!most && fields.find("max_tokens") == nullptr) continuer.tokenizer().encode(generation.prompts[0], prompt);
  const int64_t rest = std::max<int64_t>(1, continuer.max_length() - std::ssize(prompt.ids));
  generation.options.max_new_tokens =
      most ? *most : fields.integer("max_tokens", 1, kMostNewTokens).value_or(std::min(rest, kMostNewTokens));
  return generation;
}

const char* reason_of(const tasks::Continuation& continuation) { return continuation.stopped ? "stop" : "length"; }

std::string head(PromptForm form, bool is_part, const std::string& model) {
  const bool is_chat = form == PromptForm::kChat;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":{},"choices":[)",
                     is_chat ? "chatcmpl-0" : "cmpl-0",
                     !is_chat  ? "text_completion"
                     : is_part ? "chat.completion.chunk"
                               : "chat.completion",
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), io::quoted_json(model));
}

// content: the field or fields that have the text.
std::string choice(size_t index, const std::string& content, const char* reason) {
  const std::string quoted = reason == nullptr ? "null" : fmt::format("\"{}\"", reason);
  return fmt::format(R"({{{},"index":{},"logprobs":null,"finish_reason":{}}})", content, index, quoted);
}

std::string part_of(PromptForm form, const std::optional<std::string>& text, bool is_first) {
  if (form == PromptForm::kText) return R"("text":)" + io::quoted_json(text.value_or(""));
  if (!text) return R"("delta":{})";
  return fmt::format(R"("delta":{{{}"content":{}}})", is_first ? R"("role":"assistant",)" : "", io::quoted_json(*text));
}

std::string usage_of(int64_t read, int64_t added) {
  return fmt::format(R"("usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}})", read, added,
                     read + added);
}

// One event for each part of the text; the generation goes on only while its client reads.
Reply stream(Service& service, const Call& call, const ServedModel& model, const Generation& generation) {
  struct State {
    std::shared_ptr<const Models> models;  // the stream reads one of them
    const tasks::Continuer& continuer;
    std::string name;
    PromptForm form;
    bool states_usage;
    tasks::ContinuationStream parts;
    int64_t read;  // tokens of the prompt
    Work::Part place = Work::Part::kFirst;
    bool is_first = true, is_done = false;
  };
  const tasks::Continuer& continuer = model.continuer();
  const std::string& prompt = generation.prompts.front();
  tasks::ContinuationStream parts = continuer.stream(prompt, generation.options, generation.stops, generation.form);
  const int64_t read = parts.prompt_tokens();
  const auto state = std::make_shared<State>(State{.models = call.models,
                                                   .continuer = continuer,
                                                   .name = model.name(),
                                                   .form = generation.form,
                                                   .states_usage = generation.states_usage,
                                                   .parts = std::move(parts),
                                                   .read = read});
  Reply reply{.type = "text/event-stream"};
  reply.next = [&service, state]() -> asio::awaitable<std::optional<std::string>> {
    if (state->is_done) co_return std::nullopt;
    std::optional<std::string> part;
    do {
      const auto place = std::exchange(state->place, Work::Part::kNext);
      const int64_t tokens = place == Work::Part::kFirst ? state->read : 1;
      co_await service.work.in_queue(&state->continuer, tokens, place, [&] { part = state->parts.step(); });
    } while (part && part->empty());
    const std::string begin = "data: " + head(state->form, true, state->name);
    const std::string content = part_of(state->form, part, std::exchange(state->is_first, false));
    if (part) co_return begin + choice(0, content, nullptr) + "]}\n\n";
    state->is_done = true;
    const tasks::Continuation& result = state->parts.result();
    std::string last = begin + choice(0, content, reason_of(result)) + "]}\n\n";
    if (state->states_usage) last += begin + "]," + usage_of(state->read, std::ssize(result.ids)) + "}\n\n";
    co_return last + "data: [DONE]\n\n";
  };
  return reply;
}

Answer generate(Service& service, const Call& call, const ServedModel& model, const Generation& generation,
                bool is_streamed) {
  const PromptForm form = generation.form;
  if (is_streamed) {
    if (generation.prompts.size() > 1) refuse_generation("a streamed completion has one prompt, got several");
    co_return co_await service.work.in_pool([&] { return stream(service, call, model, generation); });
  }
  tasks::ContinuationRun run = co_await service.work.in_pool([&] {
    return model.continuer().begin(generation.prompts, generation.options, generation.stops,
                                   tasks::EmptyPrompts::kRefused, form);
  });
  const int64_t read = run.prompt_tokens();
  bool goes_on = true;
  const auto step = [&] { goes_on = run.step(); };
  co_await service.work.in_queue(&model.continuer(), read, Work::Part::kFirst, step);
  while (goes_on)
    co_await service.work.in_queue(&model.continuer(), std::ssize(generation.prompts), Work::Part::kNext, step);
  const auto results = run.take();
  std::string body = head(form, false, model.name());
  int64_t added = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0) body += ',';
    const tasks::Continuation& continuation = results[i].front();
    const std::string text = io::quoted_json(continuation.text);
    const bool is_chat = form == PromptForm::kChat;
    const std::string content =
        is_chat ? fmt::format(R"("message":{{"role":"assistant","content":{}}})", text) : R"("text":)" + text;
    body += choice(i, content, reason_of(continuation));
    added += std::ssize(continuation.ids);
  }
  body += "]," + usage_of(read, added) + "}";
  co_return Reply{.body = std::move(body), .tokens = read + added};
}

}  // namespace

Answer completions(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const Generation generation = completion_of(fields, model.continuer());
  co_return co_await generate(service, call, model, generation, fields.flag("stream", false));
}

Answer chat_completions(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const Generation generation =
      co_await service.work.in_pool([&] { return chat_of(fields, call.request.body(), model.continuer()); });
  co_return co_await generate(service, call, model, generation, fields.flag("stream", false));
}

}  // namespace rf::server
