// Tokens of texts, texts of tokens, masks, and continuations.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "handlers.h"
#include "json_text.h"
#include "rf/engine/generator.h"
#include "rf/io/json_field.h"

namespace rf::server {

namespace {

constexpr int64_t kMostNewTokens = int64_t{1} << 20;

std::string tokens_json(const text::Tokenizer& tokenizer, const std::string& text, bool with_specials) {
  text::Encoding encoding;
  if (with_specials) {
    encoding = tokenizer.encode_with_specials(text);
  } else {
    tokenizer.encode(text, encoding);
  }
  return list_of(encoding.size(), [&](size_t i, std::string& to) {
    const bool is_special = encoding.byte_begin[i] == encoding.byte_end[i];
    const std::string& token = tokenizer.vocabulary().token(encoding.ids[i]);
    const std::string places =
        is_special ? R"("start":null,"stop":null)"
                   : fmt::format(R"("start":{},"stop":{})", encoding.char_begin[i], encoding.char_end[i]);
    fmt::format_to(std::back_inserter(to), R"({{"id":{},"text":{},"special":{},{}}})", encoding.ids[i],
                   io::quoted_json(token), is_special, places);
  });
}

struct CompletionRequest {
  std::vector<std::string> prompts;
  engine::GenerationOptions options;
  tasks::Stops stops;
};

CompletionRequest completion_of(const Fields& fields, const tasks::Continuer& continuer) {
  CompletionRequest request{.prompts = fields.texts("prompt"), .options = {}, .stops = continuer.default_stops()};
  constexpr int64_t kDefaultTokens = 16;  // OpenAI's
  request.options.max_new_tokens = fields.integer("max_tokens", 1, kMostNewTokens).value_or(kDefaultTokens);
  const double temperature = fields.number("temperature", 1, 0, 2);
  request.options.search = temperature == 0 ? engine::Search::kGreedy : engine::Search::kSample;
  if (temperature > 0) request.options.temperature = temperature;
  request.options.top_p = fields.number("top_p", 1, 1e-6, 1);
  request.options.top_k = fields.integer("top_k", 0, INT32_MAX).value_or(0);
  request.options.seed = static_cast<uint64_t>(fields.integer("seed", 0, INT64_MAX).value_or(0));
  // What OpenAI has besides.
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, nlohmann::json>>{{"n", 1},
                                                                     {"best_of", 1},
                                                                     {"echo", false},
                                                                     {"suffix", ""},
                                                                     {"logprobs", 0},
                                                                     {"presence_penalty", 0},
                                                                     {"frequency_penalty", 0},
                                                                     {"logit_bias", nlohmann::json::object()}})
    fields.only(name, value);
  if (fields.find("stop") != nullptr) {
    const tasks::Stops given = continuer.stops_of(fields.texts("stop"), "stop");
    request.stops.ids.insert(request.stops.ids.end(), given.ids.begin(), given.ids.end());
    request.stops.texts = given.texts;
  }
  return request;
}

std::string completion_head(const char* object, const std::string& model) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(R"({{"id":"cmpl-0","object":"{}","created":{},"model":{},"choices":[)", object,
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), io::quoted_json(model));
}

std::string choice(size_t index, const std::string& text, const char* reason) {
  const std::string quoted = reason == nullptr ? "null" : fmt::format("\"{}\"", reason);
  return fmt::format(R"({{"text":{},"index":{},"logprobs":null,"finish_reason":{}}})", io::quoted_json(text), index,
                     quoted);
}

int64_t token_count(const ServedModel& model, const std::string& text) {
  return std::ssize(model.tokenizer().encode_with_specials(text).ids);
}

const char* reason_of(const tasks::Continuation& continuation) { return continuation.stopped ? "stop" : "length"; }

// One event for each part of the text; the generation goes on only while its client reads.
Reply stream(Service& service, const Call& call, const ServedModel& model, const CompletionRequest& request) {
  struct State {
    std::shared_ptr<const Models> models;  // the stream reads one of them
    const tasks::Continuer& continuer;
    std::string name;
    tasks::ContinuationStream parts;
    int64_t tokens;  // that the next step reads
    Work::Part place = Work::Part::kFirst;
    bool is_done = false;
  };
  const std::string& prompt = request.prompts.front();
  const tasks::Continuer& continuer = model.continuer();
  const auto state = std::make_shared<State>(State{.models = call.models,
                                                   .continuer = continuer,
                                                   .name = model.name(),
                                                   .parts = continuer.stream(prompt, request.options, request.stops),
                                                   .tokens = token_count(model, prompt)});
  Reply reply{.type = "text/event-stream"};
  reply.next = [&service, state]() -> asio::awaitable<std::optional<std::string>> {
    if (state->is_done) co_return std::nullopt;
    std::optional<std::string> part;
    do {
      const auto place = std::exchange(state->place, Work::Part::kNext);
      co_await service.work.in_queue(&state->continuer, std::exchange(state->tokens, 1), place,
                                     [&] { part = state->parts.step(); });
    } while (part && part->empty());
    const std::string head = "data: " + completion_head("text_completion", state->name);
    if (part) co_return head + choice(0, *part, nullptr) + "]}\n\n";
    state->is_done = true;
    co_return head + choice(0, "", reason_of(state->parts.result())) + "]}\n\ndata: [DONE]\n\n";
  };
  return reply;
}

}  // namespace

