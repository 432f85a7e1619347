// Loops shared by waiting threads (workers.h).
#include "tokenizer/workers.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace rf::text {
namespace {

constexpr size_t kBlock = 16;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A thread looks this often before it sleeps: some tens of microseconds, what waking it would take. Loops come in
// pairs.
constexpr int kLooks = 1000;

// Returns once the value is no longer `old`.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int look = 0; look < kLooks; ++look) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  value.wait(old);
}

}  // namespace

Workers::Workers(int threads) : shares_(static_cast<size_t>(threads)) {
  try {
    for (size_t i = 1; i < shares_.size(); ++i) threads_.emplace_back([this, i] { wait_for_loops(i); });
  } catch (const std::system_error&) {  // no further thread is to be had: the others take its share
  }
}

Workers::~Workers() {
  stopping_ = true;
  ++loops_;
  loops_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::for_each_index(size_t count, const std::function<void(size_t)>& action) {
  action_ = &action;
  for (size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].next = count * i / shares_.size();
    shares_[i].end = count * (i + 1) / shares_.size();
  }
  if (count > kBlock && !threads_.empty()) {
    working_ = static_cast<uint32_t>(threads_.size());
    ++loops_;
    loops_.notify_all();
  }
  take_part(0);
  for (uint32_t working; (working = working_.load()) != 0;) wait_while(working_, working);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Workers::wait_for_loops(size_t thread) {
  for (uint32_t seen = 0;; ++seen) {
    wait_while(loops_, seen);
    if (stopping_) return;
    take_part(thread);
    if (--working_ == 0) working_.notify_one();
  }
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
