// The process: sockets, signals and the end (rf/server/server.h).
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <memory>
#include <utility>

#include "connection.h"
#include "rf/io/error.h"
#include "rf/io/json_field.h"
#include "rf/io/printable.h"
#include "systemd.h"

namespace rf::server {

namespace {

constexpr const char* kListenWhere = "serve";

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using Tcp = asio::ip::tcp;
using Unix = asio::local::stream_protocol;

using Tls = asio::ssl::context;

struct Listener {
  Acceptor acceptor;
  std::string address;
  std::string file{};          // of a Unix socket, removed at the end
  std::shared_ptr<Tls> tls{};  // null: HTTP
};

// Null without a certificate. Throws Error for files that are not a certificate and its key.
std::shared_ptr<Tls> read_tls(const ServerOptions& options) {
  if (options.certificate.empty()) return nullptr;
  auto tls = std::make_shared<Tls>(Tls::tls_server);
  tls->set_options(Tls::default_workarounds | Tls::no_tlsv1 | Tls::no_tlsv1_1 | Tls::no_compression |
                   SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_cipher_list(tls->native_handle(), "ECDHE+AESGCM:ECDHE+CHACHA20");  // of TLS 1.2
  const auto read = [](const std::string& path, const auto& use) {
    try {
      use(path);
    } catch (const boost::system::system_error& error) {
      fail(path, "must be a PEM file of the certificate or of its key, got: {}", error.code().message());
    }
  };
  read(options.certificate, [&](const std::string& path) { tls->use_certificate_chain_file(path); });
  read(options.key, [&](const std::string& path) { tls->use_private_key_file(path, Tls::pem); });
  return tls;
}

void start(asio::io_context& context, const Listener& listener, Acceptor::protocol_type::socket socket,
           Service& service) {
  if (service.metrics.connections >= service.options.max_connections && !service.waiting.empty())
    service.waiting.extract(service.waiting.begin()).mapped().end();
  Stream stream(std::move(socket));
  if (listener.tls) {
    asio::co_spawn(context, serve_connection(TlsStream(std::move(stream), *listener.tls), service), asio::detached);
  } else {
    asio::co_spawn(context, serve_connection(std::move(stream), service), asio::detached);
  }
}

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

// The acceptor of a protocol as one of any.
template <typename Own>
Acceptor generic(asio::io_context& context, Own acceptor) {
  const asio::generic::stream_protocol protocol(acceptor.local_endpoint().protocol());
  return Acceptor(context, protocol, acceptor.release());
}

Listener listener_at(asio::io_context& context, Unix::acceptor acceptor) {
  std::string address = "unix:" + acceptor.local_endpoint().path();
  return {generic(context, std::move(acceptor)), std::move(address)};
}

Listener listener_at(asio::io_context& context, Tcp::acceptor acceptor, const ServerOptions& options) {
  const Tcp::endpoint bound = acceptor.local_endpoint();
  const asio::ip::address& address = bound.address();
  const std::string host = address.is_v6() ? fmt::format("[{}]", address.to_string()) : address.to_string();
  return {generic(context, std::move(acceptor)),
          fmt::format("{}://{}:{}", options.certificate.empty() ? "http" : "https", host, bound.port())};
}

// With the socket that systemd has opened.
Listener inherited_listener(asio::io_context& context, int socket, const ServerOptions& options) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size);
  if (bound.ss_family == AF_UNIX) return listener_at(context, Unix::acceptor(context, Unix(), socket));
  const Tcp protocol = bound.ss_family == AF_INET6 ? Tcp::v6() : Tcp::v4();
  return listener_at(context, Tcp::acceptor(context, protocol, socket), options);
}

Listener listen(asio::io_context& context, const ServerOptions& options) {
  try {
    if (const auto socket = inherited_socket()) return inherited_listener(context, *socket, options);
    if (!options.unix_socket.empty()) {
      remove_dead_socket(context, options.unix_socket);
      Listener listener = listener_at(context, Unix::acceptor(context, options.unix_socket));
      listener.file = options.unix_socket;
      return listener;
    }
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) fail(kListenWhere, "--host must be an IP address, got {}", io::printable(options.host));
    return listener_at(context, Tcp::acceptor(context, {address, options.port}), options);
  } catch (const boost::system::system_error& error) {
    const std::string place =
        options.unix_socket.empty() ? fmt::format("port {} of {}", options.port, options.host) : options.unix_socket;
    fail(kListenWhere, "the server must be able to listen, got for {}: {}", io::printable(place),
         error.code().message());
  }
}

