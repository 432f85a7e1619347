// The work of requests: what runs in a pool of threads, what the engine's queue computes, and how a handler, a
// coroutine, waits for both.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "http.h"
#include "metrics.h"
#include "rf/engine/schedule.h"

namespace rf::server {

class Work {
 public:
  // threads: of the pool.
  Work(int threads, const engine::RequestQueue::Options& options, Metrics& metrics)
      : metrics_(metrics), pool_(static_cast<size_t>(threads)), queue_(options) {}
  ~Work() { stop(); }
  void stop();

  // The result of `run`, in a thread of the pool.
  template <typename Run>
  asio::awaitable<std::invoke_result_t<Run>> in_pool(Run run) {
    using Result = std::invoke_result_t<Run>;
    co_return co_await asio::co_spawn(
        pool_, [run = std::move(run)]() mutable -> asio::awaitable<Result> { co_return run(); }, asio::use_awaitable);
  }

  // The rows of all sequences. tokens and computation must stay valid until the end. Throws HttpError, 429, where too
  // many tokens wait, and the error of the computation. A coroutine that is cancelled gives up its place.
  asio::awaitable<std::vector<float>> compute(const engine::Computation& computation, const engine::Tokens& tokens);

 private:
  Metrics& metrics_;
  asio::thread_pool pool_;
  engine::RequestQueue queue_;
};

}  // namespace rf::server
