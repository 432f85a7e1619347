// The interface of commands, and their shared code. Results go to stdout as JSON lines, diagnostics to stderr; in both,
// terminal control characters from files and names are escaped.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/progress.h"

namespace rf::cli {

// Options that commands share.
struct Common {
  std::vector<std::string> arguments;  // the command and its options, as given
  std::optional<uint64_t> seed;        // for commands that draw random numbers
  int threads = 0;                     // 0: all cores of the machine, or OMP_NUM_THREADS
  std::string process_group;           // of torch.distributed, in a job with several processes (rf_cli_main_of_job)
};

// Shared with the training library (training_library.h).
#define RF_CLI_API __attribute__((visibility("default")))

// Adds the command's options to `app`. The returned function runs the command and returns the exit code; its captures
// hold the values of the options.
using Configure = std::function<int()> (*)(CLI::App& app, const Common& common);

// Each command is a function <name>_command() in a separate file, or in training_commands.cpp if it needs torch, and a
// line of main.cpp.
struct Command {
  const char* name;
  const char* summary;
  const char* example;
  enum class Seed { kUsed, kNotUsed } seed;
  Configure configure;  // nullptr: configured by the training library
};

// An option whose default value is shown in --help.
template <typename Value>
CLI::Option* add_default(CLI::App& app, const char* name, Value& value, const std::string& help) {
  return app.add_option(name, value, help)->capture_default_str();
}
// A flag that gives `value` to `target`.
template <typename Value>
CLI::Option* add_switch(CLI::App& app, const char* name, Value& target, std::type_identity_t<Value> value,
                        const char* help) {
  return app.add_flag_callback(
      name, [&target, value] { target = value; }, help);
}

// Exit codes (README.md).
constexpr int kOk = 0, kBadInput = 1, kUsage = 2, kInternal = 3;
constexpr int kSignalBase = 128;  // plus the number of the signal that ended a program, as in shells

// Options that exclude each other, or need another one. The program exits with kUsage, as for errors of the option
// parser.
struct RF_CLI_API UsageError : Error {
  using Error::Error;
};
template <typename... Args>
[[noreturn]] void fail_usage(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(where, fmt::format(format, std::forward<Args>(args)...));
}

// Thrown by emit() if the reader of stdout has closed it; the program then exits silently with kOk, as with `| head`.
struct RF_CLI_API BrokenPipe {};

// Thrown to end the program without a message, because another process of the job reports the error.
struct RF_CLI_API SilentExit {
  int code;
};

// One JSON line on stdout. Throws Error if it cannot be written (a full disk).
RF_CLI_API void emit(const nlohmann::json& result);
RF_CLI_API void emit_part(const std::string& json);  // part of a line that is too long for memory
RF_CLI_API void emit_line(const std::string& json);
// Text on stdout: help and tables.
RF_CLI_API void emit_text(const std::string& text);
// Text that may also be written to a file, possibly in parts: escaped only on a terminal.
RF_CLI_API void emit_lines(const std::string& lines);
// Objects with the same keys: JSON lines, or if stdout is a terminal and --json was not given, a table of `keys`.
RF_CLI_API void emit_list(const nlohmann::json& objects, const std::vector<std::string>& keys, bool as_json);
// Whether results are shown as text: stdout is a terminal, and --json was not given.
RF_CLI_API bool shows_text(bool as_json);
// The flag --json of commands with such results.
RF_CLI_API CLI::Option* add_json(CLI::App& app, bool& as_json);
// The output to stderr: progress and messages.
RF_CLI_API io::Progress& progress();
// Writes a message of one or more lines to stderr.
RF_CLI_API void say(const std::string& text);
// A warning about a model's files, shown once; with --strict, an error.
RF_CLI_API void warn_user(const std::string& text);
void make_warnings_errors();

}  // namespace rf::cli
