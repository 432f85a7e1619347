// Jobs in one queue; a loop is a job for each thread.
#include "rf/text/workers.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace rf::text {
namespace {

constexpr size_t kBlock = 16;

// A thread looks this often before it sleeps: some tens of microseconds, what waking it would take. Loops come in
// pairs.
constexpr int kLooks = 1000;

template <class Condition>
void look_for(Condition condition) {
  for (int look = 0; look < kLooks && !condition(); ++look) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}

}  // namespace

Workers::Workers(int threads) : shares_(static_cast<size_t>(threads)) {
  try {
    for (size_t i = 1; i < shares_.size(); ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {  // no more threads are available: the others do all the work
  }
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    jobs_.clear();
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    waiting_ = jobs_.size();
  }
  wake_.notify_one();
}

bool Workers::run_next(size_t thread) {
  std::unique_lock lock(mutex_);
  if (jobs_.empty()) return false;
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  waiting_ = jobs_.size();
  lock.unlock();
  job(thread);
  return true;
}

void Workers::work(size_t thread) {
  while (!stopping_) {
    look_for([this] { return waiting_ > 0 || stopping_; });
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    }
    run_next(thread);
  }
}

void Workers::for_each_index(size_t count, const std::function<void(size_t)>& action) {
  action_ = &action;
  for (size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].next = count * i / shares_.size();
    shares_[i].end = count * (i + 1) / shares_.size();
  }
  if (count > kBlock && !threads_.empty()) {
    running_ = static_cast<uint32_t>(threads_.size());
    {
      const std::lock_guard lock(mutex_);
      jobs_.assign(threads_.size(), [this](size_t thread) {
        take_part(thread);
        if (--running_ == 0) running_.notify_one();
      });
      waiting_ = jobs_.size();
    }
    wake_.notify_all();
  }
  take_part(0);
  for (uint32_t running; (running = running_) != 0;) {
    if (run_one()) continue;
    look_for([&] { return running_ != running; });
    running_.wait(running);
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Workers::take_part(size_t thread) {
  for (size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[(thread + i) % shares_.size()];
    for (size_t begin; (begin = share.next.fetch_add(kBlock)) < share.end;) {
      run_block(begin, std::min(begin + kBlock, share.end));
    }
  }
}

void Workers::run_block(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
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
