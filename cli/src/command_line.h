// Command lines: what CLI11 would change in one, and what is wrong with one, in the form of our errors
// ("[usage] --x must ..., got ...").
//
// CLI11 takes a value in square brackets for a list, an empty one for the name of a group of options, and "--" for the
// end of a list, so such a value, and one that begins with the mark itself, gets a mark in front; each option takes it
// away before anything else reads its value.
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

// What "--" is: where no argument is anything but an option or its value, a value like others.
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
// Adds the options of a command, also of one in another library, whose values are then what the user typed.
RF_CLI_API std::function<int()> add_options(CLI::App& app, const Command& command, const Common& common);

// A wrong command line; run_guarded says it.
struct Misuse {
  std::string message;
};

// Throws Misuse for an option that `command` does not have, and for a flag with a value. CLI11 would first miss an
// option that was misspelt. arguments: those after the name of the command.
void check_options(const CLI::App& command, std::span<char* const> arguments);
// Options with numbers then refuse what CLI11 reads as another number, or as none.
void check_numbers(CLI::App& command);
// The Misuse of an error of CLI11.
Misuse misuse_of(const CLI::ParseError& error, const CLI::App& command);

}  // namespace rf::cli
