// Scores of pairs: reranking as Cohere, Jina and text-embeddings-inference have it, and classification.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "handlers.h"
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
  for (const nlohmann::json& each : given) inputs.items.push_back(item_of(each));
  return inputs;
}

void soften(std::span<float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  for (float& x : logits) x = static_cast<float>(std::exp(x - largest) / sum);
}

std::string labels_json(const std::vector<std::string>& labels, std::span<const float> scores) {
  std::string text = "[";
  for (const size_t i : order_of({scores.begin(), scores.end()})) {
    if (text.size() > 1) text += ',';
    fmt::format_to(std::back_inserter(text), R"({{"score":{},"label":{}}})", scores[i], io::quoted_json(labels[i]));
  }
  return text += ']';
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
  std::string body = fmt::format(R"({{"id":"rerank","model":{},"results":[)", io::quoted_json(model.name()));
  int64_t written = 0;
  for (const size_t i : order_of(scores.values)) {
    if (written == shown) break;
    if (written++ > 0) body += ',';
    fmt::format_to(std::back_inserter(body), R"({{"index":{},"relevance_score":{})", i, scores.values[i]);
    if (with_texts) body += R"(,"document":{"text":)" + io::quoted_json(documents[i]) + '}';
    body += '}';
  }
  body += fmt::format(
      R"(],"usage":{{"total_tokens":{0}}},"meta":{{"api_version":{{"version":"2"}},"billed_units":{{"input_tokens":{0}}}}}}})",
      scores.tokens);
  co_return Reply{.body = std::move(body), .tokens = scores.tokens};
}

Answer tei_rerank(Service& service, const Call& call) {
  const Fields fields(call.body);
  const std::vector<std::string> texts = fields.texts("texts");
  const bool with_texts = fields.flag("return_text", false);
  const Scores scores =
      co_await rank(service, call.model(fields), fields.text("query"), texts, fields.flag("raw_scores", false));
  std::string body = "[";
  for (const size_t i : order_of(scores.values)) {
    if (body.size() > 1) body += ',';
    fmt::format_to(std::back_inserter(body), R"({{"index":{},"score":{})", i, scores.values[i]);
    if (with_texts) body += R"(,"text":)" + io::quoted_json(texts[i]);
    body += '}';
  }
  co_return Reply{.body = body + ']', .tokens = scores.tokens};
}

Answer tei_predict(Service& service, const Call& call) {
  const Fields fields(call.body);
  const PairModel& model = call.model(fields).pairs();
  const tasks::CrossEncoder& encoder = model.encoder;
  const PredictInputs inputs = predict_inputs(fields);
  const bool raw = fields.flag("raw_scores", false);
  std::vector<text::TextPair> pairs;
  for (const std::vector<std::string>& item : inputs.items) {
    text::TextPair pair{item.front(), std::nullopt};
    if (item.size() == 2) pair.second = item.back();
    pairs.push_back(pair);
  }
  const std::vector<std::string>& labels = encoder.info().labels;
  const bool is_each = labels.size() == 1 || encoder.is_multi_label();
  using tasks::ScoreActivation;
  Scores scores =
      co_await score(service, model, pairs, is_each && !raw ? ScoreActivation::kSigmoid : ScoreActivation::kIdentity);
  std::string body = inputs.is_list ? "[" : "";
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto row = std::span(scores.values).subspan(i * labels.size(), labels.size());
    if (!is_each && !raw) soften(row);
    if (i > 0) body += ',';
    body += labels_json(labels, row);
  }
  if (inputs.is_list) body += ']';
  co_return Reply{.body = std::move(body), .tokens = scores.tokens};
}

}  // namespace rf::server