// `wanted` connections, or fewer if file descriptors do not suffice, besides those of the models and the process.
int64_t allowed_connections(int64_t wanted) {
  constexpr int64_t kOthers = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, wanted + kOthers));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return std::clamp<int64_t>(static_cast<int64_t>(limit.rlim_cur) - kOthers, 1, wanted);
}

// All connections are served in one thread, which never computes.
asio::awaitable<void> accept_all(asio::io_context& context, Listener& listener, Service& service) {
  Acceptor& acceptor = listener.acceptor;
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
    start(context, listener, std::move(socket), service);
  }
}

// At a signal: connected clients get the replies to the requests that they have sent, and new clients are refused. A
// second signal, or the end of options.drain, ends the rest.
asio::awaitable<void> end_at_signal(asio::io_context& context, asio::signal_set& signals, Listener& listener,
                                    Service& service) {
  Acceptor& acceptor = listener.acceptor;
  co_await signals.async_wait(asio::use_awaitable);
  bool is_hurried = false;
  signals.async_wait([&is_hurried](const boost::system::error_code& error, int) { is_hurried = !error; });
  service.is_draining = true;
  notify_manager("STOPPING=1");
  boost::system::error_code error;
  acceptor.cancel(error);
  acceptor.non_blocking(true, error);
  while (!error) {
    auto socket = acceptor.accept(context, error);
    if (!error) start(context, listener, std::move(socket), service);
  }
  acceptor.close(error);
  for (const auto& [_, each] : service.waiting)
    if (each.is_idle) each.end();
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

asio::awaitable<void> reload_at_signal(asio::signal_set& signals, Listener& listener, Service& service) {
  for (;;) {
    co_await signals.async_wait(asio::use_awaitable);
    notify_reload();
    co_await service.reload();
    try {
      listener.tls = read_tls(service.options);
    } catch (const Error& error) {
      if (service.options.log)
        service.options.log(R"({"event":"reload","outcome":)" + io::quoted_json(error.what()) + '}');
    }
    notify_manager("READY=1");
  }
}

// From the thread of the connections: without it, systemd starts the server again.
asio::awaitable<void> feed_watchdog(asio::io_context& context, std::chrono::microseconds interval) {
  asio::steady_timer timer(context);
  for (;;) {
    notify_manager("WATCHDOG=1");
    timer.expires_after(interval);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

}  // namespace

void serve(const ServerOptions& given, const std::function<void(const std::string&)>& ready) {
  std::signal(SIGPIPE, SIG_IGN);
  ServerOptions options = given;
  options.max_connections = allowed_connections(given.max_connections);
  auto tls = read_tls(options);  // before models, which take longer
  Service service(options);
  asio::io_context context(1);
  Listener listener = listen(context, options);
  listener.tls = std::move(tls);
  asio::co_spawn(context, accept_all(context, listener, service), asio::detached);
  asio::signal_set end(context, SIGTERM, SIGINT), reload(context, SIGHUP);  // from here on they are taken
  asio::co_spawn(context, end_at_signal(context, end, listener, service), asio::detached);
  asio::co_spawn(context, reload_at_signal(reload, listener, service), asio::detached);
  if (const auto interval = watchdog_interval())
    asio::co_spawn(context, feed_watchdog(context, *interval), asio::detached);
  ready(listener.address);
  notify_manager("READY=1\nSTATUS=Listening on " + listener.address);
  context.run();
  if (!listener.file.empty()) ::unlink(listener.file.c_str());
}

}  // namespace rf::server
