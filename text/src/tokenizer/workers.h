// Threads that share loops. They exist as long as this object, because starting one takes as long as a small batch of
// texts.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rf::text {

class Workers {
 public:
  explicit Workers(int threads);  // including the calling one; fewer if the system refuses more
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls action(i) for every i < count and returns when all are done. Each thread begins with a range of indices, the
  // same in every loop of that count, so that its data stay in its cache; a thread that has finished helps the others.
  // If actions throw, the exception of the smallest i is rethrown.
  void for_each_index(size_t count, const std::function<void(size_t)>& action);

 private:
  struct alignas(64) Share {
    std::atomic<size_t> next = 0;
    size_t end = 0;
  };

  void wait_for_loops(size_t thread);
  void take_part(size_t thread);
  void run_block(size_t begin, size_t end);

  // The current loop; a new one begins only when no worker is in a loop.
  const std::function<void(size_t)>* action_ = nullptr;
  std::vector<Share> shares_;  // one per thread

  std::mutex mutex_;  // of the failure
  std::exception_ptr failure_;
  size_t failed_index_ = 0;

  std::atomic<uint32_t> loops_ = 0;    // begun
  std::atomic<uint32_t> working_ = 0;  // workers that have not left the loop
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rf::text
