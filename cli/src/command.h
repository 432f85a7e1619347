// What a command is, and what all of them share. Results go to stdout as JSON lines, text for people to stderr; both
// without characters that steer a terminal, whatever the files and names they come from.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/progress.h"

namespace rf::cli {

// Options that commands share.
struct Common {
  std::optional<uint64_t> seed;  // of those that draw random numbers
  int threads = 0;               // 0: as many as the machine has, or OMP_NUM_THREADS
};

// Adds the command's options to `app`. The function it gives back runs the command and returns the exit code; values
// that the options bind to live in its captures.
using Configure = std::function<int()> (*)(CLI::App& app, const Common& common);

struct Command {
  const char* name;
  const char* summary;
  const char* example;
  enum class Seed { kUsed, kNotUsed } seed;
  Configure configure;
};

std::function<int()> configure_info(CLI::App& app, const Common& common);
std::function<int()> configure_tokenize(CLI::App& app, const Common& common);
std::function<int()> configure_vocab(CLI::App& app, const Common& common);
std::function<int()> configure_add_words(CLI::App& app, const Common& common);
std::function<int()> configure_prepare(CLI::App& app, const Common& common);
std::function<int()> configure_pretrain(CLI::App& app, const Common& common);
std::function<int()> configure_finetune(CLI::App& app, const Common& common);
std::function<int()> configure_predict(CLI::App& app, const Common& common);
std::function<int()> configure_evaluate(CLI::App& app, const Common& common);
std::function<int()> configure_fill_mask(CLI::App& app, const Common& common);
std::function<int()> configure_forward(CLI::App& app, const Common& common);
std::function<int()> configure_compare(CLI::App& app, const Common& common);
std::function<int()> configure_reproduce(CLI::App& app, const Common& common);
std::function<int()> configure_bench(CLI::App& app, const Common& common);

// Exit codes of the contract.
constexpr int kOk = 0, kBadInput = 1, kUsage = 2, kInternal = 3;
constexpr int kSignalBase = 128;  // plus the number of the signal that ended a program early, as shells have it

// Options that do not go together, or lack another one: like what the option parser finds wrong, it ends with kUsage.
struct UsageError : Error {
  using Error::Error;
};
template <typename... Args>
[[noreturn]] void fail_usage(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(where, fmt::format(format, std::forward<Args>(args)...));
}

// Thrown by emit() when nobody reads stdout any more; the program then ends quietly with kOk, as after `| head`.
struct BrokenPipe {};

// One JSON line on stdout. Throws Error when it cannot be written (a full disk).
void emit(const nlohmann::json& result);
void emit_part(const std::string& json);  // of a line that is too long to be held
void emit_line(const std::string& json);
// Text for people on stdout.
void emit_text(const std::string& text);
// Objects that are alike: JSON lines, or where stdout is a terminal, and --json was not given, a table of the keys
// named.
void emit_list(const nlohmann::json& objects, const std::vector<std::string>& keys, bool as_json);
// The flag --json of commands with such lists.
CLI::Option* add_json(CLI::App& app, bool& as_json);
// All that goes to stderr: progress and messages.
io::Progress& progress();
// A message: one line or several.
void say(const std::string& text);
// Where and of what a figure is: cpu, cores, threads, target, torch, commit.
nlohmann::json machine_facts();

}  // namespace rf::cli
