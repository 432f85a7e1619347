// Threads that share work: jobs and loops. They live as long as this object, because starting a thread takes as long as
// a small batch of texts. The calling thread takes part; one thread at a time may call. In a child of fork() the
// threads are started again.
//
// OpenMP is not used: its runtime ends the process if the system refuses a thread, an exception may not leave its
// loops, and the calling thread of a pipeline (data/src/prepare.cpp) reads the next texts while others work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rf::text {

class Workers {
 public:
  using Job = std::function<void(size_t thread)>;  // receives the number of its thread; 0: the calling thread

  explicit Workers(int threads);  // including the calling one; fewer if the system refuses more
  ~Workers();                     // jobs not yet begun are dropped
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // A job for any thread; it must not throw.
  void submit(Job job);
  // Runs the next job on the calling thread; false if no job waits.
  bool run_one() {
    renew_after_fork();
    return run_next(0);
  }
  // Calls action(i) for every i < count and returns when all are done. Each thread begins with a range of indices, the
  // same in every loop of that count, so that its data stay in its cache; a thread that has finished helps the others.
  // If actions throw, the exception of the smallest i is rethrown. No jobs may wait.
  void for_each_index(size_t count, const std::function<void(size_t)>& action);

 private:
  struct alignas(64) Share {
    std::atomic<size_t> next = 0;
    size_t end = 0;
  };

  // The threads and their shared state. One object, so that a forked process can leave its parent's object unchanged.
  struct Crew {
    std::mutex mutex;  // of the jobs and of the failure
    std::condition_variable wake;
    std::deque<Job> jobs;
    std::atomic<size_t> waiting = 0;  // the size of jobs
    std::atomic<bool> stopping = false;
    std::vector<std::thread> threads;
  };

  void start();
  void renew_after_fork();
  void work(size_t thread);
  bool run_next(size_t thread);
  void take_part(size_t thread);
  void run_block(size_t begin, size_t end);

  std::unique_ptr<Crew> crew_;
  int forks_ = 0;  // forks before this process when the threads started

  // The current loop.
  const std::function<void(size_t)>* action_ = nullptr;
  std::vector<Share> shares_;          // one per thread
  std::atomic<uint32_t> running_ = 0;  // jobs that have not ended
  std::exception_ptr failure_;
  size_t failed_index_ = 0;
};

}  // namespace rf::text
