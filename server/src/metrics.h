// Counters of the server, as Prometheus reads them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace rf::server {

// Counts what is alive.
class Counted {
 public:
  explicit Counted(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int64_t>& count_;
};

class Metrics {
 public:
  // path: of a known route, or "other".
  void count(const std::string& path, int status, double seconds, int64_t tokens);
  // The exposition format, version 0.0.4; `ready`: whether the models are open.
  std::string text(bool ready) const;

  std::atomic<int64_t> connections = 0, active = 0;  // open connections; requests without a reply

 private:
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,  0.5,    1.0,   2.5,  5.0,   10.0, 60.0};
  struct Route {
    std::array<int64_t, kBounds.size() + 1> durations{};  // requests in each interval between bounds
    double seconds = 0;
    int64_t tokens = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;  // by path and status
  std::map<std::string, Route> routes_;
};

}  // namespace rf::server
