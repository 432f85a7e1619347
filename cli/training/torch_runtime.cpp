// Settings, errors and facts of torch for the program (training_command.h).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "rf/train/device.h"
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

void add_run_file(CLI::App& app, std::string& path, std::vector<std::string>& overrides, const std::string& about) {
  app.add_option("--config", path, "Run file (JSON, or YAML with Python and PyYAML)" + about);
  app.add_option(
      "values", overrides,
      "Values in place of the run file's: schedule.learning_rate=2e-3 stages.0.steps=40 model.hidden_size=64");
}

void add_device(CLI::App& app, std::string& device) {
  add_default(app, "--device", device,
              "Where to train: cpu, cuda, cuda:<number>, or auto: cuda if PyTorch sees a GPU, else cpu. Under torchrun "
              "cuda is the GPU of the process's LOCAL_RANK");
}

void use_device(const Common& common, std::string& device, const std::string& run_file) {
  const std::string& command = common.arguments.at(0);
  device = train::resolved_device(command, device);
  const bool is_yaml = run_file.ends_with(".yaml") || run_file.ends_with(".yml");
  if (!is_yaml && !train::needs_python(device)) return;
  const char* const given = std::getenv("ROFORMER_PYTHON");
  const std::string python = given != nullptr ? given : "python3";
  std::string module = "roformer_cpp." + command;
  std::replace(module.begin(), module.end(), '-', '_');
  std::vector<std::string> words = {python, "-m", module};
  words.insert(words.end(), common.arguments.begin() + 1, common.arguments.end());
  const std::string why =
      is_yaml ? run_file + " is read by Python" : device + " is used inside Python, which has its kernels";
  say(fmt::format("{}: {} -m {} ($ROFORMER_PYTHON names another Python)", why, python, module));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  fail(command, "{} needs Python with the package roformer_cpp, got {}: {}; $ROFORMER_PYTHON names another one",
       is_yaml ? run_file : "--device " + device, python, std::strerror(errno));
}

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
    if (const auto told = train::error_to_tell(error)) throw *told;
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
