// The program `roformer`: sets how idle threads wait, then loads the commands (main.cpp) and runs them.
//
// GNU OpenMP reads its settings when it is loaded, which for a library that a program links is before main(). So this
// file links nothing, and the commands are a shared library in lib/ beside the program.
//
// By default an idle thread spins for some milliseconds before it sleeps. On a machine whose cores do other work too,
// it takes the time of the thread that it waits for: training is then several times slower with two threads than with
// one. Sleeping at once costs a wake-up at each of the many short parallel regions of a step. A bounded spin count
// avoids most of both costs (bench/busy_machine.py measures them, docs/benchmarks.md has figures).
// python/roformer_cpp/_openmp.py has the same count for `import roformer_cpp`.
//
// Python starts commands in sessions of their own (python/roformer_cpp/_child.py), to which no signal comes from the
// terminal. ROFORMER_PARENT is then the number of the process of Python: when that ends, however it ends, the kernel
// sends SIGTERM, and a training run writes a checkpoint and ends.
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

// False if the parent has ended before it could be tied to.
bool tie_to_parent() {
  const char* const parent = std::getenv("ROFORMER_PARENT");
  if (!parent) return true;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return std::atol(parent) == ::getppid();
}

// The loader's message begins with the library that it did not find, which may be one that ours needs.
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
