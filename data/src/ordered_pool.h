// Jobs run by several threads in any order, with results in the order of submission. The thread that takes the results
// is one of the threads: it runs jobs while the result that it waits for is not ready.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "rf/text/workers.h"

namespace rf::data {

template <typename Result>
class OrderedPool {
 public:
  explicit OrderedPool(int threads) : workers_(threads) {}  // jobs not yet begun are dropped with it

  void submit(std::function<Result()> job) {
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(job));
    results_.push_back(task->get_future());
    workers_.submit([task](size_t) { (*task)(); });
  }
  size_t pending() const { return results_.size(); }  // submitted and not taken
  Result take() {                                     // the oldest; waits for it and throws what its job threw
    std::future<Result> result = std::move(results_.front());
    results_.pop_front();
    while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready && workers_.run_one()) {
    }
    return result.get();
  }

 private:
  std::deque<std::future<Result>> results_;
  text::Workers workers_;
};

}  // namespace rf::data
