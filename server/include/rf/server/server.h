// Models over HTTP, as clients of OpenAI, Cohere, Jina and text-embeddings-inference call them (docs/server.md). One
// process; the requests of all clients are computed together, and a short one does not wait for a long one. Each
// result has the bits that the command line gives. Does not use PyTorch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rf::engine {
enum class CachePrecision;  // rf/engine/precision.h
enum class Precision;
}  // namespace rf::engine

namespace rf::server {

struct ModelDirectory {
  std::string name;  // that clients give as "model"
  std::string path;
};

struct ServerOptions {
  std::vector<ModelDirectory> models;        // the first serves clients that do not name a model
  engine::Precision precision{};             // kFloat32
  engine::CachePrecision cache_precision{};  // of models that generate; kAuto
  std::string draft{};                       // a smaller model with the same tokens as the generators; "": none
  // Where to listen: at the socket that systemd passes, else a Unix socket if its path is given, else the address and
  // port; port 0 is any free port.
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string unix_socket{};
  // A file with one key per line; clients must send a key as "Authorization: Bearer KEY". Empty: no key is required.
  std::string api_key_file{};
  // HTTPS: PEM files of the certificate chain and of its key. SIGHUP reads them again.
  std::string certificate{}, key{};
  std::vector<std::string> origins{};  // that browsers may call from (CORS); "*" is any
  int64_t max_body_bytes = int64_t{16} << 20;
  int64_t max_connections = 10000;  // beyond it, the one that waits longest is closed; limited by descriptors
  int64_t max_queued_tokens = int64_t{16} << 20;  // of all unfinished requests; more are answered with 429
  int64_t max_memory_bytes = int64_t{4} << 30;    // of the bodies and results of all unfinished requests
  int64_t token_budget = 4096;  // tokens that are computed together, at most; fewer if they take longer than 120 ms, so
                                // that a short request is computed soon while a long one is
  int threads = 0;              // that read requests and tokenize; 0: one for each processor
  std::chrono::seconds idle{75};                   // a connection without a request is closed
  std::chrono::seconds receive{30};                // for the header and the body of a request, and for sending a reply
  std::chrono::seconds deadline{300};              // for the result of a request
  std::chrono::seconds drain{30};                  // for requests that are unfinished at SIGTERM
  std::function<void(const std::string&)> note{};  // receives warnings, each a line
  bool log_requests = true;
  // Receives a line of JSON for each request, if log_requests, never with its texts; and for each event of operation.
  std::function<void(const std::string&)> log{};
};

// Serves until SIGTERM or SIGINT, then finishes the requests that have arrived. SIGHUP opens the models again. ready:
// called with the address as soon as clients are answered. Throws Error for options and models that break a rule, and
// if it cannot listen.
void serve(const ServerOptions& options, const std::function<void(const std::string& address)>& ready);

}  // namespace rf::server
