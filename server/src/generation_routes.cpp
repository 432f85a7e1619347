// Continuations of prompts, and answers in chats, whole or as server-sent events.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <memory>
#include <utility>

#include "handlers.h"
#include "json_text.h"
#include "rf/engine/generator.h"
#include "rf/io/json_field.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
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
  std::string begun{};           // the part of an answer that the prompt has
  size_t choices = 1;            // for each prompt

  // The computed sequence of a choice: equal choices are computed once.
  size_t sequence_of(size_t choice) const { return choice * static_cast<size_t>(options.return_sequences) / choices; }
  bool has_log_probabilities() const { return options.best_tokens >= 0; }
  tasks::ContinuationForm continuation() const {
    return {.prompt = form, .schema = schema, .specials = answer.specials()};
  }
};

[[noreturn]] void refuse_generation(const std::string& message) { throw HttpError(http::status::bad_request, message); }

constexpr int64_t kMostChoices = 16, kMostBestTokens = 20;

std::vector<std::pair<int32_t, double>> logit_bias_of(const Fields& fields) {
  std::vector<std::pair<int32_t, double>> biases;
  const nlohmann::json* const given = fields.find("logit_bias");
  if (given == nullptr) return biases;
  if (!given->is_object()) refuse_generation("logit_bias must be an object, got another value");
  for (const auto& [text, value] : given->items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size() || !value.is_number())
      refuse_generation(fmt::format("logit_bias must have ids of tokens with numbers, got {}: {}", io::printable(text),
                                    io::shown(value)));
    biases.emplace_back(id, value.get<double>());
  }
  return biases;
}

// The fields that both routes share.
Generation generation_of(const Fields& fields, const tasks::Continuer& continuer, PromptForm form) {
  Generation generation{.form = form, .prompts = {}, .options = {}, .stops = continuer.default_stops()};
  engine::GenerationOptions& options = generation.options;
  const double temperature = fields.number("temperature", 1, 0, 2);
  options.search = temperature == 0 ? engine::Search::kGreedy : engine::Search::kSample;
  if (temperature > 0) options.temperature = temperature;
  options.top_p = fields.number("top_p", 1, 1e-6, 1);
  options.top_k = fields.integer("top_k", 0, INT32_MAX).value_or(0);
  options.seed = static_cast<uint64_t>(fields.integer("seed", INT64_MIN, INT64_MAX).value_or(0));
  options.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  options.presence_penalty = fields.number("presence_penalty", 0, -2, 2);
  options.frequency_penalty = fields.number("frequency_penalty", 0, -2, 2);
  options.logit_bias = logit_bias_of(fields);
  const int64_t choices = fields.integer("n", 1, kMostChoices).value_or(1);
  generation.choices = static_cast<size_t>(choices);
  options.return_sequences = options.search == engine::Search::kGreedy ? 1 : choices;
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
  generation.options.best_tokens = fields.integer("logprobs", 0, kMostBestTokens).value_or(-1);
  return generation;
}

// The schema of response_format; nullptr: none. given: the body in its order, which orders an object's properties.
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

// The tool that tool_choice names; nullopt: none.
std::optional<std::string> tool_name_of(const nlohmann::json& choice) {
  if (!choice.is_object()) return std::nullopt;
  const nlohmann::json& function = Fields(choice).required("function");
  if (!function.is_object()) refuse_generation("function must be an object, got another value");
  return Fields(function).text("name");
}

