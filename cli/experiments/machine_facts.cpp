#include "machine_facts.h"

#include <nlohmann/json.hpp>

#include "rf/bench/machine.h"
#include "rf/train/runtime.h"

namespace rf::cli {

nlohmann::json machine_facts() {
  const bench::Machine machine = bench::this_machine();
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"threads", train::threads()},
          {"target", machine.target},
          {"torch", train::runtime_facts().torch_version},
          {"commit", machine.commit}};
}

}  // namespace rf::cli