Answer tokenize(Service& service, const Call& call) {
  const Fields fields(call.body);
  const text::Tokenizer& tokenizer = call.model(fields).tokenizer();
  const std::vector<std::string> texts = fields.texts("inputs");
  const bool with_specials = fields.flag("add_special_tokens", true);
  constexpr int64_t kBytesPerText = 400, kBytesPerLetter = 40;  // of the reply, also while it grows
  Memory::Share held(service.memory);
  Reply reply;
  reply.body = co_await service.work.in_pool([&] {
    return list_of(texts.size(), [&](size_t i, std::string& to) {
      held.take(kBytesPerText + kBytesPerLetter * std::ssize(texts[i]));
      to += tokens_json(tokenizer, texts[i], with_specials);
    });
  });
  co_return reply;
}

Answer decode(Service& service, const Call& call) {
  const Fields fields(call.body);
  const text::Tokenizer& tokenizer = call.model(fields).tokenizer();
  const nlohmann::json& given = fields.required("ids");
  const auto skip = fields.flag("skip_special_tokens", true) ? text::SkipSpecials::kYes : text::SkipSpecials::kNo;
  if (!given.is_array() || given.empty())
    throw HttpError(http::status::bad_request, "ids must be a list of numbers or of such lists, got another value");
  const nlohmann::json lists = given[0].is_array() ? given : nlohmann::json::array({given});
  Reply reply;
  reply.body = co_await service.work.in_pool([&] {
    return list_of(lists.size(), [&](size_t i, std::string& to) {
      to += io::quoted_json(tokenizer.decode(ids_of(lists[i], tokenizer, "ids must be numbers of tokens"), skip));
    });
  });
  co_return reply;
}

Answer fill_mask(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const std::vector<std::string> texts = fields.texts("inputs");
  constexpr int64_t kMostCandidates = 1000, kDefaultCandidates = 5;
  const int64_t top_k = fields.integer("top_k", 1, kMostCandidates).value_or(kDefaultCandidates);
  fields.only("targets", nlohmann::json::array());
  Memory::Share held(service.memory);
  const tasks::MaskFiller& filler = co_await service.work.in_pool([&] { return std::cref(model.mask_filler()); });
  nlohmann::json body = nlohmann::json::array();
  auto place = Work::Part::kFirst;
  for (const std::string& text : texts) {
    std::vector<tasks::FilledMask> filled;
    co_await service.work.in_queue(&filler, token_count(model, text), place,
                                   [&] { filled = filler.fill(text, top_k); });
    place = Work::Part::kNext;
    nlohmann::json masks = nlohmann::json::array();
    for (const tasks::FilledMask& mask : filled) {
      constexpr int64_t kBytesPerCandidate = 512;
      held.take(top_k * kBytesPerCandidate);
      nlohmann::json candidates = nlohmann::json::array();
      for (const tasks::MaskCandidate& each : mask.candidates)
        candidates.push_back({{"score", each.probability}, {"token", each.id}, {"token_str", each.token}});
      masks.push_back(candidates);
    }
    body.push_back(masks);
  }
  co_return Reply{.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

Answer completions(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const CompletionRequest request = completion_of(fields, model.continuer());
  if (fields.flag("stream", false)) {
    if (request.prompts.size() > 1)
      throw HttpError(http::status::bad_request, "a streamed completion has one prompt, got several");
    co_return co_await service.work.in_pool([&] { return stream(service, call, model, request); });
  }
  tasks::ContinuationRun run = co_await service.work.in_pool(
      [&] { return model.continuer().begin(request.prompts, request.options, request.stops); });
  const int64_t read = run.prompt_tokens();
  bool goes_on = true;
  const auto step = [&] { goes_on = run.step(); };
  co_await service.work.in_queue(&model.continuer(), read, Work::Part::kFirst, step);
  while (goes_on)
    co_await service.work.in_queue(&model.continuer(), std::ssize(request.prompts), Work::Part::kNext, step);
  const auto results = run.take();
  std::string body = completion_head("text_completion", model.name());
  int64_t added = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0) body += ',';
    const tasks::Continuation& continuation = results[i].front();
    body += choice(i, continuation.text, reason_of(continuation));
    added += std::ssize(continuation.ids);
  }
  body += fmt::format(R"(],"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}}}})", read, added,
                      read + added);
  co_return Reply{.body = std::move(body), .tokens = read + added};
}

}  // namespace rf::server
