// Checks at the start of a job (job_start.h).
#include "job_start.h"

#include <dlfcn.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"

namespace rf::train {

namespace {

constexpr int64_t kBytes = 4;  // of weights, gradients and moments: float32

// A hash of the library that this code is in.
std::string build_identity() {
  Dl_info here = {};
  dladdr(reinterpret_cast<void*>(&require_same_job), &here);
  const std::string library = io::read_file(here.dli_fname);
  return fmt::format("{:016x}", XXH3_64bits(library.data(), library.size()));
}

double megabytes(int64_t bytes) {
  return 1e-6 * static_cast<double>(bytes);
}

}  // namespace

void require_same_job(const Ranks& ranks, const nlohmann::json& run, const nlohmann::json& data,
                      nlohmann::json platform) {
  if (ranks.size() == 1) return;
  platform.erase("threads");
  ranks.require_same("the run file", run);
  ranks.require_same("the data", {{"identity", data}});
  ranks.require_same("the build", {{"library", build_identity()}});
  ranks.require_same("the platform", platform);
}

void require_work_for_all(const Ranks& ranks, const RunConfig& run) {
  for (size_t i = 0; i < run.stages.size(); ++i) {
    const Stage& stage = run.stages[i];
    if (stage.accumulate >= ranks.size()) continue;
    fail("distributed",
         "accumulate of stages[{}] must be at least the {} processes, which share the micro-batches of a step, got {}; "
         "the run file fixes them, so that the result does not depend on the number of processes",
         i, ranks.size(), stage.accumulate);
  }
}

std::string memory_note(const Ranks& ranks, const RunConfig& run, int64_t parameters) {
  const int64_t shares = run.sharding == Sharding::kOptimizer ? ranks.size() : 1;
  const int64_t weights = kBytes * parameters, moments = 2 * kBytes * parameters / shares;
  return fmt::format("{} processes; in each weights {:.0f} MB, gradients {:.0f} MB, moments {:.0f} MB", ranks.size(),
                     megabytes(weights), megabytes(weights), megabytes(moments));
}

}  // namespace rf::train
