// What is wrong with a command line, in the form of our errors: "[usage] --x must ..., got ...".
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace rf::cli {

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
