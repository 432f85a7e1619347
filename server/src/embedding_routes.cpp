// Vectors: OpenAI's /v1/embeddings, and the routes of text-embeddings-inference.
#include <fmt/format.h>

#include <iterator>

#include "handlers.h"
#include "rf/io/json_field.h"
#include "text_work.h"

namespace rf::server {

namespace {

bool is_ids(const nlohmann::json& value) { return value.is_array() && !value.empty() && value[0].is_number(); }

std::string text_of_ids(const nlohmann::json& ids, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  for (const nlohmann::json& id : ids) {
    const bool is_token = id.is_number_integer() && id >= 0 && id < tokenizer.vocabulary().size();
    if (!is_token)
      throw HttpError(http::status::bad_request, fmt::format("input must be texts or ids of tokens below {}, got {}",
                                                             tokenizer.vocabulary().size(), id.dump()));
    tokens.push_back(id.get<int32_t>());
  }
  return tokenizer.decode(tokens, text::SkipSpecials::kYes);
}

// Texts, or ids of tokens, which are read as their text.
std::vector<std::string> openai_inputs(const Fields& fields, const text::Tokenizer& tokenizer) {
  const nlohmann::json& input = fields.required("input");
  if (is_ids(input)) return {text_of_ids(input, tokenizer)};
  if (!input.is_array() || input.empty() || !is_ids(input[0])) return fields.texts("input");
  std::vector<std::string> texts;
  for (const nlohmann::json& each : input) {
    if (!is_ids(each)) throw HttpError(http::status::bad_request, "input must be texts or lists of ids, got both");
    texts.push_back(text_of_ids(each, tokenizer));
  }
  return texts;
}

Truncate truncate_of(const Fields& fields) {
  return fields.flag("truncate", true) ? Truncate::kAsModel : Truncate::kRefuse;
}

// A list with what `item` appends for each text.
template <typename Item>
std::string list_of(size_t count, const Item& item) {
  std::string body = "[";
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) body += ',';
    item(i, body);
  }
  return body += ']';
}

}  // namespace

Answer openai_embeddings(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const TextModel& texts_model = model.texts(engine::VectorKind::kDense);
  const engine::Embedder& embedder = texts_model.embedder;
  const int64_t dimensions =
      fields.integer("dimensions", 1, embedder.info().dimensions).value_or(embedder.info().dimensions);
  const std::string format = fields.text_or("encoding_format", "float");
  if (format != "float" && format != "base64")
    throw HttpError(http::status::bad_request, "encoding_format must be float or base64, got another");
  std::vector<std::string> texts = openai_inputs(fields, embedder.tokenizer());
  const Embedded embedded = co_await embed(service, texts_model, std::move(texts), prompt_of(fields, embedder));
  Reply reply{.tokens = embedded.total_tokens};
  reply.body = co_await service.work.in_pool([&] {
    std::string body = R"({"object":"list","data":)";
    body += list_of(embedded.texts(), [&](size_t i, std::string& to) {
      const std::vector<float> vector = embedder.shorten(vectors_of(texts_model, embedded, i).dense, dimensions);
      fmt::format_to(std::back_inserter(to), R"({{"object":"embedding","index":{},"embedding":)", i);
      to += format == "float" ? json_of(vector) : '"' + base64_of(vector) + '"';
      to += '}';
    });
    return body + fmt::format(R"(,"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                              io::quoted_json(model.name()), embedded.total_tokens, embedded.total_tokens);
  });
  co_return reply;
}

Answer tei_embed(Service& service, const Call& call) {
  const Fields fields(call.body);
  const TextModel& model = call.model(fields).texts(engine::VectorKind::kDense);
  const engine::Embedder& embedder = model.embedder;
  const int64_t dimensions =
      fields.integer("dimensions", 1, embedder.info().dimensions).value_or(embedder.info().dimensions);
  const bool normalizes = fields.flag("normalize", true);
  const Embedded embedded =
      co_await embed(service, model, fields.texts("inputs"), prompt_of(fields, embedder), truncate_of(fields));
  Reply reply{.tokens = embedded.total_tokens};
  reply.body = co_await service.work.in_pool([&] {
    return list_of(embedded.texts(), [&](size_t i, std::string& to) {
      to += json_of(embedder.shorten(vectors_of(model, embedded, i).dense, dimensions, normalizes));
    });
  });
  co_return reply;
}

Answer tei_embed_all(Service& service, const Call& call) {
  const Fields fields(call.body);
  const TextModel& model = call.model(fields).texts(engine::VectorKind::kTokens);
  const engine::Embedder& embedder = model.embedder;
  const Embedded embedded =
      co_await embed(service, model, fields.texts("inputs"), prompt_of(fields, embedder), truncate_of(fields));
  Reply reply{.tokens = embedded.total_tokens};
  reply.body = co_await service.work.in_pool([&] {
    const auto columns = static_cast<size_t>(embedder.info().token_dimensions);
    return list_of(embedded.texts(), [&](size_t i, std::string& to) {
      const std::vector<float> vectors = vectors_of(model, embedded, i).tokens;
      to += list_of(vectors.size() / columns, [&](size_t t, std::string& rows) {
        rows += json_of(std::span(vectors).subspan(t * columns, columns));
      });
    });
  });
  co_return reply;
}

Answer tei_embed_sparse(Service& service, const Call& call) {
  const Fields fields(call.body);
  const TextModel& model = call.model(fields).texts(engine::VectorKind::kSparse);
  const engine::Embedder& embedder = model.embedder;
  const Embedded embedded =
      co_await embed(service, model, fields.texts("inputs"), prompt_of(fields, embedder), truncate_of(fields));
  Reply reply{.tokens = embedded.total_tokens};
  reply.body = co_await service.work.in_pool([&] {
    return list_of(embedded.texts(), [&](size_t i, std::string& to) {
      const engine::SparseVector vector = vectors_of(model, embedded, i).sparse;
      to += list_of(vector.indices.size(), [&](size_t k, std::string& entries) {
        fmt::format_to(std::back_inserter(entries), R"({{"index":{},"value":{}}})", vector.indices[k],
                       vector.values[k]);
      });
    });
  });
  co_return reply;
}

Answer tei_similarity(Service& service, const Call& call) {
  const Fields fields(call.body);
  const TextModel& model = call.model(fields).texts(engine::VectorKind::kDense);
  const engine::Embedder& embedder = model.embedder;
  const nlohmann::json& given = fields.required("inputs");
  if (!given.is_object()) throw HttpError(http::status::bad_request, "inputs must be an object, got another value");
  const Fields inputs(given);
  std::vector<std::string> texts = inputs.texts("sentences");
  texts.insert(texts.begin(), inputs.text("source_sentence"));
  const Embedded embedded = co_await embed(service, model, std::move(texts), prompt_of(fields, embedder));
  const std::vector<float> source = vectors_of(model, embedded, 0).dense;
  Reply reply{.tokens = embedded.total_tokens};
  reply.body = list_of(embedded.texts() - 1, [&](size_t i, std::string& to) {
    const double similarity =
        engine::similarity(embedder.info().similarity, source, vectors_of(model, embedded, i + 1).dense);
    fmt::format_to(std::back_inserter(to), "{}", static_cast<float>(similarity));
  });
  co_return reply;
}

}  // namespace rf::server
