#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "training_library.h"

namespace rf::cli {

namespace {

Misuse misuse(const CLI::App& command, const std::string& rule) {
  return {fmt::format("[usage] {} (roformer {} --help lists the options)", rule, command.get_name())};
}

// The command and its groups of options.
std::vector<const CLI::App*> groups_of(const CLI::App& command) {
  std::vector<const CLI::App*> groups = command.get_subcommands([](const CLI::App*) { return true; });
  groups.insert(groups.begin(), &command);
  return groups;
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  std::vector<const CLI::Option*> options;
  for (const CLI::App* group : groups_of(command)) {
    const std::vector<const CLI::Option*> of_group = group->get_options();
    options.insert(options.end(), of_group.begin(), of_group.end());
  }
  return options;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

// The message for a group of options with too few or too many given; "" if the number is right.
std::string rule_of_group(const CLI::App& group) {
  std::vector<std::string> names, given;
  for (const CLI::Option* option : group.get_options()) {
    if (option == group.get_help_ptr()) continue;
    names.push_back(option->get_name());
    if (option->count() > 0) given.push_back(option->get_name());
  }
  const size_t max = group.get_require_option_max();
  if (given.size() >= group.get_require_option_min() && (max == 0 || given.size() <= max)) return "";
  return fmt::format("one of {} must be given, got {}", fmt::join(names, " and "),
                     given.empty() ? "none" : fmt::format("{}", fmt::join(given, " and ")));
}

std::string rule_of_missing(const CLI::App& command) {
  for (const CLI::Option* option : options_of(command)) {
    if (option->get_required() && option->count() == 0)
      return fmt::format("{} must be given, got none", option->get_name());
  }
  for (const CLI::App* group : groups_of(command)) {
    std::string rule = rule_of_group(*group);
    if (!rule.empty()) return rule;
  }
  return "";
}

// The message for an option that lacks a needed option, or that comes with an excluded one; "" if all are right.
std::string rule_of_partners(const CLI::App& command) {
  for (const CLI::Option* option : options_of(command)) {
    if (option->count() == 0) continue;
    for (const CLI::Option* needed : option->get_needs()) {
      if (needed->count() == 0) {
        return fmt::format("{} must be with {}, got it alone", option->get_name(), needed->get_name());
      }
    }
    for (const CLI::Option* other : option->get_excludes()) {
      if (other->count() > 0) {
        return fmt::format("{} must be without {}, got both", option->get_name(), other->get_name());
      }
    }
  }
  return "";
}

std::string rule_of_count(const CLI::App& command, const std::string& message) {
  for (const CLI::Option* option : options_of(command)) {
    const auto max = static_cast<size_t>(option->get_items_expected_max());
    if (takes_value(*option) && option->count() > max) {
      return fmt::format("{} must be given once, got {} times", option->get_name(), option->count());
    }
  }
  return fmt::format("{} must have a value, got none", message.substr(0, message.find(':')));  // the last argument
}

std::string rule_of_rest(const CLI::App& command) {
  std::vector<std::string> rest = command.remaining();
  if (rest.empty() && command.get_parent() != nullptr) rest = command.get_parent()->remaining();
  if (rest.empty()) return "";
  std::string first = rest.front();
  unmark_value(first);
  return fmt::format("an argument of {} must be an option or its value, got {}", command.get_name(),
                     io::printable(first));
}

// "--x: [where] the y must ..." -> "--x must ..."
std::string rule_of_value(const std::string& message) {
  const size_t colon = message.find(": "), must = message.find("must ");
  if (colon == std::string::npos || must == std::string::npos) return message;
  return message.substr(0, colon) + " " + message.substr(must);
}

std::string rule_of(const CLI::ParseError& error, const CLI::App& command) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) return rule_of_value(message);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return rule_of_missing(command);
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) return rule_of_partners(command);
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) return rule_of_partners(command);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) return rule_of_count(command, message);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return rule_of_rest(command);
  return "";
}

// CLI11 takes an empty text for 0.
std::string check_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("must be a decimal number that fits into 64 bits, got {}", io::printable(text));
}

}  // namespace

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

// CLI11 would read octal and hexadecimal numbers, and replace a number out of range by the nearest in range.
CLI::Validator integer_within(int64_t min, int64_t max) {
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
    return fmt::format("must be an integer from {} in decimal digits, got {}", range, io::printable(text));
  };
  return CLI::Validator(check, max == std::numeric_limits<int64_t>::max() ? "" : range, "");
}

std::function<int()> add_options(CLI::App& app, const Command& command, const Common& common) {
  const Configure configure = command.configure != nullptr ? command.configure : training_command(command.name);
  std::function<int()> run = configure(app, common);
  unmark_values(app);
  return run;
}

void check_options(const CLI::App& command, std::span<char* const> arguments) {
  std::vector<std::string> known, with_value;
  for (const CLI::Option* option : options_of(command)) {
    for (const std::string& name : option->get_lnames()) {
      known.push_back("--" + name);
      if (takes_value(*option)) with_value.push_back("--" + name);
    }
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  bool is_value = false;
  for (const std::string_view argument : arguments) {
    if (std::exchange(is_value, false) || argument == "--" || !argument.starts_with("--")) continue;
    const size_t equals = argument.find('=');
    const std::string_view given = argument.substr(0, equals);
    const bool has_value = std::ranges::find(with_value, given) != with_value.end();
    if (std::ranges::find(names, given) == names.end()) {
      const std::string_view nearest = io::nearest_name(given, names);
      const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
      throw misuse(command, fmt::format("an option of {} must be a known one, got {}{}", command.get_name(),
                                        io::printable(given), hint));
    }
    if (equals != std::string_view::npos && !has_value) {
      throw misuse(command, fmt::format("{} must be without a value, got {}", given,
                                        io::printable(argument.substr(equals + 1))));
    }
    is_value = has_value && equals == std::string_view::npos;
  }
}

void check_numbers(CLI::App& command) {
  std::vector<CLI::App*> groups = command.get_subcommands([](CLI::App*) { return true; });
  groups.push_back(&command);
  for (CLI::App* group : groups) {
    for (CLI::Option* option : group->get_options()) {
      const std::string type = option->get_type_name();
      if (type.starts_with("UINT")) {
        option->check(integer_within(0));  // a seed, like the run file's
      } else if (type.starts_with("INT")) {
        option->check(integer_within(std::numeric_limits<int64_t>::min()));
      } else if (type.starts_with("FLOAT")) {
        option->check(check_number);
      }
    }
  }
}

Misuse misuse_of(const CLI::ParseError& error, const CLI::App& command) {
  const std::string rule = rule_of(error, command);
  const std::string message = error.what();
  return misuse(command, rule.empty() ? message.substr(0, message.find('\n')) : rule);
}

}  // namespace rf::cli
