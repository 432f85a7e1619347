// Threads that wait for loops to share. They live as long as this object, for starting one takes as long as a
// small batch of texts.
#pragma once

#include <algorithm>
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
  explicit Workers(int threads);  // the calling one among them
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls action(i) for every i < count, blocks of neighbours on one thread, and returns when all are done. Of the
  // exceptions thrown, the one of the smallest i is thrown on.
  void for_each_index(size_t count, const std::function<void(size_t)>& action);

 private:
  void wait_for_loops();
  void take_part();
  void run_block(size_t begin);
  void stop();

  // The loop being run; written only while no worker takes part in one.
  const std::function<void(size_t)>* action_ = nullptr;
  size_t count_ = 0;
  std::atomic<size_t> next_ = 0;

  std::mutex mutex_;  // of the failure
  std::exception_ptr failure_;
  size_t failed_index_ = 0;

  std::atomic<uint32_t> loops_ = 0;    // begun
  std::atomic<uint32_t> working_ = 0;  // workers that have not left the loop
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rf::text
