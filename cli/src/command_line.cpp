#include "command_line.h"

#include <algorithm>
#include <string_view>

#include "training_library.h"

namespace rf::cli {

std::vector<std::string> marked_arguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    const size_t begin = equals == std::string::npos ? 0 : equals + 1;
    const std::string_view value = std::string_view(argument).substr(begin);
    const bool is_list = value.starts_with('[') && value.ends_with(']');
    const bool is_nothing = equals != std::string::npos && value.empty();
    if (is_list || is_nothing || value == "++" || value.starts_with(kValueMark)) {
      argument.insert(begin, 1, kValueMark);
    }
  }
  std::ranges::reverse(arguments);
  return arguments;
}

void unmark_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const auto unmark = [](std::string& value) {
      if (!value.empty() && value.front() == kValueMark) value.erase(0, 1);
      return std::string();
    };
    option->transform(CLI::Validator(unmark, ""));
  }
  for (CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) unmark_values(*group);
}

std::function<int()> add_options(CLI::App& app, const Command& command, const Common& common) {
  const Configure configure = command.configure != nullptr ? command.configure : training_command(command.name);
  std::function<int()> run = configure(app, common);
  unmark_values(app);
  return run;
}

}  // namespace rf::cli
