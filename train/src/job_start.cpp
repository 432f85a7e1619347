// Checks at the start of a job (job_start.h).
#include "job_start.h"

#define XXH_INLINE_ALL
#include <dlfcn.h>
#include <xxhash.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "train_step.h"

namespace rf::train {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 4;  // of weights, gradients and moments: float32

// A hash of each library of this project in the directory of the library with this code.
nlohmann::json build_identity() {
  Dl_info here = {};
  dladdr(reinterpret_cast<void*>(&require_same_job), &here);
  nlohmann::json hashes = nlohmann::json::object();
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(here.dli_fname).parent_path())) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("libroformer_")) continue;
    const std::string library = io::read_file(entry.path());
    hashes[name] = fmt::format("{:016x}", XXH3_64bits(library.data(), library.size()));
  }
  return hashes;
}

double megabytes(int64_t bytes) { return 1e-6 * static_cast<double>(bytes); }

}  // namespace

void require_same_job(const Ranks& ranks, const nlohmann::json& run, const nlohmann::json& data,
                      nlohmann::json platform) {
  if (ranks.size() == 1) return;
  platform.erase("threads");
  nlohmann::json build;
  ranks.together([&] { build = build_identity(); });
  ranks.require_same("the build", build);
  ranks.require_same("the platform", platform);
  ranks.require_same("the run file", run);
  ranks.require_same("the data", {{"identity", data}});
}

void require_same_weights(const Ranks& ranks, const nn::Model& model) {
  if (ranks.size() == 1) return;
  uint64_t hash = 0;
  for (const Parameter& parameter : trained_parameters(model)) {
    const at::Tensor weight = parameter.weight.detach().to(at::kCPU).contiguous();
    hash = XXH3_64bits_withSeed(weight.const_data_ptr(), weight.nbytes(), hash);
  }
  ranks.require_same("the model", {{"weights", fmt::format("{:016x}", hash)}});
}

void require_shared(const Ranks& ranks, const std::string& run_dir) {
  if (ranks.size() == 1) return;
  ranks.together([&] {
    if (io::has_file(run_dir + "/run.json")) return;
    fail("distributed", "the output directory must be one that all ranks see, got {} without the first rank's run.json",
         run_dir);
  });
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
  const int64_t copy = weights + 2 * kBytes * parameters / ranks.size();  // of the first rank
  return fmt::format(
      "{} processes; in each weights {:.0f} MB, gradients {:.0f} MB, moments {:.0f} MB, and in the first one {:.0f} MB "
      "for writing checkpoints",
      ranks.size(), megabytes(weights), megabytes(weights), megabytes(moments), megabytes(copy));
}

}  // namespace rf::train
