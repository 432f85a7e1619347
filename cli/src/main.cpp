// The program `roformer`: a table of commands, the options they share, and the exit codes of errors:
// 0 success (also if the reader of stdout has closed it), 1 bad input, 2 usage, 3 an internal error,
// 128 + the signal's number if SIGINT or SIGTERM ended a training run after it wrote a checkpoint.
#include <fmt/format.h>
#include <omp.h>
#include <rf/io/error.h>
#include <rf/io/files.h>
#include <rf/io/nearest_name.h>
#include <rf/io/printable.h>
#include <rf/io/processors.h>
#include <rf/io/warning.h>
#include <rf/model/model_types.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"
#include "command_line.h"
#include "rf/status.h"

// One line for each command, in the order of --help; each is defined in its own file, or in training_commands.cpp.
#define RF_COMMANDS(X) \
  X(info)              \
  X(doctor)            \
  X(tokenize)          \
  X(vocab)             \
  X(add_words)         \
  X(bake)              \
  X(prepare)           \
  X(merge)             \
  X(verify)            \
  X(pretrain)          \
  X(finetune)          \
  X(train_translation) \
  X(translate)         \
  X(average)           \
  X(train_similar)     \
  X(train_embedding)   \
  X(predict)           \
  X(evaluate)          \
  X(embed)             \
  X(similar)           \
  X(rerank)            \
  X(serve)             \
  X(fill_mask)         \
  X(forward)           \
  X(generate)          \
  X(chat)              \
  X(compare)           \
  X(plot_attention)    \
  X(reproduce)         \
  X(bench)

