// Scores of pairs: reranking in the form of Cohere, Jina and text-embeddings-inference, and classification.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "handlers.h"
#include "json_text.h"
#include "rf/io/json_field.h"
#include "text_work.h"

namespace rf::server {

namespace {

// The best first; of equal scores the first document's.
std::vector<size_t> order_of(const std::vector<float>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

// Texts, or objects with a text.
std::vector<std::string> documents_of(const Fields& fields) {
  const nlohmann::json& given = fields.required("documents");
  if (!given.is_array() || given.empty())
    throw HttpError(http::status::bad_request, "documents must be a list of texts, got none");
  std::vector<std::string> texts;
  for (const nlohmann::json& each : given)
    texts.push_back(each.is_object() ? Fields(each).text("text")
                                     : text_of(each, fmt::format("documents[{}]", texts.size())));
  return texts;
}

// A request of /predict: one text, a pair, or a list of both.
struct PredictInputs {
  std::vector<std::vector<std::string>> items;  // of one or two texts
  bool is_list = false;
};

std::vector<std::string> item_of(const nlohmann::json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> texts;
  if (value.is_array() && (value.size() == 1 || value.size() == 2)) {
    for (const nlohmann::json& each : value) texts.push_back(text_of(each, "inputs"));
    return texts;
  }
  throw HttpError(http::status::bad_request, "inputs must be a text, a pair of texts, or a list of them, got another");
}

PredictInputs predict_inputs(const Fields& fields) {
  const nlohmann::json& given = fields.required("inputs");
  const bool is_list = given.is_array() && !given.empty() && given[0].is_array();
  PredictInputs inputs{.items = {}, .is_list = is_list};
  if (!is_list) {
    inputs.items.push_back(item_of(given));
    return inputs;
  }
  for (const nlohmann::json& each : given) {
    if (each.is_string()) throw HttpError(http::status::bad_request, "inputs must be texts or lists, got both");
    inputs.items.push_back(item_of(each));
  }
  return inputs;
}

std::string labels_json(const std::vector<std::string>& labels, std::span<const float> scores) {
  const std::vector<size_t> order = order_of({scores.begin(), scores.end()});
  return list_of(order.size(), [&](size_t place, std::string& to) {
    const size_t i = order[place];
    fmt::format_to(std::back_inserter(to), R"({{"score":{},"label":{}}})", scores[i], io::quoted_json(labels[i]));
  });
}

}  // namespace

Answer rerank(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const std::vector<std::string> documents = documents_of(fields);
  const auto count = std::ssize(documents);
  const int64_t shown = std::min(count, fields.integer("top_n", 1, int64_t{1} << 40).value_or(count));
  const bool with_texts = fields.flag("return_documents", false);
  const Scores scores = co_await rank(service, model, fields.text("query"), documents, false);
  Reply reply{.tokens = scores.tokens};
  reply.body = co_await service.work.in_pool([&] {
    const std::vector<size_t> order = order_of(scores.values);
    const std::string results = list_of(static_cast<size_t>(shown), [&](size_t place, std::string& to) {
      const size_t i = order[place];
      fmt::format_to(std::back_inserter(to), R"({{"index":{},"relevance_score":{})", i, scores.values[i]);
      if (with_texts) to += R"(,"document":{"text":)" + io::quoted_json(documents[i]) + '}';
      to += '}';
    });
    return fmt::format(
        R"({{"id":"rerank","model":{0},"results":{1},"usage":{{"total_tokens":{2}}},"meta":{{"api_version":{{"version":"2"}},"billed_units":{{"input_tokens":{2}}}}}}})",
        io::quoted_json(model.name()), results, scores.tokens);
  });
  co_return reply;
}

Answer tei_rerank(Service& service, const Call& call) {
  const Fields fields(call.body);
  const std::vector<std::string> texts = fields.texts("texts");
  const bool with_texts = fields.flag("return_text", false);
  no_left_truncation(fields);
  const Scores scores =
      co_await rank(service, call.model(fields), fields.text("query"), texts, fields.flag("raw_scores", false));
  Reply reply{.tokens = scores.tokens};
  reply.body = co_await service.work.in_pool([&] {
    const std::vector<size_t> order = order_of(scores.values);
    return list_of(order.size(), [&](size_t place, std::string& to) {
      const size_t i = order[place];
      fmt::format_to(std::back_inserter(to), R"({{"index":{},"score":{})", i, scores.values[i]);
      if (with_texts) to += R"(,"text":)" + io::quoted_json(texts[i]);
      to += '}';
    });
  });
  co_return reply;
}

Answer tei_predict(Service& service, const Call& call) {
  const Fields fields(call.body);
  const PairModel& model = call.model(fields).pairs();
  const PredictInputs inputs = predict_inputs(fields);
  const bool raw = fields.flag("raw_scores", false);
  no_left_truncation(fields);
  std::vector<text::TextPair> pairs;
  for (const std::vector<std::string>& item : inputs.items) {
    text::TextPair pair{item.front(), std::nullopt};
    if (item.size() == 2) pair.second = item.back();
    pairs.push_back(pair);
  }
  const Scores scores = co_await score(service, model, pairs, [raw](const auto& encoder, std::vector<float>& logits) {
    raw ? encoder.activate(logits, tasks::ScoreActivation::kIdentity) : encoder.to_probabilities(logits);
  });
  Reply reply{.tokens = scores.tokens};
  reply.body = co_await service.work.in_pool([&] {
    const std::vector<std::string>& labels = model.encoder.info().labels;
    const auto result = [&](size_t i) {
      return labels_json(labels, std::span(scores.values).subspan(i * labels.size(), labels.size()));
    };
    if (!inputs.is_list) return result(0);
    return list_of(pairs.size(), [&](size_t i, std::string& to) { to += result(i); });
  });
  co_return reply;
}

Answer tei_any(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const nlohmann::json* const inputs = fields.find("inputs");
  if (inputs != nullptr && inputs->is_object()) return tei_similarity(service, call);
  if (fields.find("texts") != nullptr) return tei_rerank(service, call);
  if (model.is_pair_model()) return tei_predict(service, call);
  const std::string_view kind = model.kind();
  if (kind == "multi-vector") return tei_embed_all(service, call);
  return kind == "sparse" ? tei_embed_sparse(service, call) : tei_embed(service, call);
}

}  // namespace rf::server
