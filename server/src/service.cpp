// Requests to routes, and errors to replies (service.h).
#include "service.h"

#include <fmt/format.h>
#include <omp.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <fstream>

#include "rf/engine/names.h"
#include "rf/io/error.h"
#include "rf/io/json_field.h"
#include "rf/io/printable.h"
#include "rf/io/processors.h"

namespace rf::server {

namespace {

constexpr const char* kServeWhere = "serve";
constexpr double kBatchSeconds = 0.12;

int threads_of(const ServerOptions& options) {
  return options.threads > 0 ? options.threads : io::available_processors();
}

std::vector<std::string> read_keys(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && !line.starts_with('#')) keys.push_back(line);
  }
  if (keys.empty())
    fail(path, "must have a key on at least one line, got {}", file.is_open() ? "none" : "no such file");
  return keys;
}

std::shared_ptr<const Models> open_models(const ServerOptions& options, Metrics& metrics) {
  if (options.models.empty()) fail<ArgumentError>(kServeWhere, "a model must be given, got none");
  Models models;
  for (const ModelDirectory& each : options.models) {
    const bool is_known = std::ranges::any_of(models, [&](const auto& other) { return other->name() == each.name; });
    if (is_known)
      fail<ArgumentError>(kServeWhere, "models must have different names, got {} twice", io::printable(each.name));
    models.push_back(std::make_unique<ServedModel>(each, options, metrics));
  }
  const auto generates = [](const auto& model) { return model->kind() == std::string_view("generator"); };
  const bool has_generator = std::ranges::any_of(models, generates);
  if (!options.draft.empty() && !has_generator)
    fail<ArgumentError>(kServeWhere, "a draft must be with a model that generates, got none");
  if (options.cache_precision != engine::CachePrecision::kAuto && !has_generator) {
    fail<ArgumentError>(kServeWhere, "cache_precision must be auto without a model that generates, got {}",
                        name_in(engine::kCachePrecisionNames, options.cache_precision));
  }
  // Ends the OpenMP threads that have read the weights. With more threads than processors, libgomp lets the queue's
  // threads sleep immediately, and each parallel region of a pass has to wake them.
  ::omp_pause_resource_all(omp_pause_soft);
  return std::make_shared<const Models>(std::move(models));
}

// The time reveals at most the length of the key.
bool is_equal(const std::string& key, std::string_view given) {
  return key.size() == given.size() && CRYPTO_memcmp(key.data(), given.data(), given.size()) == 0;
}

// A violation of HTTP's rules in a header that the parser accepts.
std::optional<std::pair<http::status, std::string>> fault_of(const HttpRequest& request) {
  const bool is_1_1 = request.version() >= 11;
  if (const auto hosts = request.count(http::field::host); hosts > 1 || (is_1_1 && hosts == 0))
    return std::pair(http::status::bad_request, fmt::format("a request must have one Host, got {}", hosts));
  // The parser accepts several equal values.
  if (const std::string_view length = request[http::field::content_length];
      request.count(http::field::content_length) > 1 || length.find(',') != std::string_view::npos)
    return std::pair(http::status::bad_request, "a request must have one Content-Length, got several");
  const std::string_view coding = request[http::field::transfer_encoding];
  if (request.count(http::field::transfer_encoding) > 0 && (!is_1_1 || !boost::beast::iequals(coding, "chunked")))
    return std::pair(http::status::not_implemented,
                     fmt::format("Transfer-Encoding must be chunked, and of HTTP/1.1, got {}", io::printable(coding)));
  if (const std::string_view expected = request[http::field::expect];
      !expected.empty() && !boost::beast::iequals(expected, "100-continue"))
    return std::pair(http::status::expectation_failed,
                     fmt::format("Expect must be 100-continue, got {}", io::printable(expected)));
  return std::nullopt;
}

Reply refusal(Dialect dialect, http::status status, const std::string& message) {
  return {.status = status,
          .body = error_body(dialect, status, message),
          .retry_after = status == http::status::too_many_requests ? 1 : 0};
}

const char* openai_type(http::status status) {
  if (status == http::status::too_many_requests) return "rate_limit_error";
  if (status == http::status::unauthorized) return "authentication_error";
  return static_cast<unsigned>(status) < 500 ? "invalid_request_error" : "server_error";
}

const char* tei_type(http::status status) {
  if (status == http::status::too_many_requests) return "Overloaded";
  return static_cast<unsigned>(status) < 500 ? "Validation" : "Backend";
}

}  // namespace