namespace rf::cli {

#define DECLARE(name) Command name##_command();
#define CALL(name) name##_command(),
RF_COMMANDS(DECLARE)

namespace {

const std::array kCommands = {RF_COMMANDS(CALL)};

const Command* find_command(std::string_view name) {
  const auto found =
      std::find_if(kCommands.begin(), kCommands.end(), [&](const auto& each) { return each.name == name; });
  return found == kCommands.end() ? nullptr : &*found;
}

// Throws if the first argument is neither a command nor an option of the program.
void check_command(int argc, char** argv) {
  if (argc < 2) throw Misuse{"[usage] a command must be given, got none (roformer --help lists them)"};
  const std::string_view given = argv[1];
  if (find_command(given) != nullptr || given == "-h" || given == "--help" || given == "--version") return;
  if (given.starts_with('-')) {
    throw Misuse{fmt::format(
        "[usage] an option before the command must be --help or --version, got {} (roformer --help lists the commands)",
        io::printable(given))};
  }
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  const std::string_view nearest = io::nearest_name(given, names);
  const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
  throw Misuse{fmt::format("[usage] the command must be a known one, got {}{} (roformer --help lists them)",
                           io::printable(given), hint)};
}

void add_common(CLI::App& app, const Command& command, Common& common) {
  if (command.seed == Command::Seed::kUsed)
    app.add_option("--seed", common.seed, "Random seed; default: that of the run file, else 1 (generate and chat: 0)");
  app.add_option("--threads", common.threads, "Number of threads; default: OMP_NUM_THREADS, else all processors")
      ->check(integer_within(1, 1024));
  app.footer(fmt::format("Example:\n  {}", command.example));
}

std::string without_line_end(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

int out_of_memory() {
  say("[memory] the work must fit into memory, got an allocation that failed");
  return kBadInput;
}

// Ends the progress line before the message of an error.
struct ProgressScope {
  ~ProgressScope() { progress().finish(); }
};

// Whether a process reports a wrong command line: every process of a job has the same one, and one process reports it.
enum class Misuses { kSaid, kSilent };

int run_guarded(Misuses misuses, const std::function<int()>& action) {
  const auto refuse = [misuses](const std::string& message) {
    if (misuses == Misuses::kSaid) say(message);
    return kUsage;
  };
  try {
    const ProgressScope scope;
    return action();
  } catch (const BrokenPipe&) {
    return kOk;
  } catch (const SilentExit& exit) {
    return exit.code;
  } catch (const Misuse& misuse) {
    return refuse(misuse.message);
  } catch (const UsageError& error) {
    return refuse(error.what());
  } catch (const Error& error) {
    say(error.what());
    return kBadInput;
  } catch (const std::filesystem::filesystem_error& error) {
    say(fmt::format("[files] {} must be usable, got: {}", error.path1().string(), error.code().message()));
    return kBadInput;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    say(fmt::format("internal error: {}", error.what()));
    return kInternal;
  }
}

// Adds the options of the called command, and opens only its library. If that library is missing, --help still shows
// the purpose of the command, and what is missing.
void configure_command(CLI::App& app, const Command& command, const Common& common, bool is_help,
                       std::function<int()>& action) {
  std::function<int()> run_command;
  try {
    run_command = add_options(app, command, common);
  } catch (const Error& error) {
    if (!is_help) throw;
    say(fmt::format("the help of {} lacks its own options: {}", command.name, error.what()));
  }
  if (CLI::Option* const model = app.get_option_no_throw("--model"); model != nullptr) {
    model->transform([](std::string path) {
      std::error_code error;
      return std::filesystem::exists(path, error) ? path : cached_model(path).value_or(path);
    });
    // If the model does not exist, that is the reason, whichever of its files was looked for first.
    run_command = [model, run = std::move(run_command)] {
      try {
        return run();
      } catch (const MissingFileError&) {
        if (model->count() > 0) static_cast<void>(located_model(model->results().front()));
        throw;
      }
    };
    app.add_flag_callback("--strict", make_warnings_errors,
                          "Treat warnings about the model's files as errors, such as an unknown key in config.json");
  }
  check_numbers(app);
  app.final_callback([&action, run_command = std::move(run_command)] { action = run_command; });
}

int parse_and_run(CLI::App& app, int argc, char** argv, const Common& common, const std::function<int()>& action) {
  const CLI::App* const command = argv[1][0] == '-' ? nullptr : app.get_subcommand(argv[1]);
  if (command != nullptr && !command->get_allow_extras())
    check_options(*command, std::span(argv, static_cast<size_t>(argc)).subspan(2));
  try {
    app.parse(marked_arguments(argc, argv, command == nullptr ? Dashes::kAreValue : dashes_of(*command)));
  } catch (const CLI::ParseError& error) {
    std::ostringstream help, message;
    if (app.exit(error, help, message) != 0) throw misuse_of(error, command == nullptr ? app : *command);
    emit_text(without_line_end(help.str()));
    return kOk;
  }
  if (*rf_target() == 0) {  // RF_KERNEL names kernels that do not exist
    say(rf_last_error());
    return kBadInput;
  }
  if (common.threads > 0 || std::getenv("OMP_NUM_THREADS") == nullptr)
    omp_set_num_threads(common.threads > 0 ? common.threads : io::available_processors());
  return action();
}

int run_program(int argc, char** argv, const char* process_group, Misuses misuses) {
  CLI::App app("RoFormer and rotary position embedding: pretraining, fine-tuning and inference", "roformer");
  app.set_version_flag("--version", "roformer " ROFORMER_VERSION);
  app.require_subcommand(1);
  Common common;
  common.process_group = process_group;
  common.arguments.assign(argv + std::min(argc, 1), argv + argc);
  for (const Command& each : kCommands) add_common(*app.add_subcommand(each.name, each.summary), each, common);
  std::function<int()> action;
  const std::span arguments(argv, static_cast<size_t>(argc));
  const auto called =
      std::find_if(arguments.begin() + 1, arguments.end(), [](const char* each) { return *each != '-'; });
  const Command* const command = called == arguments.end() ? nullptr : find_command(*called);
  const bool is_help =
      std::ranges::any_of(arguments, [](std::string_view each) { return each == "--help" || each == "-h"; });
  return run_guarded(misuses, [&] {
    check_command(argc, argv);
    const io::WarningScope warnings(warn_user);
    if (command != nullptr) configure_command(*app.get_subcommand(command->name), *command, common, is_help, action);
    return parse_and_run(app, argc, argv, common, action);
  });
}

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

}  // namespace rf::cli

// The entry point of python/roformer_cpp/distributed.py in each process of a job. group: the name of the process group
// in torch.distributed. says_misuse: 0 if another process reports errors of the same command line.
extern "C" int rf_cli_main_of_job(int argc, char** argv, const char* group, int says_misuse) {
  // A closed pipe and a file at its size limit become errors of write() instead of signals.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  rf::io::report_lost_pages();
  using rf::cli::Misuses;
  return rf::cli::run_program(argc, argv, group, says_misuse != 0 ? Misuses::kSaid : Misuses::kSilent);
}

// The entry point of program.cpp.
extern "C" int rf_cli_main(int argc, char** argv) { return rf_cli_main_of_job(argc, argv, "", 1); }
