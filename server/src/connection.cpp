// Connections (connection.h).
#include "connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/version.hpp>
#include <cerrno>
#include <chrono>
#include <type_traits>

#include "rf/io/json_field.h"

namespace rf::server {

namespace {

using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

constexpr uint32_t kMostHeaderBytes = 16 * 1024;

// Ends when the client has closed the connection.
asio::awaitable<void> until_closed(Stream::socket_type& client) {
  constexpr auto kInterval = std::chrono::milliseconds(50);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const int socket = client.native_handle();
  for (;;) {
    timer.expires_after(kInterval);
    co_await timer.async_wait(asio::use_awaitable);
    char byte = 0;
    const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) co_return;
  }
}

asio::awaitable<Reply> late(std::chrono::seconds deadline) {
  asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
  co_await timer.async_wait(asio::use_awaitable);
  const std::string message =
      fmt::format("a request must be done within {} seconds, got one that takes longer", deadline.count());
  co_return Reply{.status = http::status::gateway_timeout,
                  .body = error_body(Dialect::kOpenAi, http::status::gateway_timeout, message)};
}

// What a client gets whose bytes are not a request that this server takes; nullopt: it has left.
std::optional<Reply> refusal_of(const boost::system::error_code& error, const Service& service) {
  const auto refuse = [](http::status status, const std::string& message) {
    return Reply{.status = status, .body = error_body(Dialect::kOpenAi, status, message)};
  };
  if (error == http::error::end_of_stream || error == boost::asio::error::eof ||
      error == boost::beast::error::timeout || error == http::error::partial_message ||
      error.category() != make_error_code(http::error::bad_line_ending).category())
    return std::nullopt;
  if (error == http::error::body_limit)
    return refuse(http::status::payload_too_large,
                  fmt::format("a body must have at most {} bytes, got more", service.options.max_body_bytes));
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(http::status::request_header_fields_too_large,
                  fmt::format("a header must have at most {} bytes, got more", kMostHeaderBytes));
  return refuse(http::status::bad_request, "a request must be HTTP/1.1, got: " + error.message());
}

// Layer: Stream or TlsStream.
template <typename Layer>
class Connection {
 public:
  Connection(Layer stream, Service& service) : stream_(std::move(stream)), service_(service) {}

