// Counters as text (metrics.h).
#include "metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace rf::server {

void Metrics::count(const std::string& path, int status, double seconds, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  Route& route = routes_[path];
  ++route.durations[static_cast<size_t>(std::ranges::lower_bound(kBounds, seconds) - kBounds.begin())];
  route.seconds += seconds;
  route.tokens += tokens;
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
  gauge("roformer_ready", "1 if the models are open", ready ? 1 : 0);
  gauge("roformer_connections", "Open connections", connections);
  gauge("roformer_active_requests", "Requests without a reply", active);
  const std::lock_guard lock(mutex_);
  head("roformer_requests_total", "counter", "Requests by route and status");
  for (const auto& [key, count] : requests_)
    add("roformer_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  head("roformer_tokens_total", "counter", "Tokens that were computed");
  for (const auto& [path, route] : routes_) add("roformer_tokens_total{{route=\"{}\"}} {}\n", path, route.tokens);
  // The second name is the one of text-embeddings-inference.
  for (const char* name : {"roformer_request_duration_seconds", "te_request_duration"}) {
    head(name, "histogram", "Seconds from the end of a request to its reply");
    for (const auto& [path, route] : routes_) {
      int64_t sum = 0;
      for (size_t i = 0; i < kBounds.size(); ++i)
        add("{}_bucket{{route=\"{}\",le=\"{}\"}} {}\n", name, path, kBounds[i], sum += route.durations[i]);
      sum += route.durations.back();
      add("{}_bucket{{route=\"{}\",le=\"+Inf\"}} {}\n", name, path, sum);
      add("{}_sum{{route=\"{}\"}} {}\n{}_count{{route=\"{}\"}} {}\n", name, path, route.seconds, name, path, sum);
    }
  }
  head("te_request_count", "counter", "Requests");
  for (const auto& [key, count] : requests_)
    add("te_request_count{{method=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  return text;
}

}  // namespace rf::server
