// The work of requests: runs functions in thread pools and computations in the engine's queue. A handler, which is a
// coroutine, waits for both.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <vector>

#include "http.h"
#include "metrics.h"
#include "rf/engine/generator.h"
#include "rf/engine/schedule.h"

namespace rf::server {

class Work {
 public:
  // threads: of each pool.
  Work(int threads, const engine::RequestQueue::Options& options, Metrics& metrics);
  ~Work() { stop(); }
  void stop();

  // Where the handler of a request with a body of so many bytes runs. The threads for long ones have a lower priority:
  // short ones need not wait for them.
  asio::any_io_executor executor(size_t body_bytes);

  // The result of `run`, in a thread of a pool: this one, if it is of one.
  template <typename Run>
  asio::awaitable<std::invoke_result_t<Run>> in_pool(Run run) {
    if (is_in_pool(co_await asio::this_coro::executor)) co_return run();
    std::optional<std::conditional_t<std::is_void_v<std::invoke_result_t<Run>>, bool, std::invoke_result_t<Run>>>
        result;
    co_await until_finished([&](const Finish& finish, asio::cancellation_slot) {
      asio::post(pool_of_long_, [&, finish] {
        std::exception_ptr error;
        try {
          if constexpr (std::is_void_v<std::invoke_result_t<Run>>) {
            run();
          } else {
            result.emplace(run());
          }
        } catch (...) {
          error = std::current_exception();
        }
        finish(error);
      });
    });
    if constexpr (!std::is_void_v<std::invoke_result_t<Run>>) co_return std::move(*result);
  }

  // Whether a request begins, or has computed a part.
  enum class Part { kFirst, kNext };
  // The rows of all sequences. tokens and computation must stay valid until the end. Throws HttpError, 429, where too
  // many tokens wait for a first part, and the error of the computation. A coroutine that is cancelled gives up its
  // place.
  asio::awaitable<std::vector<float>> compute(const engine::Computation& computation, const engine::Tokens& tokens,
                                              Part part = Part::kFirst);

  // Calls `run`, which computes with a model, in the queue's thread when its turn comes. turn: of all such calls for a
  // model. tokens: that it reads. Throws as compute() does.
  asio::awaitable<void> in_queue(const void* turn, int64_t tokens, Part part, std::function<void()> run);
  // The same for a step of a generator, together with the steps of other requests that wait for the turn. Returns
  // whether the generator has further steps.
  asio::awaitable<bool> step(const void* turn, int64_t tokens, Part part, engine::Generator& generator);

 private:
  using Finish = std::function<void(const std::exception_ptr& error)>;
  // Until begin()'s first argument is called, in any thread; throws the error.
  static asio::awaitable<void> until_finished(std::function<void(const Finish&, asio::cancellation_slot)> begin);
  asio::awaitable<void> compute_counted(const engine::Computation& computation, int64_t tokens, Part part);
  bool is_in_pool(const asio::any_io_executor& executor) const;

  Metrics& metrics_;
  asio::thread_pool pool_, pool_of_long_;
  engine::RequestQueue queue_;
};

}  // namespace rf::server
