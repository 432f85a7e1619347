// Facts and settings of the libraries underneath, for programs that do not see torch.
#pragma once

#include <string>

namespace rf::train {

// Threads of every parallel part (torch's and the kernels' OpenMP teams). threads >= 1.
void set_threads(int threads);
int threads();

struct RuntimeFacts {
  std::string torch_version;
  std::string cpu_capability;  // the instruction set torch dispatches to, for example "AVX512"
};
RuntimeFacts runtime_facts();

}  // namespace rf::train
