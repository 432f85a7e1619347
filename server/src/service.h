// The service behind the server: its models, its work, and its table of routes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fields.h"
#include "http.h"
#include "memory.h"
#include "metrics.h"
#include "rf/server/server.h"
#include "served_model.h"
#include "work.h"

namespace rf::server {

using Models = std::vector<std::unique_ptr<ServedModel>>;

class Service {
 public:
  // Opens the models. Throws Error for the first that cannot be opened, and for a file of keys without a key.
  explicit Service(const ServerOptions& options);

  // The reply to a request that its header alone decides: a refusal, or the reply to OPTIONS.
  std::optional<Reply> reply_to_header(const HttpRequest& request) const;
  // The reply to another request, of the present models; errors are replies too. In any thread.
  asio::awaitable<Reply> reply(const HttpRequest& request, std::shared_ptr<const Models> present);
  // Opens the models and the file of keys again, as at SIGHUP. Requests that have begun keep the old ones, and all do
  // if one cannot be opened.
  asio::awaitable<void> reload();

  const ServerOptions options;
  Metrics metrics;
  std::shared_ptr<const Models> models;
  Work work;
  Memory memory;
  std::atomic<bool> is_draining = false;
  // Connections that wait for a request or for the rest of one, the longest waiting first.
  struct Waiting {
    std::function<void()> end;
    bool is_idle;  // nothing of a request has come
  };
  std::map<uint64_t, Waiting> waiting;
  uint64_t next_waiting = 0;

 private:
  bool may_call(const HttpRequest& request) const;

  std::vector<std::string> keys_;
};

struct Call {
  const HttpRequest& request;
  std::shared_ptr<const Models> models;
  nlohmann::json body{};  // an object; of POST

  // The model that "model" names, by default the first. Throws HttpError, 404, for an unknown one.
  const ServedModel& model(const Fields& fields) const { return model(fields.text_or("model", "")); }
  const ServedModel& model(const std::string& name) const;
};

struct Route {
  http::verb verb;
  const char* path;  // "/x/" also means "/x/NAME"
  Dialect dialect;
  asio::awaitable<Reply> (*handle)(Service& service, const Call& call);
  const char* summary;
  bool is_open = false;  // without a key
};

// All routes (routes.cpp).
std::span<const Route> routes();
// The route of a request; nullptr if the path or the method is unknown. allowed: receives the methods of the path.
const Route* find_route(http::verb verb, std::string_view target, std::string& allowed);
// The path of a target, without the server's name and the query.
std::string_view path_of(std::string_view target);

}  // namespace rf::server
