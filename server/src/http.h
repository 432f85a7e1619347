// Requests, replies and errors of the server.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rf::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;

using HttpRequest = http::request<http::string_body>;

// The form of a route's errors.
enum class Dialect { kOpenAi, kTei };

// An error with the status that the client sees.
class HttpError : public std::runtime_error {
 public:
  HttpError(http::status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  http::status status() const { return status_; }

 private:
  http::status status_;
};

struct Reply {
  http::status status = http::status::ok;
  std::string body{};
  std::string type = "application/json";  // "": no body
  bool closes = false;                    // the connection: the start of the next request is unknown
  int64_t tokens = 0;                     // that were computed, for the log
  int retry_after = 0;                    // seconds; 0: not said
  std::vector<std::pair<const char*, std::string>> fields{};  // further fields of the header
  // The next part of a body that is sent while it is made; nullopt at its end. `body` is its first part.
  std::function<asio::awaitable<std::optional<std::string>>()> next{};
};

// The body of an error, in the dialect's form.
std::string error_body(Dialect dialect, http::status status, const std::string& message);

}  // namespace rf::server
