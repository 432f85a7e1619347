// Command lines: keeps CLI11 from changing values, and reports wrong command lines in the form of our errors
// ("[usage] --x must ..., got ...").
//
// CLI11 takes a value in square brackets for a list, an empty value for the name of a group of options, and "--" for
// the end of a list. So such values, and values that begin with the mark, get the mark as a prefix; each option removes
// it before anything else reads the value.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "command.h"

namespace rf::cli {

inline constexpr char kValueMark = '\x1f';

// The meaning of "--": in a command without positional arguments, a value like others; else the end of the options.
enum class Dashes { kAreValue, kEndOptions };
Dashes dashes_of(const CLI::App& command);

// The arguments behind the program's name, as CLI::App::parse wants them: the last one first.
RF_CLI_API std::vector<std::string> marked_arguments(int argc, const char* const* argv,
                                                     Dashes dashes = Dashes::kAreValue);
RF_CLI_API void unmark_value(std::string& value);
// For the options of `app` and of its groups.
RF_CLI_API void unmark_values(CLI::App& app);

// For Option::check: an integer in decimal digits, from min to max.
RF_CLI_API CLI::Validator integer_within(int64_t min, int64_t max = std::numeric_limits<int64_t>::max());

// The commands in the order of --help.
RF_CLI_API std::span<const Command> all_commands();
// Adds the options of a command, which may be in another library; their values are what the user typed, without marks.
RF_CLI_API std::function<int()> add_options(CLI::App& app, const Command& command, const Common& common);

// A wrong command line; run_guarded() reports it.
struct Misuse {
  std::string message;
};

// Throws Misuse for an option that `command` does not have, and for a flag with a value. CLI11 would first miss an
// option that was misspelt. arguments: the ones after the name of the command.
void check_options(const CLI::App& command, std::span<char* const> arguments);
// Makes options with numbers refuse texts that CLI11 would misread.
void check_numbers(CLI::App& command);
// The Misuse of an error of CLI11.
Misuse misuse_of(const CLI::ParseError& error, const CLI::App& command);

}  // namespace rf::cli
