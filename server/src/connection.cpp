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
#include <map>
#include <type_traits>

#include "rf/io/json_field.h"

namespace rf::server {

namespace {

using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

constexpr uint32_t kMostHeaderBytes = 16 * 1024;
// A body, its JSON, texts and tokens: short texts and numbers take much more memory than their bytes.
constexpr int64_t kMemoryPerByte = 64;

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

// The reply to bytes that are not a request for this server; nullopt: the client has left.
std::optional<Reply> refusal_of(const boost::system::error_code& error, const Service& service) {
  const auto refuse = [](http::status status, const std::string& message) {
    return Reply{.status = status, .body = error_body(Dialect::kOpenAi, status, message)};
  };
  if (error == boost::system::errc::not_enough_memory) {
    Reply reply = refuse(http::status::too_many_requests, service.memory.rule());
    reply.retry_after = 1;
    return reply;
  }
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
    if constexpr (kIsTls) {
      const Waiting waiting(*this, false);
      socket().expires_after(service_.options.receive);
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, ignored));
      if (ignored) co_return;
    }
    while (co_await serve_one()) {
    }
    if (!lingers_ || service_.is_draining) {
      socket().socket().shutdown(asio::socket_base::shutdown_send, ignored);
      co_return;
    }
    const Waiting waiting(*this, true);
    socket().expires_after(service_.options.receive);
    if constexpr (kIsTls) co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
    socket().socket().shutdown(asio::socket_base::shutdown_send, ignored);
    // A client that still sends would not read the reply if the connection were closed immediately.
    for (buffer_.clear(); !ignored; buffer_.clear())
      co_await socket().async_read_some(buffer_.prepare(kMostHeaderBytes),
                                        asio::redirect_error(asio::use_awaitable, ignored));
  }

 private:
  static constexpr bool kIsTls = std::is_same_v<Layer, TlsStream>;
  static constexpr size_t kRead = 4096;

  // While it lives, the server may end the connection to make room for others.
  class Waiting {
   public:
    Waiting(Connection& connection, bool is_idle)
        : all_(connection.service_.waiting), number_(connection.service_.next_waiting++) {
      all_[number_] = {.end = [&connection] { connection.socket().cancel(); }, .is_idle = is_idle};
    }
    ~Waiting() { all_.erase(number_); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    std::map<uint64_t, Service::Waiting>& all_;
    const uint64_t number_;
  };

  Stream& socket() { return boost::beast::get_lowest_layer(stream_); }

  // False: the connection must end.
  asio::awaitable<bool> serve_one() {
    lingers_ = false;
    Parser parser;
    parser.header_limit(kMostHeaderBytes);
    parser.body_limit(static_cast<uint64_t>(service_.options.max_body_bytes));
    Memory::Share held(service_.memory);
    std::optional<Reply> early;
    if (const auto error = co_await receive(parser, held, early)) {
      std::optional<Reply> reply = refusal_of(error, service_);
      lingers_ = reply.has_value();
      if (!reply) co_return false;
      note(parser.get(), static_cast<int>(reply->status), 0, 0);
      co_await send(std::move(*reply), parser.get(), false);
      co_return false;
    }
    const bool is_whole = parser.is_done();
    const HttpRequest request = parser.release();
    const Clock::time_point start = Clock::now();
    const Counted counted(service_.metrics.active);
    std::optional<Reply> reply = std::move(early);
    if (!reply) reply = co_await reply_to(request);
    const int64_t tokens = reply ? reply->tokens : 0;
    const int status = reply ? static_cast<int>(reply->status) : kClientLeft;
    bool stays = reply.has_value();
    if (reply) static_cast<void>(held.fits_after(std::ssize(reply->body)));
    const bool may_stay = request.keep_alive() && is_whole && reply && !reply->closes;
    if (reply) stays = co_await send(std::move(*reply), request, may_stay);
    lingers_ = reply.has_value();
    note(request, status, std::chrono::duration<double>(Clock::now() - start).count(), tokens);
    co_return stays;
  }

  // early: the reply to a header, whose body is not read.
  asio::awaitable<boost::system::error_code> receive(Parser& parser, Memory::Share& held, std::optional<Reply>& early) {
    boost::system::error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    // The first byte may take long; the others have a time limit.
    if (buffer_.size() == 0 && !co_await request_begins()) co_return asio::error::eof;
    const Waiting waiting(*this, false);
    socket().expires_after(service_.options.receive);
    co_await http::async_read_header(stream_, buffer_, parser, token);
    if (error) co_return error;
    early = service_.reply_to_header(parser.get());
    if (early) co_return error;
    if (parser.get().version() >= 11 && boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, parser.get().version());
      co_await http::async_write(stream_, go_on, token);
      if (error) co_return error;
    }
    while (!error && !parser.is_done()) {
      const size_t before = parser.get().body().size();
      co_await http::async_read_some(stream_, buffer_, parser, token);
      if (!held.fits_after(kMemoryPerByte * static_cast<int64_t>(parser.get().body().size() - before)))
        co_return make_error_code(boost::system::errc::not_enough_memory);
    }
    co_return error;
  }

  // Reads the first bytes of a request. False if none came: the time ran out, the client left, or the server stops.
  asio::awaitable<bool> request_begins() {
    boost::system::error_code error = asio::error::operation_aborted;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    if (!service_.is_draining) {
      socket().expires_after(service_.options.idle);
      const Waiting waiting(*this, true);
      buffer_.commit(co_await stream_.async_read_some(buffer_.prepare(kRead), token));
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
    if (!reply.type.empty()) response.set(http::field::content_type, reply.type);
    if (reply.retry_after > 0) response.set(http::field::retry_after, std::to_string(reply.retry_after));
    response.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : reply.fields) response.set(name, value);
    if (const auto trace = request.find("traceparent"); trace != request.end())
      response.set("traceparent", trace->value());
    const std::string_view origin = request[http::field::origin];
    const auto& allowed = service_.options.origins;
    if (!origin.empty() &&
        (std::ranges::find(allowed, origin) != allowed.end() || std::ranges::find(allowed, "*") != allowed.end())) {
      response.set(http::field::access_control_allow_origin, origin);
      response.set(http::field::vary, "Origin");
      if (request.method() == http::verb::options) {
        response.set(http::field::access_control_allow_methods, "GET, POST");
        response.set(http::field::access_control_allow_headers, "authorization, content-type, traceparent");
        response.set(http::field::access_control_max_age, "600");
      }
    }
  }

  asio::awaitable<bool> send(Reply reply, const HttpRequest& request, bool keep_alive) {
    if (reply.next) co_return co_await send_parts(std::move(reply), request);
    boost::system::error_code error;
    http::response<http::string_body> response;
    set_fields(response, reply, request, keep_alive);
    if (!reply.type.empty()) response.content_length(reply.body.size());
    if (request.method() != http::verb::head) response.body() = std::move(reply.body);
    socket().expires_after(service_.options.receive);
    http::response_serializer<http::string_body> serializer(response);
    co_await http::async_write(stream_, serializer, asio::redirect_error(asio::use_awaitable, error));
    co_return !error && keep_alive;
  }

  // In chunks, which HTTP/1.0 does not know; ends the connection, so that a text which breaks off is noticed.
  asio::awaitable<bool> send_parts(Reply reply, const HttpRequest& request) {
    using namespace asio::experimental::awaitable_operators;
    boost::system::error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    http::response<http::empty_body> response;
    set_fields(response, reply, request, false);
    response.set(http::field::cache_control, "no-cache");
    const bool chunked = request.version() >= 11;
    response.chunked(chunked);
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
        if (part && !chunked) {
          co_await asio::async_write(stream_, asio::buffer(*part), token);
        } else if (part) {
          co_await asio::async_write(stream_, http::make_chunk(asio::buffer(*part)), token);
        } else {
          if (chunked) co_await asio::async_write(stream_, http::make_chunk_last(), token);
          break;
        }
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

  bool lingers_ = false;  // a reply was sent last
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
