// Counters of the server, as Prometheus reads them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rf::server {

// Counts live objects.
class Counted {
 public:
  explicit Counted(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int64_t>& count_;
};

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void add(double value);
  // label: `name="value"`, or empty.
  void write(const char* name, const std::string& label, std::string& to) const;

 private:
  std::span<const double> bounds_;
  std::vector<int64_t> counts_;  // in each interval between bounds
  double sum_ = 0;
};

class Metrics {
 public:
  Metrics();
  // path: of a known route, or "other".
  void count(const std::string& path, int status, double seconds, int64_t tokens);
  // A batch, which is computed together.
  void count_batch(int64_t sequences, int64_t tokens);
  // The exposition format, version 0.0.4; `ready`: whether the models are open.
  std::string text(bool ready) const;

  std::atomic<int64_t> connections = 0, active = 0;  // open connections; requests without a reply
  std::atomic<int64_t> queued = 0;                   // requests that wait for a computation

 private:
  struct Route {
    Histogram seconds;
    int64_t tokens = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;  // by path and status
  std::map<std::string, Route> routes_;
  Histogram batch_sequences_, batch_tokens_;
};

}  // namespace rf::server
