#include "command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "rf/io/printable.h"
#include "training_library.h"

namespace rf::cli {

Dashes dashes_of(const CLI::App& command) {
  const auto is_positional = [](const CLI::Option* option) { return option->get_positional(); };
  return command.get_options(is_positional).empty() ? Dashes::kAreValue : Dashes::kEndOptions;
}

std::vector<std::string> marked_arguments(int argc, const char* const* argv, Dashes dashes) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    const size_t begin = equals == std::string::npos ? 0 : equals + 1;
    const std::string_view value = std::string_view(argument).substr(begin);
    const bool is_list = value.starts_with('[') && value.ends_with(']');
    const bool are_dashes = argument == "--" && dashes == Dashes::kAreValue;
    if (is_list || are_dashes || value.empty() || value == "++" || value.starts_with(kValueMark)) {
      argument.insert(begin, 1, kValueMark);
    }
  }
  std::ranges::reverse(arguments);
  return arguments;
}

void unmark_value(std::string& value) {
  if (value.starts_with(kValueMark)) value.erase(0, 1);
}

void unmark_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const auto unmark = [](std::string& value) {
      unmark_value(value);
      return std::string();
    };
    option->transform(CLI::Validator(unmark, ""));
  }
  for (CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) unmark_values(*group);
}

// CLI11 reads octal and hexadecimal numbers, and replaces one that does not fit by the nearest that does.
CLI::Validator whole_number(int64_t min, int64_t max) {
  const auto shown = [](int64_t limit) {
    return limit == std::numeric_limits<int64_t>::min()   ? "-2^63"
           : limit == std::numeric_limits<int64_t>::max() ? "2^63 - 1"
                                                          : std::to_string(limit);
  };
  const std::string range = fmt::format("{} to {}", shown(min), shown(max));
  const auto check = [=](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && std::to_string(value) == text && value >= min && value <= max) return "";
    return fmt::format("must be a whole number from {} in decimal digits, got {}", range, io::printable(text));
  };
  return CLI::Validator(check, max == std::numeric_limits<int64_t>::max() ? "" : range, "");
}

std::function<int()> add_options(CLI::App& app, const Command& command, const Common& common) {
  const Configure configure = command.configure != nullptr ? command.configure : training_command(command.name);
  std::function<int()> run = configure(app, common);
  unmark_values(app);
  return run;
}

}  // namespace rf::cli
