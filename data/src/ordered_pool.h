// Jobs run by several threads in any order, with results in the order of submission. The thread that takes the results
// is one of the threads: it runs jobs while the result that it waits for is not ready.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace rf::data {

template <typename Result>
class OrderedPool {
 public:
  explicit OrderedPool(int threads) {
    try {
      for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // no more threads are available: the existing ones do all the work
    }
  }
  ~OrderedPool() {  // jobs not yet begun are dropped
    {
      const std::lock_guard lock(mutex_);
      jobs_.clear();
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  OrderedPool(const OrderedPool&) = delete;
  OrderedPool& operator=(const OrderedPool&) = delete;

  void submit(std::function<Result()> job) {
    std::packaged_task<Result()> task(std::move(job));
    results_.push_back(task.get_future());
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
  size_t pending() const { return results_.size(); }  // submitted and not taken
  Result take() {                                     // the oldest; waits for it and throws what its job threw
    std::future<Result> result = std::move(results_.front());
    results_.pop_front();
    while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready && run_one()) {
    }
    return result.get();
  }

 private:
  void work() {
    while (true) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      std::packaged_task<Result()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
  }
  bool run_one() {  // false when no job waits
    std::unique_lock lock(mutex_);
    if (jobs_.empty()) return false;
    std::packaged_task<Result()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    return true;
  }

  std::vector<std::thread> workers_;
  std::deque<std::packaged_task<Result()>> jobs_;
  std::deque<std::future<Result>> results_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
};

}  // namespace rf::data
