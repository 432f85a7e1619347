// Jobs run by several threads in any order, with results in the order of submission. The thread that takes the results
// also runs jobs while it waits for a result.
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
  explicit OrderedPool(int threads) : workers_(threads) {}  // pending jobs are dropped with the pool

  void submit(std::function<Result()> job) {
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(job));
    results_.push_back(task->get_future());
    workers_.submit([task](size_t) { (*task)(); });
  }
  size_t pending() const { return results_.size(); }  // submitted but not taken
  Result take() {                                     // the oldest; waits for it and rethrows the exception of its job
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
