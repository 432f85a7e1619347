// Tokens of texts, texts of tokens, and masks.
#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "handlers.h"
#include "json_text.h"
#include "rf/io/json_field.h"

namespace rf::server {

namespace {

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

int64_t token_count(const ServedModel& model, const std::string& text) {
  return std::ssize(model.tokenizer().encode_with_specials(text).ids);
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

}  // namespace rf::server
