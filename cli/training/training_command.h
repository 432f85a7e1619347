// Shared by the commands with torch. Each is a file with a function `configure` and a line RF_TRAINING_COMMAND; its
// name, summary and example are a line of cli/src/training_commands.cpp.
#pragma once

#include "command.h"

namespace rf::cli {

// Runs a command with the torch settings from the program's options. Converts torch's exceptions for refused arguments
// and for lack of memory to Error and std::bad_alloc.
int run_with_torch(const Common& common, const std::function<int()>& command);

// --config, and the values that override the run file (rf/train/pretrain.h).
void add_run_file(CLI::App& app, std::string& path, std::vector<std::string>& overrides, const std::string& about);
// --device of a command that trains (rf/train/device.h).
void add_device(CLI::App& app, std::string& device);
// Resolves `device`. For a GPU, whose kernels are the Python package's, and for a run file in YAML, which Python reads,
// the command is started again inside Python, and this does not return, unless this process is one of Python with the
// package.
void use_device(const Common& common, std::string& device, const std::string& run_file = "");

}  // namespace rf::cli

// Registers `configure` as the options and the work of the command `name`, with _ for each -, for training_library.cpp.
#define RF_TRAINING_COMMAND(name, configure)                                                                     \
  extern "C" RF_CLI_API std::function<int()> rf_configure_##name(CLI::App& app, const rf::cli::Common& common) { \
    return [run = configure(app, common), &common] { return rf::cli::run_with_torch(common, run); };             \
  }
