// Threads and facts of torch (runtime.h).
#include "rf/train/runtime.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <omp.h>
#include <torch/version.h>

namespace rf::train {

void set_threads(int threads) {
  at::set_num_threads(threads);
  omp_set_num_threads(threads);
}

int threads() {
  return at::get_num_threads();
}

RuntimeFacts runtime_facts() {
  return {TORCH_VERSION, at::get_cpu_capability()};
}

}  // namespace rf::train
