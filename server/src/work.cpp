// Waiting for the engine's queue (work.h).
#include "work.h"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <memory>

namespace rf::server {

void Work::stop() {
  queue_.stop();
  pool_.join();
}

asio::awaitable<std::vector<float>> Work::compute(const engine::Computation& computation,
                                                  const engine::Tokens& tokens) {
  const Counted counted(metrics_.queued);
  std::vector<float> rows(static_cast<size_t>(computation.rows_of(tokens) * computation.columns));
  const int64_t sequences = std::ssize(tokens.offsets) - 1;
  const auto submit = [&](auto handler) {
    using Handler = decltype(handler);
    struct Waiting {
      Handler handler;
      asio::any_io_executor executor;  // keeps the context at work until the handler is called
    };
    const asio::any_io_executor executor =
        asio::prefer(asio::get_associated_executor(handler), asio::execution::outstanding_work.tracked);
    const auto waiting = std::make_shared<Waiting>(Waiting{std::move(handler), executor});
    const auto finish = [waiting](const std::exception_ptr& error) {
      asio::post(waiting->executor, [waiting, error] {
        waiting->executor = {};
        std::move(waiting->handler)(error);
      });
    };
    auto slot = asio::get_associated_cancellation_slot(waiting->handler);
    try {
      const auto request = queue_.submit(
          computation, tokens, rows.data(),
          [finish, sequences](int64_t done, const std::exception_ptr& error) {
            if (error || done == sequences) finish(error);
          },
          engine::RequestQueue::WhenFull::kRefuse);
      if (!request)
        throw HttpError(http::status::too_many_requests, "the server must have room for the request, got a full queue");
      if (slot.is_connected())
        slot.assign([this, number = *request](asio::cancellation_type) { queue_.cancel(number); });
    } catch (...) {
      finish(std::current_exception());
    }
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>&, void(std::exception_ptr)>(submit, asio::use_awaitable);
  co_return rows;
}

}  // namespace rf::server
