// An OpenMP runtime of std::thread, linked instead of libgomp where ThreadSanitizer watches (scripts/sanitize.sh).
// libgomp is not instrumented: the sanitizer would not see its regions begin and end, and would take every parallel
// loop for a race. Here each region starts its threads and joins them, and nothing else orders them.
//
// Iterations of a dynamic loop are dealt out in turn, which is one of the orders that OpenMP allows, so that every
// thread takes part whatever the machine does meanwhile. Regions inside a region have one thread, as by default in
// libgomp. What core and engine do not use is not here and fails to link.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <mutex>
#include <thread>
#include <vector>

namespace {

// What a thread is in its team, and where it is in its dynamic loop.
struct Member {
  int number = 0, team_size = 1;
  bool in_region = false;
  std::barrier<>* barrier = nullptr;  // of the team
  long next = 0, end = 0, chunk = 1;
};

thread_local Member self;
thread_local int wanted_threads = 2;
std::mutex critical;

bool take_chunk(long* first, long* last) {
  if (self.next >= self.end) return false;
  *first = self.next;
  *last = std::min(self.end, self.next + self.chunk);
  self.next += self.chunk * self.team_size;
  return true;
}

}  // namespace

// Names and types are those of omp.h and of GCC's calls into libgomp.
extern "C" {

int omp_get_max_threads() { return wanted_threads; }

void omp_set_num_threads(int threads) { wanted_threads = threads; }

int omp_get_num_threads() { return self.team_size; }

int omp_get_thread_num() { return self.number; }

int omp_in_parallel() { return self.team_size > 1; }

void GOMP_barrier() {
  if (self.barrier != nullptr) self.barrier->arrive_and_wait();
}

// `threads` 0: as many as are set.
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  const int size = self.in_region ? 1 : threads == 0 ? wanted_threads : static_cast<int>(threads);
  std::atomic<int> running = size;
  std::barrier<> barrier(size);
  // No thread ends before all have done their part: what it does at its end, as taking a mutex to free its work space,
  // would order its part before that of a thread which begins later, and hide a race between them. For the same reason
  // the counter orders nothing.
  const auto run = [&](int number) {
    self = {.number = number, .team_size = size, .in_region = true, .barrier = &barrier};
    body(data);
    running.fetch_sub(1, std::memory_order_relaxed);
    while (running.load(std::memory_order_relaxed) != 0) std::this_thread::yield();
  };
  const Member before = self;
  std::vector<std::thread> others;
  for (int number = 1; number < size; ++number) others.emplace_back(run, number);
  run(0);
  for (std::thread& thread : others) thread.join();
  self = before;
}

bool GOMP_loop_dynamic_start(long first, long end, long, long chunk, long* from, long* to) {
  self.next = first + chunk * self.number;
  self.end = end;
  self.chunk = chunk;
  return take_chunk(from, to);
}

bool GOMP_loop_dynamic_next(long* from, long* to) { return take_chunk(from, to); }

void GOMP_loop_end_nowait() {}

void GOMP_critical_start() { critical.lock(); }

void GOMP_critical_end() { critical.unlock(); }

}  // extern "C"
