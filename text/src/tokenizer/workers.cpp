// Jobs in one queue; a loop is a job for each thread.
#include "rf/text/workers.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace rf::text {
namespace {

constexpr size_t kBlock = 16;

// A thread polls this often before it sleeps: some tens of microseconds, the time of waking it. Loops come in pairs.
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

std::atomic<int> fork_count = 0;
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { ++fork_count; });

// Forks between the first process and this one.
int forks() { return fork_count; }

}  // namespace

Workers::Workers(int threads) : shares_(static_cast<size_t>(threads)) { start(); }

Workers::~Workers() {
  if (forks_ != forks()) {
    static_cast<void>(crew_.release());
    return;
  }
  {
    const std::lock_guard lock(crew_->mutex);
    crew_->jobs.clear();
    crew_->stopping = true;
  }
  crew_->wake.notify_all();
  for (std::thread& thread : crew_->threads) thread.join();
}

void Workers::start() {
  forks_ = forks();
  crew_ = std::make_unique<Crew>();
  try {
    for (size_t i = 1; i < shares_.size(); ++i) crew_->threads.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {  // no more threads are available: the others do all the work
  }
}

// The threads do not exist in the child of a fork; they may have held the lock, and their handles cannot be destroyed.
void Workers::renew_after_fork() {
  if (forks_ == forks()) return;
  static_cast<void>(crew_.release());
  running_ = 0;
  failure_ = nullptr;
  start();
}

void Workers::submit(Job job) {
  renew_after_fork();
  {
    const std::lock_guard lock(crew_->mutex);
    crew_->jobs.push_back(std::move(job));
    crew_->waiting = crew_->jobs.size();
  }
  crew_->wake.notify_one();
}

bool Workers::run_next(size_t thread) {
  std::unique_lock lock(crew_->mutex);
  if (crew_->jobs.empty()) return false;
  const Job job = std::move(crew_->jobs.front());
  crew_->jobs.pop_front();
  crew_->waiting = crew_->jobs.size();
  lock.unlock();
  job(thread);
  return true;
}

void Workers::work(size_t thread) {
  while (!crew_->stopping) {
    look_for([this] { return crew_->waiting > 0 || crew_->stopping; });
    {
      std::unique_lock lock(crew_->mutex);
      crew_->wake.wait(lock, [this] { return crew_->stopping || !crew_->jobs.empty(); });
    }
    run_next(thread);
  }
}

void Workers::for_each_index(size_t count, const std::function<void(size_t)>& action) {
  renew_after_fork();
  action_ = &action;
  for (size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].next = count * i / shares_.size();
    shares_[i].end = count * (i + 1) / shares_.size();
  }
  if (count > kBlock && !crew_->threads.empty()) {
    running_ = static_cast<uint32_t>(crew_->threads.size());
    {
      const std::lock_guard lock(crew_->mutex);
      crew_->jobs.assign(crew_->threads.size(), [this](size_t thread) {
        take_part(thread);
        if (--running_ == 0) running_.notify_one();
      });
      crew_->waiting = crew_->jobs.size();
    }
    crew_->wake.notify_all();
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
      const std::lock_guard lock(crew_->mutex);
      if (!failure_ || i < failed_index_) {
        failure_ = std::current_exception();
        failed_index_ = i;
      }
    }
  }
}

}  // namespace rf::text
