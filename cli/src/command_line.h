// What CLI11 would change in a command line. It takes a value in square brackets for a list, an empty one for the name
// of a group of options, and "--" for the end of a list, so such a value, and one that begins with the mark itself,
// gets a mark in front; each option takes it away before anything else reads its value.
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

// For Option::check: a whole number in decimal digits, from min to max.
RF_CLI_API CLI::Validator whole_number(int64_t min, int64_t max = std::numeric_limits<int64_t>::max());

// The commands in the order of --help.
RF_CLI_API std::span<const Command> all_commands();
// Adds the options of a command, also of one in another library, whose values are then what the user typed.
RF_CLI_API std::function<int()> add_options(CLI::App& app, const Command& command, const Common& common);

}  // namespace rf::cli
