// The handlers of routes, in files by subject.
#pragma once

#include "service.h"

namespace rf::server {

using Answer = asio::awaitable<Reply>;

// embedding_routes.cpp
Answer openai_embeddings(Service& service, const Call& call);
Answer cohere_embed(Service& service, const Call& call);
Answer tei_embed(Service& service, const Call& call);
Answer tei_embed_all(Service& service, const Call& call);
Answer tei_embed_sparse(Service& service, const Call& call);
Answer tei_similarity(Service& service, const Call& call);
// scoring_routes.cpp
Answer rerank(Service& service, const Call& call);
Answer tei_rerank(Service& service, const Call& call);
Answer tei_predict(Service& service, const Call& call);
Answer tei_any(Service& service, const Call& call);
// text_routes.cpp
Answer tokenize(Service& service, const Call& call);
Answer decode(Service& service, const Call& call);
Answer fill_mask(Service& service, const Call& call);
// generation_routes.cpp
Answer completions(Service& service, const Call& call);
Answer chat_completions(Service& service, const Call& call);
// operation_routes.cpp
Answer health(Service& service, const Call& call);
Answer ready(Service& service, const Call& call);
Answer model_of_name(Service& service, const Call& call);
Answer list_models(Service& service, const Call& call);
Answer info(Service& service, const Call& call);
Answer metrics(Service& service, const Call& call);
// openapi.cpp
Answer openapi(Service& service, const Call& call);

// page_routes.cpp
Answer page(Service& service, const Call& call);
Answer rotation(Service& service, const Call& call);

}  // namespace rf::server
