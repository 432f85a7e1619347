// Counters as text (metrics.h).
#include "metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace rf::server {

namespace {

constexpr double kSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};
constexpr double kSequences[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 1024};
constexpr double kTokens[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

}  // namespace

void Histogram::add(double value) {
  ++counts_[static_cast<size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
  sum_ += value;
}

void Histogram::write(const char* name, const std::string& label, std::string& to) const {
  const std::string first = label.empty() ? "" : label + ',', braces = label.empty() ? "" : '{' + label + '}';
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    count += counts_[i];
    fmt::format_to(std::back_inserter(to), "{}_bucket{{{}le=\"{}\"}} {}\n", name, first, bound, count);
  }
  fmt::format_to(std::back_inserter(to), "{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, braces, sum_, count);
}

Metrics::Metrics() : batch_sequences_(kSequences), batch_tokens_(kTokens) {}

void Metrics::count(const std::string& path, int status, double seconds, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  Route& route = routes_.try_emplace(path, Route{.seconds = Histogram(kSeconds)}).first->second;
  route.seconds.add(seconds);
  route.tokens += tokens;
}

void Metrics::count_batch(int64_t sequences, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  batch_sequences_.add(static_cast<double>(sequences));
  batch_tokens_.add(static_cast<double>(tokens));
}

std::string Metrics::text(bool ready) const {
  std::string text;
  const auto add = [&text]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  };
  const auto head = [&add](const char* name, const char* type, const char* help) {
    add("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  };
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    head(name, "gauge", help);
    add("{} {}\n", name, value);
  };
  // Names that begin with te are the names of text-embeddings-inference.
  gauge("roformer_ready", "1 if the models are open", ready ? 1 : 0);
  gauge("roformer_connections", "Open connections", connections);
  gauge("roformer_active_requests", "Requests without a reply", active);
  for (const char* name : {"roformer_queued_requests", "te_queue_size"})
    gauge(name, "Requests that wait for a computation", queued);
  const std::lock_guard lock(mutex_);
  head("roformer_requests_total", "counter", "Requests by route and status");
  for (const auto& [key, count] : requests_)
    add("roformer_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  head("roformer_tokens_total", "counter", "Tokens that were computed");
  for (const auto& [path, route] : routes_) add("roformer_tokens_total{{route=\"{}\"}} {}\n", path, route.tokens);
  for (const char* name : {"roformer_request_duration_seconds", "te_request_duration"}) {
    head(name, "histogram", "Seconds from the end of a request to its reply");
    for (const auto& [path, route] : routes_) route.seconds.write(name, fmt::format("route=\"{}\"", path), text);
  }
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    head(name, "histogram", help);
    values.write(name, "", text);
  };
  for (const char* name : {"roformer_batch_sequences", "te_batch_next_size"})
    histogram(name, "Sequences that are computed together", batch_sequences_);
  for (const char* name : {"roformer_batch_tokens", "te_batch_next_tokens"})
    histogram(name, "Tokens that are computed together", batch_tokens_);
  head("te_request_count", "counter", "Requests");
  for (const auto& [key, count] : requests_)
    add("te_request_count{{method=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  return text;
}

}  // namespace rf::server
