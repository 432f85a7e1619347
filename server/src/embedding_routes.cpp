// Vectors: OpenAI's /v1/embeddings, and the routes of text-embeddings-inference.
#include <fmt/format.h>

#include <bit>
#include <iterator>

#include "handlers.h"
#include "json_text.h"
#include "rf/io/json_field.h"
#include "text_work.h"

namespace rf::server {

namespace {

bool is_ids(const nlohmann::json& value) { return value.is_array() && !value.empty() && value[0].is_number(); }

std::string text_of_ids(const nlohmann::json& ids, const text::Tokenizer& tokenizer) {
  return tokenizer.decode(ids_of(ids, tokenizer, "input must be texts or ids of tokens"), text::SkipSpecials::kYes);
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

int64_t dimensions_of(const Fields& fields, const engine::Embedder& embedder, const char* name = "dimensions") {
  const int64_t all = embedder.info().dimensions;
  return fields.integer(name, 1, all).value_or(all);
}

// A list for a request of TEI; item(vectors, to) appends the item of each text.
template <typename Item>
Answer tei_vectors(Service& service, const Call& call, engine::VectorKind kind, Item item) {
  const Fields fields(call.body);
  const TextModel& model = call.model(fields).texts(kind);
  no_left_truncation(fields);
  const Truncate truncate = fields.flag("truncate", true) ? Truncate::kAsModel : Truncate::kRefuse;
  const Embedded embedded =
      co_await embed(service, model, fields.texts("inputs"), prompt_of(fields, model.embedder), truncate);
  Reply reply{.tokens = embedded.tokens};
  reply.body = co_await service.work.in_pool(
      [&] { return list_of(embedded.texts(), [&](size_t i, std::string& to) { item(embedded.of(i), to); }); });
  co_return reply;
}

}  // namespace

Answer openai_embeddings(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const TextModel& texts_model = model.texts(engine::VectorKind::kDense);
  const engine::Embedder& embedder = texts_model.embedder;
  const int64_t dimensions = dimensions_of(fields, embedder);
  const std::string format = fields.one_of("encoding_format", {"float", "base64"});
  std::vector<std::string> texts = openai_inputs(fields, embedder.tokenizer());
  const Embedded embedded = co_await embed(service, texts_model, std::move(texts), prompt_of(fields, embedder));
  Reply reply{.tokens = embedded.tokens};
  reply.body = co_await service.work.in_pool([&] {
    static_assert(std::endian::native == std::endian::little);  // as base64 has it
    std::string body = R"({"object":"list","data":)";
    body += list_of(embedded.texts(), [&](size_t i, std::string& to) {
      const std::vector<float> vector = embedder.shorten(embedded.of(i).dense, dimensions);
      fmt::format_to(std::back_inserter(to), R"({{"object":"embedding","index":{},"embedding":)", i);
      to += format == "float" ? io::json_list(vector) : '"' + base64_of(std::as_bytes(std::span(vector))) + '"';
      to += '}';
    });
    return body + fmt::format(R"(,"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                              io::quoted_json(model.name()), embedded.tokens, embedded.tokens);
  });
  co_return reply;
}

// Without embedding_types a list of vectors, as at /v1/embed; with them, and at /v2/embed, a list for each type.
Answer cohere_embed(Service& service, const Call& call) {
  const Fields fields(call.body);
  const ServedModel& model = call.model(fields);
  const TextModel& texts_model = model.texts(engine::VectorKind::kDense);
  const engine::Embedder& embedder = texts_model.embedder;
  const int64_t dimensions = dimensions_of(fields, embedder, "output_dimension");
  const bool has_types = fields.find("embedding_types") != nullptr;
  const bool by_type = has_types || path_of(call.request.target()) == "/v2/embed";
  std::vector<std::string> types = {"float"};
  if (has_types) types = fields.texts("embedding_types");
  for (const std::string& type : types)
    if (type != "float" && type != "base64")
      throw HttpError(http::status::bad_request, "embedding_types must be float or base64, got another");
  const Truncate truncate =
      fields.one_of("truncate", {"END", "NONE"}) == "END" ? Truncate::kAsModel : Truncate::kRefuse;
  std::string use;
  if (fields.find("input_type") != nullptr)
    use = fields.one_of("input_type", {"search_document", "search_query", "classification", "clustering"});
  // Models name prompts "query", "document", "classification" and so on.
  const auto prompt = embedder.info().prompts.find(use.starts_with("search_") ? use.substr(7) : use);
  std::optional<std::string> text_before;
  if (prompt != embedder.info().prompts.end()) text_before = prompt->second;
  const std::vector<std::string> texts = fields.texts("texts");
  const Embedded embedded = co_await embed(service, texts_model, texts, text_before, truncate);
  Reply reply{.tokens = embedded.tokens};
  reply.body = co_await service.work.in_pool([&] {
    const auto vectors_as = [&](const std::string& type) {
      return list_of(embedded.texts(), [&](size_t i, std::string& to) {
        const std::vector<float> vector = embedder.shorten(embedded.of(i).dense, dimensions);
        to += type == "float" ? io::json_list(vector) : '"' + base64_of(std::as_bytes(std::span(vector))) + '"';
      });
    };
    const std::string lists = list_of(types.size(), [&](size_t i, std::string& to) {
      to += fmt::format("\"{}\":{}", types[i], vectors_as(types[i]));
    });
    return fmt::format(
        R"({{"id":"embed","response_type":"embeddings_{}","embeddings":{},"texts":{},"meta":{{"api_version":{{"version":"{}"}},"billed_units":{{"input_tokens":{}}}}}}})",
        by_type ? "by_type" : "floats", by_type ? '{' + lists.substr(1, lists.size() - 2) + '}' : vectors_as("float"),
        list_of(texts.size(), [&](size_t i, std::string& to) { to += io::quoted_json(texts[i]); }), by_type ? 2 : 1,
        embedded.tokens);
  });
  co_return reply;
}

Answer tei_embed(Service& service, const Call& call) {
  const Fields fields(call.body);
  const engine::Embedder& embedder = call.model(fields).texts(engine::VectorKind::kDense).embedder;
  const int64_t dimensions = dimensions_of(fields, embedder);
  const bool normalizes = fields.flag("normalize", true);
  fields.only("encoding_format", "float");
  return tei_vectors(service, call, engine::VectorKind::kDense,
                     [&embedder, dimensions, normalizes](const engine::TextVectors& vectors, std::string& to) {
                       to += io::json_list(embedder.shorten(vectors.dense, dimensions, normalizes));
                     });
}

Answer tei_embed_all(Service& service, const Call& call) {
  const engine::EmbedderInfo& info = call.model(Fields(call.body)).texts(engine::VectorKind::kTokens).embedder.info();
  const auto columns = static_cast<size_t>(info.token_dimensions);
  return tei_vectors(service, call, engine::VectorKind::kTokens,
                     [columns](const engine::TextVectors& vectors, std::string& to) {
                       to += list_of(vectors.tokens.size() / columns, [&](size_t t, std::string& rows) {
                         rows += io::json_list(std::span(vectors.tokens).subspan(t * columns, columns));
                       });
                     });
}

Answer tei_embed_sparse(Service& service, const Call& call) {
  return tei_vectors(service, call, engine::VectorKind::kSparse,
                     [](const engine::TextVectors& vectors, std::string& to) {
                       const engine::SparseVector& sparse = vectors.sparse;
                       to += list_of(sparse.indices.size(), [&](size_t k, std::string& entries) {
                         fmt::format_to(std::back_inserter(entries), R"({{"index":{},"value":{}}})", sparse.indices[k],
                                        sparse.values[k]);
                       });
                     });
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
  Reply reply{.tokens = embedded.tokens};
  reply.body = co_await service.work.in_pool([&] {
    return list_of(embedded.texts() - 1, [&](size_t i, std::string& to) {
      const double similarity =
          engine::similarity(embedder.info().similarity, embedded.of(0).dense, embedded.of(i + 1).dense);
      fmt::format_to(std::back_inserter(to), "{}", static_cast<float>(similarity));
    });
  });
  co_return reply;
}

}  // namespace rf::server
