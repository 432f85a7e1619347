// What operators read: health, models, counters, and the description of all routes.
#include <fmt/format.h>

#include "handlers.h"
#include "rf/io/json_field.h"
#include "rf/io/printable.h"

namespace rf::server {

Answer health(Service&, const Call&) { co_return Reply{.body = R"({"status":"ok"})"}; }

Answer ready(Service& service, const Call&) {
  if (service.is_draining) throw HttpError(http::status::service_unavailable, "the server stops");
  co_return Reply{.body = R"({"status":"ready"})"};
}

Answer list_models(Service&, const Call& call) {
  nlohmann::ordered_json data = nlohmann::ordered_json::array();
  for (const auto& each : *call.models)
    data.push_back(
        {{"id", each->name()}, {"object", "model"}, {"created", 0}, {"owned_by", "roformer"}, {"kind", each->kind()}});
  co_return Reply{.body = nlohmann::ordered_json{{"object", "list"}, {"data", data}}.dump()};
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

Answer openapi(Service&, const Call&) {
  nlohmann::ordered_json paths = nlohmann::ordered_json::object();
  for (const Route& route : routes()) {
    const bool is_post = route.verb == http::verb::post;
    nlohmann::ordered_json entry = {{"summary", route.summary},
                                    {"responses", {{"200", {{"description", "the result"}}}}}};
    if (is_post) {
      entry["requestBody"] = {{"required", true},
                              {"content", {{"application/json", {{"schema", {{"type", "object"}}}}}}}};
      for (const char* status : {"400", "401", "413", "429", "503"})
        entry["responses"][status] = {{"description", "an error: one sentence with the reason"}};
    }
    paths[route.path][is_post ? "post" : "get"] = entry;
  }
  co_return Reply{.body = nlohmann::ordered_json{
                      {"openapi", "3.1.0"},
                      {"info", {{"title", "roformer serve"}, {"version", ROFORMER_VERSION}}},
                      {"paths",
                       paths}}.dump()};
}

}  // namespace rf::server
