// The process: sockets, signals and the end (rf/server/server.h).
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <utility>

#include "connection.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::server {

namespace {

constexpr const char* kListenWhere = "serve";

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using Tcp = asio::ip::tcp;
using Unix = asio::local::stream_protocol;

struct Listener {
  Acceptor acceptor;
  std::string address;
};

// A socket file without a server is left over and is replaced.
void remove_dead_socket(asio::io_context& context, const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return;
  if (!S_ISSOCK(found.st_mode))
    fail(kListenWhere, "--unix-socket must not exist, got the file {}", io::printable(path));
  Unix::socket probe(context);
  boost::system::error_code error;
  probe.connect(Unix::endpoint(path), error);
  if (!error) fail(kListenWhere, "the socket must be free, got another server at {}", io::printable(path));
  ::unlink(path.c_str());
}

template <typename Endpoint>
Acceptor bind(asio::io_context& context, const Endpoint& endpoint) {
  Acceptor acceptor(context);
  acceptor.open(asio::generic::stream_protocol(endpoint.protocol()));
  acceptor.set_option(asio::socket_base::reuse_address(true));
  acceptor.bind(endpoint);
  acceptor.listen();
  return acceptor;
}

Listener listen(asio::io_context& context, const ServerOptions& options) {
  try {
    if (!options.unix_socket.empty()) {
      remove_dead_socket(context, options.unix_socket);
      return {bind(context, Unix::endpoint(options.unix_socket)), "unix:" + options.unix_socket};
    }
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) fail(kListenWhere, "--host must be an IP address, got {}", io::printable(options.host));
    Tcp::acceptor acceptor(context, {address, options.port});
    const Tcp::endpoint bound = acceptor.local_endpoint();
    const int socket = acceptor.release();
    const std::string host = address.is_v6() ? fmt::format("[{}]", address.to_string()) : address.to_string();
    return {Acceptor(context, asio::generic::stream_protocol(bound.protocol()), socket),
            fmt::format("http://{}:{}", host, bound.port())};
  } catch (const boost::system::system_error& error) {
    const std::string place =
        options.unix_socket.empty() ? fmt::format("port {} of {}", options.port, options.host) : options.unix_socket;
    fail(kListenWhere, "the server must be able to listen, got for {}: {}", io::printable(place),
         error.code().message());
  }
}

// All connections are served in one thread, which never computes.
asio::awaitable<void> accept_all(Acceptor& acceptor, Service& service) {
  for (;;) {
    boost::system::error_code error;
    auto socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {
      // Out of descriptors, most likely: others end first.
      asio::steady_timer pause(acceptor.get_executor(), std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::use_awaitable);
      continue;
    }
    asio::co_spawn(acceptor.get_executor(), serve_connection(Stream(std::move(socket)), service), asio::detached);
  }
}

// At a signal: clients that are connected get the replies to what they have sent, and no new ones are taken. A second
// signal, or the end of options.drain, ends the rest.
asio::awaitable<void> end_at_signal(asio::io_context& context, Acceptor& acceptor, Service& service) {
  asio::signal_set signals(context, SIGTERM, SIGINT);
  co_await signals.async_wait(asio::use_awaitable);
  bool is_hurried = false;
  signals.async_wait([&is_hurried](const boost::system::error_code& error, int) { is_hurried = !error; });
  service.is_draining = true;
  boost::system::error_code error;
  acceptor.cancel(error);
  acceptor.non_blocking(true, error);
  while (!error) {
    auto socket = acceptor.accept(context, error);
    if (!error) asio::co_spawn(context, serve_connection(Stream(std::move(socket)), service), asio::detached);
  }
  acceptor.close(error);
  for (const auto& [_, end] : service.end_idle) end();
  const auto end = std::chrono::steady_clock::now() + service.options.drain;
  asio::steady_timer timer(context);
  while (service.metrics.connections > 0 && !is_hurried && std::chrono::steady_clock::now() < end) {
    constexpr auto kInterval = std::chrono::milliseconds(5);
    timer.expires_after(kInterval);
    co_await timer.async_wait(asio::use_awaitable);
  }
  service.work.stop();
  context.stop();
}

}  // namespace

void serve(const ServerOptions& options, const std::function<void(const std::string&)>& ready) {
  std::signal(SIGPIPE, SIG_IGN);
  Service service(options);
  asio::io_context context(1);
  Listener listener = listen(context, options);
  asio::co_spawn(context, accept_all(listener.acceptor, service), asio::detached);
  asio::co_spawn(context, end_at_signal(context, listener.acceptor, service), asio::detached);
  ready(listener.address);
  context.run();
  if (!options.unix_socket.empty()) ::unlink(options.unix_socket.c_str());
}

}  // namespace rf::server
