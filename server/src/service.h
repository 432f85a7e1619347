// What the server answers: its models, its work, and its table of routes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fields.h"
#include "http.h"
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

  // The reply to a request, of the present models; errors are replies too. In any thread.
  asio::awaitable<Reply> reply(const HttpRequest& request, std::shared_ptr<const Models> present);
  // Opens the models again, as at SIGHUP. Requests that have begun keep the old ones, and all do if one cannot be
  // opened.
  asio::awaitable<void> reload();

  const ServerOptions options;
  std::shared_ptr<const Models> models;
  Work work;
  Metrics metrics;
  std::atomic<bool> is_draining = false;
  // Each ends a connection that waits for a request; by connection.
  std::map<const void*, std::function<void()>> end_idle;

 private:
  bool may_call(const HttpRequest& request) const;

  std::vector<std::string> keys_;
};

struct Call {
  const HttpRequest& request;
  std::shared_ptr<const Models> models;
  nlohmann::json body{};  // an object; of POST

  // The model that "model" names, by default the first. Throws HttpError, 404, for an unknown one.
  const ServedModel& model(const Fields& fields) const;
};

struct Route {
  http::verb verb;
  const char* path;
  Dialect dialect;
  asio::awaitable<Reply> (*handle)(Service& service, const Call& call);
  const char* summary;
  bool is_open = false;  // without a key
};

// All routes (routes.cpp).
std::span<const Route> routes();
// The route of a request; nullptr: none has the path or none the method, whose names `allowed` gets.
const Route* find_route(http::verb verb, std::string_view target, std::string& allowed);
// The path of a target, without its query.
std::string_view path_of(std::string_view target);

}  // namespace rf::server
