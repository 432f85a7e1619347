// The table of routes (service.h).
#include <array>

#include "handlers.h"

namespace rf::server {

namespace {

constexpr auto kGet = http::verb::get, kPost = http::verb::post;
constexpr auto kOpenAi = Dialect::kOpenAi, kTei = Dialect::kTei;

constexpr std::array kRoutes = {
    Route{kPost, "/v1/embeddings", kOpenAi, openai_embeddings, "Vectors of texts (OpenAI)"},
    Route{kPost, "/embeddings", kOpenAi, openai_embeddings, "The same"},
    Route{kPost, "/v1/rerank", kOpenAi, rerank, "Documents by their score with a query (Cohere, Jina)"},
    Route{kPost, "/v2/rerank", kOpenAi, rerank, "The same"},
    Route{kPost, "/v2/embed", kOpenAi, cohere_embed, "Vectors of texts (Cohere)"},
    Route{kPost, "/v1/embed", kOpenAi, cohere_embed, "The same"},
    Route{kPost, "/v1/chat/completions", kOpenAi, chat_completions, "Answers in chats (OpenAI), also as events"},
    Route{kPost, "/v1/completions", kOpenAi, completions, "Continuations of prompts (OpenAI), also as events"},
    Route{kGet, "/v1/models", kOpenAi, list_models, "The models"},
    Route{kGet, "/v1/models/", kOpenAi, model_of_name, "A model"},
    Route{kPost, "/", kTei, tei_any, "What the first model does: /embed, /predict and so on (TEI)"},
    Route{kPost, "/embed", kTei, tei_embed, "Vectors of texts (TEI)"},
    Route{kPost, "/embed_all", kTei, tei_embed_all, "Vectors of the tokens of texts, for late interaction (TEI)"},
    Route{kPost, "/embed_sparse", kTei, tei_embed_sparse, "Sparse vectors of texts (TEI)"},
    Route{kPost, "/similarity", kTei, tei_similarity, "Similarities of a text with others (TEI)"},
    Route{kPost, "/rerank", kTei, tei_rerank, "Texts by their score with a query (TEI)"},
    Route{kPost, "/predict", kTei, tei_predict, "Classes of texts or pairs (TEI)"},
    Route{kPost, "/tokenize", kTei, tokenize, "Tokens of texts, with offsets (TEI)"},
    Route{kPost, "/decode", kTei, decode, "Texts of ids of tokens (TEI)"},
    Route{kPost, "/fill-mask", kTei, fill_mask, "The most probable tokens for masks"},
    Route{kGet, "/info", kTei, info, "The first model and the limits (TEI)"},
    Route{kGet, "/rotation", kTei, rotation, "The rotation of a model and what `roformer doctor` finds; ?model=NAME"},
    Route{kGet, "/", kOpenAi, page, "A page for people", true},
    Route{kGet, "/health", kTei, health, "200 while the process answers", true},
    Route{kGet, "/ready", kTei, ready, "200 while requests are taken, 503 at the end", true},
    Route{kGet, "/metrics", kTei, metrics, "Counters for Prometheus", true},
    Route{kGet, "/openapi.json", kOpenAi, openapi, "This table", true},
};

}  // namespace

std::span<const Route> routes() { return kRoutes; }

std::string_view path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t path = target.find('/', scheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target.substr(0, target.find('?'));
}

const Route* find_route(http::verb verb, std::string_view target, std::string& allowed) {
  const std::string_view path = path_of(target);
  // HEAD is GET without its body.
  const http::verb wanted = verb == http::verb::head ? kGet : verb;
  for (const Route& route : kRoutes) {
    const std::string_view own = route.path;
    if (own != path && (own.size() == 1 || !own.ends_with('/') || !path.starts_with(own) || path == own)) continue;
    if (route.verb == wanted) return &route;
    allowed += std::string(allowed.empty() ? "" : ", ") + (route.verb == kGet ? "GET, HEAD" : "POST");
  }
  return nullptr;
}

}  // namespace rf::server
