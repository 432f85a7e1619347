// A process that forks. The child has only the thread that called fork(), but GNU OpenMP's team of that thread would
// wait for the others forever. So the team ends before the fork, and parent and child create new teams in their next
// call, which takes some 100 us. This affects all users of the runtime, including torch.
#include <omp.h>
#include <pthread.h>

// Absent from other runtimes: LLVM's takes care of forks itself.
extern "C" __attribute__((weak)) int omp_pause_resource_all(omp_pause_resource_t kind) noexcept;

namespace rf::core {
namespace {

// Ends the team of the forking thread; does nothing inside a parallel region.
void end_team() {
  if (omp_pause_resource_all != nullptr) omp_pause_resource_all(omp_pause_soft);
}

[[maybe_unused]] const int registered = pthread_atfork(end_team, nullptr, nullptr);

}  // namespace
}  // namespace rf::core
