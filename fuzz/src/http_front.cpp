// A connection over a pair of sockets (http_front.h).
#include "http_front.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "connection.h"

namespace rf::fuzz {

namespace {

namespace asio = boost::asio;
using Socket = asio::local::stream_protocol::socket;

asio::awaitable<void> exchange(Socket& client, std::string_view bytes, std::string& got) {
  boost::system::error_code error;
  co_await asio::async_write(client, asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, error));
  client.shutdown(Socket::shutdown_send, error);
  co_await asio::async_read(client, asio::dynamic_buffer(got), asio::redirect_error(asio::use_awaitable, error));
}

}  // namespace

std::string served(const std::string& model_dir, std::string_view bytes) {
  static server::Service service({.models = {{"m", model_dir}},
                                  .max_body_bytes = 4096,
                                  .token_budget = 64,
                                  .threads = 1,
                                  .idle = std::chrono::seconds(1),
                                  .receive = std::chrono::seconds(1),
                                  .deadline = std::chrono::seconds(5)});
  asio::io_context context(1);
  Socket client(context), end(context);
  asio::local::connect_pair(client, end);
  const asio::generic::stream_protocol protocol(end.local_endpoint().protocol());
  server::Stream::socket_type own(context, protocol, end.release());
  asio::co_spawn(context, server::serve_connection(server::Stream(std::move(own)), service), asio::detached);
  std::string got;
  asio::co_spawn(context, exchange(client, bytes, got), asio::detached);
  context.run();
  return got;
}

}  // namespace rf::fuzz
