// Passes values from one thread to another, at most `capacity` at a time; either side can end it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace rf::cli {

template <typename Value>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Waits while the queue is full. Returns false, and drops the value, if the taker has stopped.
  bool push(Value value) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || values_.size() < capacity_; });
    if (stopped_) return false;
    values_.push_back(std::move(value));
    changed_.notify_all();
    return true;
  }
  // Ends the queue; with an error, take() throws it after the last value.
  void finish(std::exception_ptr error = nullptr) {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }

  // Waits for the next value; nullopt after the last.
  std::optional<Value> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ || !values_.empty(); });
    if (values_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<Value> value(std::move(values_.front()));
    values_.pop_front();
    changed_.notify_all();
    return value;
  }
  // The taker accepts no further values.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Value> values_;
  bool finished_ = false, stopped_ = false;
  std::exception_ptr error_;
};

}  // namespace rf::cli
