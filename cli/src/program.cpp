// The program `roformer`: configures how idle threads wait, then loads the commands (main.cpp) and runs them.
//
// GNU OpenMP reads its settings when it is loaded, which happens before main() if the program links it. So this file
// links nothing, and the commands are a shared library in lib/ next to the program.
//
// By default, an idle thread spins for some milliseconds before it sleeps. On a machine with other work, it takes time
// from the thread that it waits for: training is then several times slower with two threads than with one. Sleeping
// immediately costs a wake-up for each of the many short parallel regions of a step. A bounded spin count avoids most
// of both costs (docs/benchmarks.md has figures). python/roformer_cpp/_openmp.py sets the same count for
// `import roformer_cpp`.
//
// Python starts commands in separate sessions (python/roformer_cpp/_child.py), which do not receive signals from the
// terminal. ROFORMER_PARENT is then the process id of Python: when Python ends for any reason, the kernel sends
// SIGTERM, and a training run writes a checkpoint and exits.
#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr const char* kSpinCount = "10000";
constexpr int kInternal = 3, kSignalBase = 128;  // exit codes (command.h)

// False if the parent ended before this process could watch it.
bool tie_to_parent() {
  const char* const parent = std::getenv("ROFORMER_PARENT");
  if (!parent) return true;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return std::atol(parent) == ::getppid();
}

// The loader's message begins with the missing library, which may be a dependency of ours.
int say_what_is_missing(const char* message) {
  const char* const end = std::strchr(message, ':');
  const int length = end == nullptr ? 0 : static_cast<int>(end - message);
  const bool is_ours = std::strstr(message, "libroformer_") == message;
  std::fprintf(stderr, "[program] %.*s must be %s, got: %s\n", length, message,
               is_ours ? "in lib/ beside the program" : "installed, because the program needs it", message);
  return kInternal;
}

}  // namespace

int main(int argc, char** argv) {
  if (!tie_to_parent()) return kSignalBase + SIGTERM;
  if (!std::getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", kSpinCount, /*overwrite=*/0);
  void* const commands = dlopen("libroformer_cli.so", RTLD_NOW | RTLD_GLOBAL);
  void* const run = commands ? dlsym(commands, "rf_cli_main") : nullptr;
  if (!run) return say_what_is_missing(dlerror());
  return reinterpret_cast<int (*)(int, char**)>(run)(argc, argv);
}