Generation chat_of(const Fields& fields, const std::string& body, const tasks::Continuer& continuer) {
  Generation generation = generation_of(fields, continuer, PromptForm::kChat);
  const auto best_tokens = fields.integer("top_logprobs", 0, kMostBestTokens);
  if (fields.flag("logprobs", false)) {
    generation.options.best_tokens = best_tokens.value_or(0);
  } else if (best_tokens) {
    refuse_generation("top_logprobs must be with logprobs, got it alone");
  }
  const OrderedJson given = OrderedJson::parse(body);  // in the order that templates write
  generation.schema = schema_of(fields, given);
  OrderedJson variables = given.value("chat_template_kwargs", OrderedJson::object());
  if (!variables.is_object()) refuse_generation("chat_template_kwargs must be an object, got another value");
  if (variables.contains("tools"))
    refuse_generation("chat_template_kwargs must be without tools, which are a field of the request, got tools");
  const nlohmann::json* const tools = fields.find("tools");
  const nlohmann::json* const choice = fields.find("tool_choice");
  const bool names_tool = choice != nullptr && choice->is_object();
  const std::string tool_choice = names_tool ? "named" : fields.one_of("tool_choice", {"auto", "none", "required"});
  if (tools != nullptr) {
    const auto is_object = [](const nlohmann::json& tool) { return tool.is_object(); };
    if (!tools->is_array() || !std::ranges::all_of(*tools, is_object))
      refuse_generation("tools must be a list of objects, got another value");
    if (tool_choice != "none") variables["tools"] = given["tools"];
  }
  static_cast<void>(fields.required("messages"));
  generation.prompts = {continuer.chat(given["messages"], variables)};
  generation.answer = continuer.answer_format(generation.prompts[0], variables.contains("tools"));
  if (names_tool || tool_choice == "required") {
    if (tools == nullptr) refuse_generation("tool_choice must be with tools, got none");
    const auto call = tasks::forced_call(generation.answer, given["tools"], tool_name_of(*choice));
    generation.begun = call.begin;
    generation.prompts[0] += call.begin;
    generation.schema = call.schema;
  }
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
std::string choice(size_t index, const std::string& content, const std::string& logprobs, const char* reason) {
  const std::string quoted = reason == nullptr ? "null" : fmt::format("\"{}\"", reason);
  return fmt::format(R"({{{},"index":{},"logprobs":{},"finish_reason":{}}})", content, index, logprobs, quoted);
}

// Bytes that are not UTF-8 are written in OpenAI's form. Ids beyond the vocabulary get an empty text.
OrderedJson token_json(const text::Tokenizer& tokenizer, const engine::TokenLogProbability& token) {
  std::string bytes;
  if (token.id < tokenizer.vocabulary().size())
    bytes = tokenizer.bytes_of(token.id).value_or(tokenizer.vocabulary().token(token.id));
  std::string text = is_utf8(bytes) ? bytes : "bytes:";
  OrderedJson numbers = OrderedJson::array();
  for (const char each : bytes) numbers.push_back(static_cast<uint8_t>(each));
  if (!is_utf8(bytes)) {
    for (const int number : numbers) text += fmt::format("\\x{:02x}", number);
  }
  return {{"token", text}, {"logprob", token.log_probability}, {"bytes", numbers}};
}

// The field logprobs of a choice.
std::string logprobs_of(const Generation& generation, const text::Tokenizer& tokenizer,
                        std::span<const tasks::ContinuationToken> tokens) {
  if (!generation.has_log_probabilities()) return "null";
  const bool is_chat = generation.form == PromptForm::kChat;
  OrderedJson all = is_chat ? OrderedJson{{"content", OrderedJson::array()}, {"refusal", nullptr}} : OrderedJson();
  for (const auto& [token, offset] : tokens) {
    OrderedJson own = token_json(tokenizer, token), best = OrderedJson::array(), by_text = OrderedJson::object();
    for (const engine::TokenLogProbability& each : token.best) {
      best.push_back(token_json(tokenizer, each));
      by_text.emplace(best.back()["token"].get<std::string>(), each.log_probability);
    }
    if (is_chat) {
      own["top_logprobs"] = best;
      all["content"].push_back(own);
      continue;
    }
    by_text.emplace(own["token"].get<std::string>(), token.log_probability);
    all["tokens"].push_back(own["token"]);
    all["token_logprobs"].push_back(own["logprob"]);
    all["top_logprobs"].push_back(by_text);
    all["text_offset"].push_back(offset);
  }
  return all.dump();
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

// The text before the first stop string, which OpenAI's API leaves out. Holds back text that may begin a stop string.
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

// The choices of a prompt on their way to a client.
struct TextStream {
  struct Choice {
    TextBeforeStop before_stop;
    tasks::AnswerReader answer;
    bool is_first = true;
    size_t calls = 0;
    std::vector<tasks::ContinuationToken> tokens{};  // that no event has
  };

  std::shared_ptr<const Models> models;  // keeps the model of the stream alive
  const tasks::Continuer& continuer;
  std::string name;
  Generation generation;
  tasks::ContinuationStream parts;
  std::vector<Choice> choices{};
  Work::Part place = Work::Part::kFirst;

  std::string event(const std::string& rest) const {
    return "data: " + head(generation.form, true, generation.id, name) + rest + "}\n\n";
  }
  // The event for the part that a step has added to a choice; empty: nothing yet.
  std::string event_of(size_t index, const tasks::ContinuationStream::Part& added) {
    Choice& of = choices[index];
    of.tokens.insert(of.tokens.end(), added.tokens.begin(), added.tokens.end());
    const bool is_last = parts.is_done();
    std::string text = of.before_stop.add(added.text), fields;
    if (is_last) text += of.before_stop.finish();
    if (generation.form == PromptForm::kText) {
      if (text.empty() && !is_last) return "";
      fields = R"("text":)" + io::quoted_json(text);
    } else {
      tasks::AnswerReader::Part part = of.answer.add(text);
      if (is_last) part.append(of.answer.finish());
      if (part.is_empty() && !is_last) return "";
      fields = answer_fields(part, of.calls);
      of.calls += part.calls.size();
      if (std::exchange(of.is_first, false)) fields = R"("role":"assistant")" + (fields.empty() ? "" : "," + fields);
      fields = R"("delta":{)" + fields + "}";
    }
    const char* const reason =
        is_last ? reason_of(parts.results()[generation.sequence_of(index)], of.calls > 0) : nullptr;
    const std::string logprobs = logprobs_of(generation, continuer.tokenizer(), std::exchange(of.tokens, {}));
    return event(choice(index, fields, logprobs, reason) + "]");
  }
  std::string events(bool goes_on) {
    const auto added = parts.parts_after(goes_on);
    std::string all;
    for (size_t i = 0; i < choices.size(); ++i) all += event_of(i, added[generation.sequence_of(i)]);
    if (!parts.is_done()) return all;
    if (generation.states_usage) {
      int64_t tokens = 0;
      for (size_t i = 0; i < choices.size(); ++i) tokens += std::ssize(parts.results()[generation.sequence_of(i)].ids);
      all += event("]," + usage_of(parts.prompt_tokens(), parts.kept_tokens(), tokens));
    }
    return all + "data: [DONE]\n\n";
  }
};

tasks::AnswerReader reader_of(const Generation& generation) {
  tasks::AnswerReader reader(generation.answer);
  reader.begin(generation.begun);
  return reader;
}

// Sends an event for each part of the texts; the generation continues only while its client reads.
Reply stream(Service& service, const Call& call, const ServedModel& model, const Generation& generation) {
  const tasks::Continuer& continuer = model.continuer();
  tasks::ContinuationStream parts =
      continuer.stream(generation.prompts.front(), generation.options, generation.stops, generation.continuation());
  const auto state = std::make_shared<TextStream>(TextStream{.models = call.models,
                                                             .continuer = continuer,
                                                             .name = model.name(),
                                                             .generation = generation,
                                                             .parts = std::move(parts)});
  state->choices.assign(generation.choices, {TextBeforeStop(generation.stops.texts), reader_of(generation)});
  Reply reply{.type = "text/event-stream"};
  reply.next = [&service, state]() -> asio::awaitable<std::optional<std::string>> {
    std::string events;
    while (events.empty()) {
      if (state->parts.is_done()) co_return std::nullopt;
      const auto place = std::exchange(state->place, Work::Part::kNext);
      const int64_t tokens =
          place == Work::Part::kFirst ? state->parts.prompt_tokens() : state->generation.options.return_sequences;
      const bool goes_on = co_await service.work.step(&state->continuer, tokens, place, state->parts.generator());
      events = state->events(goes_on);
    }
    co_return events;
  };
  return reply;
}

// The fields of a whole text, and why it ended.
std::string whole_choice(const Generation& generation, const text::Tokenizer& tokenizer, size_t index,
                         const tasks::Continuation& continuation) {
  TextBeforeStop before_stop(generation.stops.texts);
  const std::string text = before_stop.add(continuation.text) + before_stop.finish();
  const std::string logprobs = logprobs_of(generation, tokenizer, continuation.new_tokens);
  if (generation.form == PromptForm::kText)
    return choice(index, R"("text":)" + io::quoted_json(text), logprobs, reason_of(continuation, false));
  tasks::AnswerReader reader = reader_of(generation);
  tasks::AnswerReader::Part part = reader.add(text);
  part.append(reader.finish());
  std::string fields = answer_fields(part, 0);
  if (part.content.empty())
    fields += std::string(fields.empty() ? "" : ",") + R"("content":)" + (part.calls.empty() ? R"("")" : "null");
  return choice(index, R"("message":{"role":"assistant",)" + fields + "}", logprobs,
                reason_of(continuation, reader.has_calls()));
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
  const int64_t growing = std::ssize(generation.prompts) * generation.options.return_sequences;
  while (goes_on) goes_on = co_await step(growing, Work::Part::kNext);
  const auto results = run.take();
  std::string body = head(form, false, generation.id, model.name());
  int64_t added = 0;
  for (size_t i = 0; i < results.size() * generation.choices; ++i) {
    if (i > 0) body += ',';
    const size_t sequence = generation.sequence_of(i % generation.choices);
    const tasks::Continuation& continuation = results[i / generation.choices][sequence];
    body += whole_choice(generation, model.continuer().tokenizer(), i, continuation);
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
