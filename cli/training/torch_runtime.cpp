// Settings, errors and facts of torch for the program (training_command.h).
#include <chrono>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "rf/train/job.h"
#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

void set_up_torch(const Common& common) {
  train::give_warnings_to(warn_user);
  if (common.threads > 0) train::set_threads(common.threads);
  if (const std::string warning = train::openmp_warning(); !warning.empty()) say(warning);
}

}  // namespace

int run_with_torch(const Common& common, const std::function<int()>& command) {
  set_up_torch(common);
  try {
    return command();
  } catch (const train::SaidByFirstRank&) {
    // A launcher ends all processes when one has ended, so the first one must report the reason before.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    throw SilentExit{kBadInput};
  } catch (const std::exception& error) {
    if (train::is_out_of_memory(error)) throw std::bad_alloc();
    if (const auto refusal = train::refused_argument(error)) throw *refusal;
    throw;
  }
}

}  // namespace rf::cli

// The part of roformer info on torch, the kernels that models use with it, and the encodings (training_library.h).
extern "C" RF_CLI_API nlohmann::json rf_torch_facts(const rf::cli::Common& common) {
  rf::cli::set_up_torch(common);
  const rf::train::RuntimeFacts torch = rf::train::runtime_facts();
  nlohmann::json facts = {{"version", torch.torch_version},
                          {"instructions", torch.cpu_capability},
                          {"threads", rf::train::threads()},
                          {"encodings", rf::train::encodings()}};
  for (const auto& [what, kernel] : torch.attention) facts["attention"][what] = kernel;
  for (const auto& [what, backend] : torch.linear) facts["linear"][what] = backend;
  return facts;
}