  // Until the client leaves; while the server stops, until no request has arrived.
  asio::awaitable<void> run() {
    boost::system::error_code ignored;
    if constexpr (std::is_same_v<Layer, TlsStream>) {
      socket().expires_after(service_.options.receive);
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, ignored));
      if (ignored) co_return;
    }
    while (co_await serve_one()) {
    }
    socket().socket().shutdown(asio::socket_base::shutdown_send, ignored);
  }

 private:
  Stream& socket() { return boost::beast::get_lowest_layer(stream_); }

  // False: the connection must end.
  asio::awaitable<bool> serve_one() {
    Parser parser;
    parser.header_limit(kMostHeaderBytes);
    parser.body_limit(static_cast<uint64_t>(service_.options.max_body_bytes));
    if (const auto error = co_await receive(parser)) {
      std::optional<Reply> reply = refusal_of(error, service_);
      if (reply) co_await send(std::move(*reply), parser.get(), false);
      co_return false;
    }
    const HttpRequest request = parser.release();
    const Clock::time_point start = Clock::now();
    const Counted counted(service_.metrics.active);
    std::optional<Reply> reply = co_await reply_to(request);
    const int64_t tokens = reply ? reply->tokens : 0;
    const int status = reply ? static_cast<int>(reply->status) : kClientLeft;
    bool stays = reply.has_value();
    if (reply) stays = co_await send(std::move(*reply), request, request.keep_alive());
    note(request, status, std::chrono::duration<double>(Clock::now() - start).count(), tokens);
    co_return stays;
  }

  asio::awaitable<boost::system::error_code> receive(Parser& parser) {
    boost::system::error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    // The first byte may take long; what follows may not.
    if (buffer_.size() == 0 && !co_await request_begins()) co_return asio::error::eof;
    socket().expires_after(service_.options.receive);
    co_await http::async_read_header(stream_, buffer_, parser, token);
    if (error) co_return error;
    if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, parser.get().version());
      co_await http::async_write(stream_, go_on, token);
      if (error) co_return error;
    }
    co_await http::async_read(stream_, buffer_, parser, token);
    co_return error;
  }

  // Reads the first bytes of a request. False: none came within the time, or the server stops.
  asio::awaitable<bool> request_begins() {
    constexpr size_t kRead = 4096;
    boost::system::error_code error = asio::error::operation_aborted;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    if (!service_.is_draining) {
      socket().expires_after(service_.options.idle);
      service_.end_idle[this] = [this] { socket().cancel(); };
      buffer_.commit(co_await stream_.async_read_some(buffer_.prepare(kRead), token));
      service_.end_idle.erase(this);
    }
    char byte = 0;
    const bool has_arrived = ::recv(socket().socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    if (error == asio::error::operation_aborted && has_arrived) {
      socket().expires_after(service_.options.receive);
      buffer_.commit(co_await stream_.async_read_some(buffer_.prepare(kRead), token));
    }
    co_return !error;
  }

  // nullopt: the client left.
  asio::awaitable<std::optional<Reply>> reply_to(const HttpRequest& request) {
    using namespace asio::experimental::awaitable_operators;
    socket().expires_never();
    std::variant<Reply, std::monostate, Reply> first =
        co_await (asio::co_spawn(service_.work.executor(request.body().size()),
                                 service_.reply(request, service_.models), asio::use_awaitable) ||
                  until_closed(socket().socket()) || late(service_.options.deadline));
    if (Reply* const reply = std::get_if<0>(&first)) co_return std::move(*reply);
    if (Reply* const reply = std::get_if<2>(&first)) co_return std::move(*reply);
    co_return std::nullopt;
  }

  template <typename Body>
  void set_fields(http::response<Body>& response, const Reply& reply, const HttpRequest& request,
                  bool keep_alive) const {
    response.result(reply.status);
    response.version(request.version());
    response.keep_alive(keep_alive);
    response.set(http::field::server, "roformer");
    response.set(http::field::content_type, reply.type);
    if (reply.retry_after > 0) response.set(http::field::retry_after, std::to_string(reply.retry_after));
    if (!reply.allow.empty()) response.set(http::field::allow, reply.allow);
    if (const auto trace = request.find("traceparent"); trace != request.end())
      response.set("traceparent", trace->value());
    const std::string_view origin = request[http::field::origin];
    const auto& allowed = service_.options.origins;
    if (!origin.empty() &&
        (std::ranges::find(allowed, origin) != allowed.end() || std::ranges::find(allowed, "*") != allowed.end())) {
      response.set(http::field::access_control_allow_origin, origin);
      response.set(http::field::vary, "Origin");
    }
  }

  asio::awaitable<bool> send(Reply reply, const HttpRequest& request, bool keep_alive) {
    if (reply.next) co_return co_await send_parts(std::move(reply), request);
    boost::system::error_code error;
    http::response<http::string_body> response;
    set_fields(response, reply, request, keep_alive);
    response.content_length(reply.body.size());
    if (request.method() != http::verb::head) response.body() = std::move(reply.body);
    socket().expires_after(service_.options.receive);
    http::response_serializer<http::string_body> serializer(response);
    co_await http::async_write(stream_, serializer, asio::redirect_error(asio::use_awaitable, error));
    co_return !error && keep_alive;
  }

  // In chunks; ends the connection, so that a text which breaks off is noticed.
  asio::awaitable<bool> send_parts(Reply reply, const HttpRequest& request) {
    using namespace asio::experimental::awaitable_operators;
    boost::system::error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    http::response<http::empty_body> response;
    set_fields(response, reply, request, false);
    response.set(http::field::cache_control, "no-cache");
    response.chunked(true);
    http::response_serializer<http::empty_body> serializer(response);
    socket().expires_after(service_.options.receive);
    co_await http::async_write_header(stream_, serializer, token);
    try {
      while (!error) {
        socket().expires_never();
        const auto next = co_await (reply.next() || until_closed(socket().socket()));
        if (next.index() == 1) break;
        const std::optional<std::string>& part = std::get<0>(next);
        socket().expires_after(service_.options.receive);
        if (!part) {
          co_await asio::async_write(stream_, http::make_chunk_last(), token);
          break;
        }
        co_await asio::async_write(stream_, http::make_chunk(asio::buffer(*part)), token);
      }
    } catch (const std::exception&) {
      // The client sees a body without its end.
    }
    co_return false;
  }

  void note(const HttpRequest& request, int status, double seconds, int64_t tokens) {
    std::string allowed;
    const Route* const route = find_route(request.method(), request.target(), allowed);
    service_.metrics.count(route == nullptr ? "other" : route->path, status, seconds, tokens);
    if (!service_.options.log || !service_.options.log_requests) return;
    const std::string trace(request["traceparent"]);
    service_.options.log(fmt::format(R"({{"method":{},"path":{},"status":{},"seconds":{:.6f},"tokens":{}{}}})",
                                     io::quoted_json(std::string(request.method_string())),
                                     io::quoted_json(std::string(path_of(request.target()))), status, seconds, tokens,
                                     trace.empty() ? "" : ",\"traceparent\":" + io::quoted_json(trace)));
  }

  static constexpr int kClientLeft = 499;  // as nginx calls it

  Layer stream_;
  Service& service_;
  boost::beast::flat_buffer buffer_{kMostHeaderBytes * 4};
};

template <typename Layer>
asio::awaitable<void> run(Layer stream, Service& service) {
  const Counted counted(service.metrics.connections);
  Connection<Layer> connection(std::move(stream), service);
  try {
    co_await connection.run();
  } catch (const std::exception&) {
    // The connection ends; other clients are served.
  }
}

}  // namespace

asio::awaitable<void> serve_connection(Stream stream, Service& service) { return run(std::move(stream), service); }

asio::awaitable<void> serve_connection(TlsStream stream, Service& service) { return run(std::move(stream), service); }

}  // namespace rf::server
