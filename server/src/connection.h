// A client's connection: requests one after another, within the limits of sizes and times.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include "service.h"

namespace rf::server {

// Unix sockets and TCP.
using Stream = boost::beast::basic_stream<asio::generic::stream_protocol, asio::any_io_executor>;
using TlsStream = boost::beast::ssl_stream<Stream>;

// Ends when the client leaves, breaks a rule of HTTP, or is silent for too long, and after a reply while the server
// stops.
asio::awaitable<void> serve_connection(Stream stream, Service& service);
asio::awaitable<void> serve_connection(TlsStream stream, Service& service);

}  // namespace rf::server