std::string error_body(Dialect dialect, http::status status, const std::string& message) {
  const std::string quoted = io::quoted_json(message);
  if (dialect == Dialect::kTei) return fmt::format("{{\"error\":{},\"error_type\":\"{}\"}}", quoted, tei_type(status));
  return fmt::format("{{\"error\":{{\"message\":{},\"type\":\"{}\",\"param\":null,\"code\":{}}}}}", quoted,
                     openai_type(status), static_cast<unsigned>(status));
}

Service::Service(const ServerOptions& given)
    : options(given),
      models(open_models(options, metrics)),
      work(threads_of(options),
           {.token_budget = options.token_budget, .batch_s = kBatchSeconds, .max_tokens = options.max_queued_tokens},
           metrics),
      memory(options.max_memory_bytes),
      keys_(read_keys(options.api_key_file)) {}

const ServedModel& Call::model(const std::string& name) const {
  if (name.empty()) return *models->front();
  std::string known;
  for (const auto& each : *models) {
    if (each->name() == name) return *each;
    known += (known.empty() ? "" : ", ") + each->name();
  }
  throw HttpError(http::status::not_found, fmt::format("model must be one of {}, got {}", known, io::printable(name)));
}

asio::awaitable<void> Service::reload() {
  std::string outcome = R"("models were opened again")";
  try {
    std::vector<std::string> keys = read_keys(options.api_key_file);
    models = co_await work.in_pool([this] { return open_models(options, metrics); });
    keys_ = std::move(keys);
  } catch (const std::exception& error) {
    outcome = io::quoted_json(error.what());
  }
  if (options.log) options.log(fmt::format(R"({{"event":"reload","outcome":{}}})", outcome));
}

bool Service::may_call(const HttpRequest& request) const {
  if (keys_.empty()) return true;
  std::string_view given = request[http::field::authorization];
  constexpr std::string_view kScheme = "Bearer ";
  if (!boost::beast::iequals(given.substr(0, kScheme.size()), kScheme)) return false;
  given.remove_prefix(kScheme.size());
  bool is_known = false;
  for (const std::string& key : keys_) is_known |= is_equal(key, given);
  return is_known;
}

std::optional<Reply> Service::reply_to_header(const HttpRequest& request) const {
  if (const auto fault = fault_of(request)) {
    Reply reply = refusal(Dialect::kOpenAi, fault->first, fault->second);
    reply.closes = true;
    return reply;
  }
  std::string allowed;
  const Route* const route = find_route(request.method(), request.target(), allowed);
  if (route == nullptr) {
    const std::string path = io::printable(path_of(request.target()));
    if (allowed.empty())
      return refusal(Dialect::kOpenAi, http::status::not_found, fmt::format("no route has the path {}", path));
    Reply reply{.status = http::status::no_content, .type = ""};
    if (request.method() != http::verb::options)
      reply = refusal(Dialect::kOpenAi, http::status::method_not_allowed, fmt::format("{} takes {}", path, allowed));
    reply.fields = {{"Allow", allowed}};
    return reply;
  }
  if (!route->is_open && !may_call(request)) {
    Reply reply =
        refusal(route->dialect, http::status::unauthorized, "a valid key must be sent as Authorization: Bearer KEY");
    reply.fields = {{"WWW-Authenticate", "Bearer"}};
    return reply;
  }
  const std::string_view encoding = request[http::field::content_encoding];
  if (!encoding.empty() && encoding != "identity")
    return refusal(route->dialect, http::status::unsupported_media_type,
                   fmt::format("a body must not be encoded, got {}", io::printable(encoding)));
  return std::nullopt;
}

asio::awaitable<Reply> Service::reply(const HttpRequest& request, std::shared_ptr<const Models> present) {
  std::string allowed;
  const Route* const route = find_route(request.method(), request.target(), allowed);
  try {
    Call call{.request = request, .models = std::move(present)};
    if (route->verb == http::verb::post)
      call.body = co_await work.in_pool([&] { return parse_object(request.body()); });
    // Where clients of Hugging Face write further fields.
    if (const auto found = call.body.find("parameters"); route->dialect == Dialect::kTei && found != call.body.end()) {
      const nlohmann::json parameters = *found;
      if (parameters.is_object()) call.body.insert(parameters.begin(), parameters.end());
    }
    co_return co_await route->handle(*this, call);
  } catch (const HttpError& error) {
    co_return refusal(route->dialect, error.status(), error.what());
  } catch (const engine::RequestCancelled&) {
    co_return refusal(route->dialect, http::status::service_unavailable, "the server stops");
  } catch (const Error& error) {
    co_return refusal(route->dialect, http::status::bad_request, error.what());
  } catch (const std::bad_alloc&) {
    co_return refusal(route->dialect, http::status::payload_too_large, "the request needs more memory than there is");
  } catch (const std::exception& error) {
    co_return refusal(route->dialect, http::status::internal_server_error, error.what());
  }
}

}  // namespace rf::server
