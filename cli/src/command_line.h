// What CLI11 would change in a command line. It takes a value in square brackets for a list, so such a value, and one
// that begins with the mark itself, gets a mark in front; each option takes it away before anything else reads its
// value.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "command.h"

namespace rf::cli {

inline constexpr char kValueMark = '\x1f';

// The arguments behind the program's name, as CLI::App::parse wants them: the last one first.
RF_CLI_API std::vector<std::string> marked_arguments(int argc, const char* const* argv);
// For the options of `app` and of its groups.
RF_CLI_API void unmark_values(CLI::App& app);

// The commands in the order of --help.
RF_CLI_API std::span<const Command> all_commands();
// Adds the options of a command, also of one in another library, whose values are then what the user typed.
RF_CLI_API std::function<int()> add_options(CLI::App& app, const Command& command, const Common& common);

}  // namespace rf::cli
