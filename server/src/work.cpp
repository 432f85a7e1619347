// Waiting for the engine's queue (work.h).
#include "work.h"

#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/strand.hpp>
#include <latch>
#include <memory>

namespace rf::server {

Work::Work(int threads, const engine::RequestQueue::Options& options, Metrics& metrics)
    : metrics_(metrics),
      pool_(static_cast<size_t>(threads)),
      pool_of_long_(static_cast<size_t>(threads)),
      queue_(options) {
  constexpr int kLowerPriority = 10;
  const auto all = std::make_shared<std::latch>(threads);  // blocks each thread until every thread has a task
  for (int i = 0; i < threads; ++i)
    asio::post(pool_of_long_, [all] {
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowerPriority);
      all->arrive_and_wait();
    });
}

void Work::stop() {
  queue_.stop();
  pool_.join();
  pool_of_long_.join();
}

asio::any_io_executor Work::executor(size_t body_bytes) {
  constexpr size_t kLong = 64 * 1024;
  return asio::make_strand((body_bytes < kLong ? pool_ : pool_of_long_).get_executor());
}

bool Work::is_in_pool(const asio::any_io_executor& executor) const {
  const asio::execution_context* const context = &asio::query(executor, asio::execution::context);
  return context == &pool_ || context == &pool_of_long_;
}

asio::awaitable<void> Work::until_finished(std::function<void(const Finish&, asio::cancellation_slot)> begin) {
  const auto initiate = [&](auto handler) {
    using Handler = decltype(handler);
    struct Waiting {
      Handler handler;
      asio::any_io_executor executor;  // keeps the context at work until the handler is called
    };
    const asio::any_io_executor executor =
        asio::prefer(asio::get_associated_executor(handler), asio::execution::outstanding_work.tracked);
    const auto waiting = std::make_shared<Waiting>(Waiting{std::move(handler), executor});
    begin(
        [waiting](const std::exception_ptr& error) {
          asio::post(waiting->executor, [waiting, error] {
            waiting->executor = {};
            std::move(waiting->handler)(error);
          });
        },
        asio::get_associated_cancellation_slot(waiting->handler));
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>&, void(std::exception_ptr)>(initiate,
                                                                                          asio::use_awaitable);
}

asio::awaitable<std::vector<float>> Work::compute(const engine::Computation& computation, const engine::Tokens& tokens,
                                                  Part part) {
  std::vector<float> rows(static_cast<size_t>(computation.rows_of(tokens) * computation.columns));
  const int64_t sequences = std::ssize(tokens.offsets) - 1;
  const Counted waiting(metrics_.queued);
  co_await until_finished([&](const Finish& finish, asio::cancellation_slot slot) {
    try {
      const auto request = queue_.submit(
          computation, tokens, rows.data(),
          [finish, sequences](int64_t done, const std::exception_ptr& error) {
            if (error || done == sequences) finish(error);
          },
          part == Part::kFirst ? engine::RequestQueue::WhenFull::kRefuse : engine::RequestQueue::WhenFull::kTake);
      if (!request)
        throw HttpError(http::status::too_many_requests, "the server must have room for the request, got a full queue");
      if (slot.is_connected())
        slot.assign([this, number = *request](asio::cancellation_type) { queue_.cancel(number); });
    } catch (...) {
      finish(std::current_exception());
    }
  });
  co_return rows;
}

asio::awaitable<void> Work::in_queue(const void* turn, int64_t tokens, Part part, std::function<void()> run) {
  const engine::Computation computation{.run = [&](const engine::Tokens&, float*) { run(); }, .turn = turn};
  co_await compute_counted(computation, tokens, part);
}

asio::awaitable<bool> Work::step(const void* turn, int64_t tokens, Part part, engine::Generator& generator) {
  struct StepOf : engine::Computation {
    engine::Generator::Step* step = nullptr;
    int64_t tokens = 0;
    Metrics* metrics = nullptr;
  };
  engine::Generator::Step own{.generator = &generator};
  StepOf computation;
  computation.turn = turn;
  computation.step = &own;
  computation.tokens = tokens;
  computation.metrics = &metrics_;
  computation.run_together = [](std::span<const engine::Computation* const> all) {
    std::vector<engine::Generator::Step> steps;
    int64_t sum = 0;
    for (const engine::Computation* each : all) {
      const auto& of = *static_cast<const StepOf*>(each);
      steps.push_back(*of.step);
      sum += of.tokens;
    }
    static_cast<const StepOf*>(all[0])->metrics->count_batch(std::ssize(all), sum);
    engine::Generator::step_together(steps);
    for (size_t i = 0; i < all.size(); ++i) *static_cast<const StepOf*>(all[i])->step = std::move(steps[i]);
  };
  co_await compute_counted(computation, tokens, part);
  if (own.error) std::rethrow_exception(own.error);
  co_return own.goes_on;
}

asio::awaitable<void> Work::compute_counted(const engine::Computation& computation, int64_t tokens, Part part) {
  const std::vector<int32_t> ids(static_cast<size_t>(tokens));
  const std::vector<int64_t> offsets = {0, tokens};
  const engine::Tokens counted{.ids = ids, .offsets = offsets};
  co_await compute(computation, counted, part);
}

}  // namespace rf::server
