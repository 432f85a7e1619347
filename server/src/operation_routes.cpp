// The routes for operators: health, models, counters, and the description of all routes.

#include "handlers.h"
#include "rf/io/percent.h"

namespace rf::server {

Answer health(Service&, const Call&) { co_return Reply{.body = R"({"status":"ok"})"}; }

Answer ready(Service& service, const Call&) {
  if (service.is_draining) throw HttpError(http::status::service_unavailable, "the server stops");
  co_return Reply{.body = R"({"status":"ready"})"};
}

namespace {

nlohmann::ordered_json description_of(const ServedModel& model) {
  nlohmann::ordered_json facts = {{"id", model.name()}, {"object", "model"}, {"created", 0}, {"owned_by", "roformer"}};
  facts.update(model.description());
  return facts;
}

}  // namespace

Answer list_models(Service&, const Call& call) {
  nlohmann::ordered_json data = nlohmann::ordered_json::array();
  for (const auto& each : *call.models) data.push_back(description_of(*each));
  co_return Reply{.body = nlohmann::ordered_json{{"object", "list"}, {"data", data}}.dump()};
}

Answer model_of_name(Service&, const Call& call) {
  constexpr std::string_view kRoute = "/v1/models/";
  const std::string name = io::percent_decoded(path_of(call.request.target()).substr(kRoute.size()));
  co_return Reply{.body = description_of(call.model(name)).dump()};
}

Answer info(Service& service, const Call& call) {
  const ServedModel& model = *call.models->front();
  co_return Reply{.body = nlohmann::ordered_json{{"model_id", model.name()},
                                                 {"model_dtype", model.precision()},
                                                 {"model_type", {{model.kind(), nlohmann::json::object()}}},
                                                 {"max_input_length", model.max_length()},
                                                 {"max_batch_tokens", service.options.token_budget},
                                                 {"auto_truncate", true},
                                                 {"version", ROFORMER_VERSION}}
                              .dump()};
}

Answer metrics(Service& service, const Call&) {
  co_return Reply{.body = service.metrics.text(!service.is_draining),
                  .type = "text/plain; version=0.0.4; charset=utf-8"};
}

}  // namespace rf::server
