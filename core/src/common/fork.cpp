// A process that forks. The child has only the thread that called fork(), but GNU OpenMP's team of that thread would
// wait for the others for ever. So the team ends before the fork, and parent and child make new ones when they need
// them, in the next call: some 100 us. This holds for everything that shares the runtime, torch too.
#include <omp.h>
#include <pthread.h>

// Absent from other runtimes: LLVM's takes care of forks itself.
extern "C" __attribute__((weak)) int omp_pause_resource_all(omp_pause_resource_t kind) noexcept;

namespace rf::core {
namespace {

// Of the thread that forks, which is in no parallel region: then this does nothing.
void end_team() {
  if (omp_pause_resource_all != nullptr) omp_pause_resource_all(omp_pause_soft);
}

[[maybe_unused]] const int registered = pthread_atfork(end_team, nullptr, nullptr);

}  // namespace
}  // namespace rf::core
