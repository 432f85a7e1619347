// Threads that wait for loops to share. They live as long as this object, for starting one takes as long as a
// small batch of texts.
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
  explicit Workers(int threads);  // the calling one among them; fewer where the system refuses more
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls action(i) for every i < count and returns when all are done. Each thread begins with a share of neighbours,
  // the same in every loop of that count, so that what it has written stays in its cache; who is done helps the others.
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

  // The loop being run; begun only while no worker takes part in one.
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
