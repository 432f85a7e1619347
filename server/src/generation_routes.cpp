// Continuations of prompts, and answers in chats, whole or as server-sent events.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "handlers.h"
#include "json_text.h"
#include "rf/engine/generator.h"
#include "rf/io/json_field.h"
#include "rf/tasks/json_schema.h"

namespace rf::server {

namespace {

using tasks::PromptForm;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostNewTokens = int64_t{1} << 20;

// An id as all templates take it: 9 letters and digits, different from call to call.
std::string unique_id() {
  static std::atomic<uint64_t> count =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  uint64_t rest = (count.fetch_add(1) + 1) * 0x9E3779B97F4A7C15U;
  rest ^= rest >> 31;
  std::string id;
  for (int i = 0; i < 9; ++i, rest /= 36) id += "0123456789abcdefghijklmnopqrstuvwxyz"[rest % 36];
  return id;
}

struct Generation {
  PromptForm form;
  std::string id = unique_id();
  std::vector<std::string> prompts;
  engine::GenerationOptions options;
  tasks::Stops stops;
  bool states_usage = false;  // in a last event
  std::shared_ptr<const tasks::JsonSchema> schema{};
  tasks::AnswerFormat answer{};  // of a chat

  tasks::ContinuationForm continuation() const {
    return {.prompt = form, .schema = schema, .specials = answer.specials()};
  }
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
  options.seed = static_cast<uint64_t>(fields.integer("seed", INT64_MIN, INT64_MAX).value_or(0));
  for (const char* name : {"presence_penalty", "frequency_penalty"}) fields.only(name, 0);
  fields.only("logit_bias", nlohmann::json::object());
  fields.only("n", 1);
  if (const nlohmann::json* const stop = fields.find("stop"); stop != nullptr && !stop->empty()) {
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

// That of response_format; nullptr: none. given: the body in its order, which is that of an object's properties.
std::shared_ptr<const tasks::JsonSchema> schema_of(const Fields& fields, const OrderedJson& given) {
  const nlohmann::json* const format = fields.find("response_format");
  if (format == nullptr) return nullptr;
  if (!format->is_object()) refuse_generation("response_format must be an object, got another value");
  if (!format->contains("type")) refuse_generation("response_format must have a type, got none");
  const std::string type = Fields(*format).one_of("type", {"text", "json_object", "json_schema"});
  if (type == "text") return nullptr;
  if (type == "json_object") return std::make_shared<const tasks::JsonSchema>(tasks::JsonSchema::any_object());
  const OrderedJson of_schema = given["response_format"].value("json_schema", OrderedJson());
  if (!of_schema.is_object() || !of_schema.contains("schema"))
    refuse_generation("response_format must have json_schema with a schema, got none");
  return std::make_shared<const tasks::JsonSchema>(of_schema["schema"]);
}

Generation chat_of(const Fields& fields, const std::string& body, const tasks::Continuer& continuer) {
  Generation generation = generation_of(fields, continuer, PromptForm::kChat);
  fields.only("logprobs", false);
  const OrderedJson given = OrderedJson::parse(body);  // in the order that templates write
  generation.schema = schema_of(fields, given);
  OrderedJson variables = given.value("chat_template_kwargs", OrderedJson::object());
  if (!variables.is_object()) refuse_generation("chat_template_kwargs must be an object, got another value");
  if (variables.contains("tools"))
    refuse_generation("chat_template_kwargs must be without tools, which are a field of the request, got tools");
  const std::string tool_choice = fields.one_of("tool_choice", {"auto", "none"});
  if (const nlohmann::json* const tools = fields.find("tools")) {
    const auto is_object = [](const nlohmann::json& tool) { return tool.is_object(); };
    if (!tools->is_array() || !std::ranges::all_of(*tools, is_object))
      refuse_generation("tools must be a list of objects, got another value");
    if (tool_choice == "auto") variables["tools"] = given["tools"];
  }
  static_cast<void>(fields.required("messages"));
  generation.prompts = {continuer.chat(given["messages"], variables)};
  generation.answer = continuer.answer_format(generation.prompts[0], variables.contains("tools"));
  const int64_t rest = continuer.room_after(generation.prompts[0]);
  if (rest < 1) {
    throw HttpError(http::status::payload_too_large,
                    fmt::format("a conversation must have fewer tokens than the model's {}, got {}",
                                continuer.max_length(), continuer.max_length() - rest));
  }
  const auto most = fields.integer("max_completion_tokens", 1, kMostNewTokens);
  generation.options.max_new_tokens =
      most ? *most : fields.integer("max_tokens", 1, kMostNewTokens).value_or(std::min(rest, kMostNewTokens));
  return generation;
}

const char* reason_of(const tasks::Continuation& continuation, bool has_calls) {
  return !continuation.stopped ? "length" : has_calls ? "tool_calls" : "stop";
}

std::string head(PromptForm form, bool is_part, const std::string& id, const std::string& model) {
  const bool is_chat = form == PromptForm::kChat;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(R"({{"id":"{}-{}","object":"{}","created":{},"model":{},"choices":[)",
                     is_chat ? "chatcmpl" : "cmpl", id,
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

// The fields of a part of an answer. first_call: the number of calls before.
std::string answer_fields(const tasks::AnswerReader::Part& part, size_t first_call) {
  std::string text;
  const auto add = [&text](const std::string& field) { text += (text.empty() ? "" : ",") + field; };
  if (!part.reasoning.empty()) add(R"("reasoning_content":)" + io::quoted_json(part.reasoning));
  if (!part.content.empty()) add(R"("content":)" + io::quoted_json(part.content));
  if (part.calls.empty()) return text;
  add(R"("tool_calls":)" + list_of(part.calls.size(), [&](size_t i, std::string& list) {
        list += fmt::format(R"({{"index":{},"id":"{}","type":"function","function":{{"name":{},"arguments":{}}}}})",
                            first_call + i, unique_id(), io::quoted_json(part.calls[i].name),
                            io::quoted_json(part.calls[i].arguments));
      }));
  return text;
}

// kept: tokens of the prompt that an earlier request had computed.
std::string usage_of(int64_t read, int64_t kept, int64_t added) {
  constexpr auto kUsage = R"("usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                          R"("prompt_tokens_details":{{"cached_tokens":{}}}}})";
  return fmt::format(kUsage, read, added, read + added, kept);
}

// A text before the first of the strings that stop it, which OpenAI's API leaves out. What may become one is held back.
class TextBeforeStop {
 public:
  explicit TextBeforeStop(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  std::string add(std::string_view part) {
    if (is_stopped_) return "";
    held_ += part;
    size_t end = held_.size();
    for (const std::string& stop : stops_) {
      const size_t found = held_.find(stop);
      is_stopped_ = is_stopped_ || found != std::string::npos;
      end = std::min(end, found);
    }
    if (!is_stopped_) {
      const auto may_stop = [&](size_t at) {
        const std::string_view rest = std::string_view(held_).substr(at);
        return std::ranges::any_of(stops_, [&](const std::string& stop) { return stop.starts_with(rest); });
      };
      for (end = 0; end < held_.size() && !may_stop(end);) ++end;
    }
    return std::exchange(held_, held_.substr(end)).substr(0, end);
  }
  std::string finish() { return is_stopped_ ? "" : std::exchange(held_, ""); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool is_stopped_ = false;
};

// A text on its way to a client.
struct TextStream {
  std::shared_ptr<const Models> models;  // the stream reads one of them
  const tasks::Continuer& continuer;
  std::string id, name;
  PromptForm form;
  bool states_usage;
  tasks::ContinuationStream parts;
  int64_t read;  // tokens of the prompt
  TextBeforeStop before_stop;
  tasks::AnswerReader answer;
  Work::Part place = Work::Part::kFirst;
  bool is_first = true, is_done = false;
  size_t calls = 0;

  // The fields of an event with a part of the text, or with what remains at its end; empty: nothing yet.
  std::string fields_of(const std::optional<std::string>& text) {
    const std::string shown = text ? before_stop.add(*text) : before_stop.finish();
    if (form == PromptForm::kText) return text && shown.empty() ? "" : R"("text":)" + io::quoted_json(shown);
    tasks::AnswerReader::Part part = answer.add(shown);
    if (!text) part.append(answer.finish());
    if (part.is_empty() && text) return "";
    std::string fields = answer_fields(part, calls);
    calls += part.calls.size();
    if (std::exchange(is_first, false)) fields = R"("role":"assistant")" + (fields.empty() ? "" : "," + fields);
    return R"("delta":{)" + fields + "}";
  }
  std::string event(const std::string& fields, const char* reason) const {
    return "data: " + head(form, true, id, name) + choice(0, fields, reason) + "]}\n\n";
  }
  std::string last_events(const std::string& fields) {
    const tasks::Continuation& result = parts.result();
    std::string last = event(fields, reason_of(result, calls > 0));
    if (states_usage) {
      last += "data: " + head(form, true, id, name) + "]," +
              usage_of(read, parts.kept_tokens(), std::ssize(result.ids)) + "}\n\n";
    }
    return last + "data: [DONE]\n\n";
  }
};

// One event for each part of the text; the generation goes on only while its client reads.
Reply stream(Service& service, const Call& call, const ServedModel& model, const Generation& generation) {
  const tasks::Continuer& continuer = model.continuer();
  const std::string& prompt = generation.prompts.front();
  tasks::ContinuationStream parts =
      continuer.stream(prompt, generation.options, generation.stops, generation.continuation());
  const int64_t read = parts.prompt_tokens();
  const auto state = std::make_shared<TextStream>(TextStream{.models = call.models,
                                                             .continuer = continuer,
                                                             .id = generation.id,
                                                             .name = model.name(),
                                                             .form = generation.form,
                                                             .states_usage = generation.states_usage,
                                                             .parts = std::move(parts),
                                                             .read = read,
                                                             .before_stop = TextBeforeStop(generation.stops.texts),
                                                             .answer = tasks::AnswerReader(generation.answer)});
  Reply reply{.type = "text/event-stream"};
  reply.next = [&service, state]() -> asio::awaitable<std::optional<std::string>> {
    if (state->is_done) co_return std::nullopt;
    std::optional<std::string> part;
    std::string fields;
    do {
      part.reset();
      if (!state->parts.is_done()) {
        const auto place = std::exchange(state->place, Work::Part::kNext);
        const int64_t tokens = place == Work::Part::kFirst ? state->read : 1;
        const bool goes_on = co_await service.work.step(&state->continuer, tokens, place, state->parts.generator());
        part = state->parts.part_after(goes_on);
      }
      fields = state->fields_of(part);
    } while (fields.empty());
    if (part) co_return state->event(fields, nullptr);
    state->is_done = true;
    co_return state->last_events(fields);
  };
  return reply;
}

// The fields of a whole text, and why it ended.
std::string whole_choice(const Generation& generation, size_t index, const tasks::Continuation& continuation) {
  TextBeforeStop before_stop(generation.stops.texts);
  const std::string text = before_stop.add(continuation.text) + before_stop.finish();
  if (generation.form == PromptForm::kText)
    return choice(index, R"("text":)" + io::quoted_json(text), reason_of(continuation, false));
  tasks::AnswerReader reader(generation.answer);
  tasks::AnswerReader::Part part = reader.add(text);
  part.append(reader.finish());
  std::string fields = answer_fields(part, 0);
  if (part.content.empty())
    fields += std::string(fields.empty() ? "" : ",") + R"("content":)" + (part.calls.empty() ? R"("")" : "null");
  return choice(index, R"("message":{"role":"assistant",)" + fields + "}", reason_of(continuation, reader.has_calls()));
}

Answer generate(Service& service, const Call& call, const ServedModel& model, const Generation& generation,
                bool is_streamed) {
  const PromptForm form = generation.form;
  if (is_streamed) {
    if (generation.prompts.size() > 1) refuse_generation("a streamed completion has one prompt, got several");
    co_return co_await service.work.in_pool([&] { return stream(service, call, model, generation); });
  }
  tasks::ContinuationRun run = co_await service.work.in_pool([&] {
    return model.continuer().begin(generation.prompts, generation.options, generation.stops, generation.continuation());
  });
  const int64_t read = run.prompt_tokens();
  const auto step = [&](int64_t tokens, Work::Part part) {
    return service.work.step(&model.continuer(), tokens, part, run.generator());
  };
  bool goes_on = co_await step(read, Work::Part::kFirst);
  while (goes_on) goes_on = co_await step(std::ssize(generation.prompts), Work::Part::kNext);
  const auto results = run.take();
  std::string body = head(form, false, generation.id, model.name());
  int64_t added = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0) body += ',';
    const tasks::Continuation& continuation = results[i].front();
    body += whole_choice(generation, i, continuation);
    added += std::ssize(continuation.ids);
  }
  body += "]," + usage_of(read, run.kept_tokens(), added) + "}";
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
