// Loops shared by waiting threads (workers.h).
#include "workers.h"

#include <utility>

namespace rf::text {
namespace {

constexpr size_t kBlock = 16;

}  // namespace

Workers::Workers(int threads) {
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { wait_for_loops(); });
  } catch (...) {  // no further thread is to be had
    stop();
    throw;
  }
}

Workers::~Workers() {
  stop();
}

void Workers::stop() {
  stopping_ = true;
  ++loops_;
  loops_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::for_each_index(size_t count, const std::function<void(size_t)>& action) {
  action_ = &action;
  count_ = count;
  next_ = 0;
  if (count > kBlock && !threads_.empty()) {
    working_ = static_cast<uint32_t>(threads_.size());
    ++loops_;
    loops_.notify_all();
  }
  take_part();
  for (uint32_t working; (working = working_.load()) != 0;) working_.wait(working);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Workers::wait_for_loops() {
  for (uint32_t seen = 0;; ++seen) {
    loops_.wait(seen);
    if (stopping_) return;
    take_part();
    if (--working_ == 0) working_.notify_one();
  }
}

void Workers::take_part() {
  for (size_t begin; (begin = next_.fetch_add(kBlock)) < count_;) run_block(begin);
}

void Workers::run_block(size_t begin) {
  for (size_t i = begin; i < std::min(begin + kBlock, count_); ++i) {
    try {
      (*action_)(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_ || i < failed_index_) {
        failure_ = std::current_exception();
        failed_index_ = i;
      }
    }
  }
}

}  // namespace rf::text
