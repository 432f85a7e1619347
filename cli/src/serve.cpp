// roformer serve: models over HTTP.

#include <chrono>
#include <filesystem>
#include <memory>

#include "command.h"
#include "command_line.h"
#include "read_options.h"
#include "rf/model/run_checkpoints.h"
#include "rf/server/server.h"

namespace rf::cli {

namespace {

// "name=DIR", or a directory, whose name is the model's.
server::ModelDirectory model_of(const std::string& given) {
  std::error_code error;
  const size_t sign = given.find('=');
  if (sign == std::string::npos || std::filesystem::exists(given, error)) {
    std::filesystem::path path(given);
    if (!path.has_filename()) path = path.parent_path();
    return {path.filename().string(), given};
  }
  return {given.substr(0, sign), given.substr(sign + 1)};
}

std::function<int()> configure_serve(CLI::App& app, const Common& common) {
  auto options = std::make_shared<server::ServerOptions>();
  auto models = std::make_shared<std::vector<std::string>>();
  app.add_option("--model", *models, "Directories, or NAME=DIR; clients call the first if they name none")->required();
  add_default(app, "--host", options->host, "IP address to listen on; 0.0.0.0: all of the machine");
  add_default(app, "--port", options->port, "Port to listen on; 0: any free one");
  app.add_option("--unix-socket", options->unix_socket, "Path of a Unix socket to listen on, instead of a port");
  add_precision(app, options->precision);
  add_cache_precision(app, options->cache_precision);
  app.add_option("--draft", options->draft,
                 "Draft model for speculative decoding: a directory or GGUF file with the vocabulary of the models "
                 "that generate")
      ->type_name("DIR");
  app.add_option("--api-key-file", options->api_key_file,
                 "File of accepted API keys, one per line, which clients send as Authorization: Bearer KEY");
  CLI::Option* const certificate =
      app.add_option("--tls-cert", options->certificate, "PEM file of the certificate: HTTPS");
  CLI::Option* const key = app.add_option("--tls-key", options->key, "PEM file of its key")->needs(certificate);
  certificate->needs(key);
  app.add_option("--cors-origin", options->origins, "Allowed CORS origins, or *");
  add_default(app, "--max-body", options->max_body_bytes, "Maximum bytes of a request's body")
      ->check(integer_within(1));
  add_default(app, "--max-connections", options->max_connections,
              "Maximum open connections; beyond it, the one that is idle longest is closed")
      ->check(integer_within(1));
  app.add_option_function<int64_t>(
         "--receive-seconds", [options](int64_t seconds) { options->receive = std::chrono::seconds(seconds); },
         "Timeout in seconds for receiving a request, and for sending a reply; default: 30")
      ->check(integer_within(1));
  add_default(app, "--max-queued-tokens", options->max_queued_tokens,
              "Maximum tokens of all unfinished requests; beyond it, status 429")
      ->check(integer_within(1));
  add_default(app, "--max-memory", options->max_memory_bytes,
              "Maximum bytes of the bodies and results of all unfinished requests; beyond it, status 429")
      ->check(integer_within(1));
  add_default(app, "--batch-tokens", options->token_budget,
              "Maximum tokens of a batch; fewer if they take longer than 120 ms")
      ->check(integer_within(1));
  app.add_flag_callback(
      "--quiet", [options] { options->log_requests = false; }, "Do not log requests to stderr");
  options->log = say;
  return [options, models, &app, &common] {
    for (const std::string& each : *models) {
      server::ModelDirectory model = model_of(each);
      model.path = model_of_run(model.path, say);
      options->models.push_back(model);
    }
    if (app.count("--draft") > 0) {
      if (options->draft.empty()) fail_usage("serve", "--draft must be a path, got \"\"");
      options->draft = model_of_run(options->draft, say);
    }
    options->threads = common.threads;
    options->note = warn_user;
    server::serve(*options, [](const std::string& address) { say("listening on " + address); });
    return kOk;
  };
}

}  // namespace

Command serve_command() {
  return {
      "serve", "Serve models over HTTP: embeddings, reranking, classification and generation",
      "roformer serve --model DIR --port 8080\n  curl localhost:8080/v1/embeddings -H 'Content-Type: application/json' "
      "-d '{\"input\": \"RoFormer\"}'",
      Command::Seed::kNotUsed, configure_serve};
}

}  // namespace rf::cli
