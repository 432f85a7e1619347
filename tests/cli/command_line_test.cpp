// Every option of every command keeps a value in square brackets as one value, as a shell passes it on.
#include "command_line.h"

#include <gtest/gtest.h>

#include <array>

namespace rf::cli {
namespace {

void expect_kept(const Command& command, const std::string& option_name, const std::string& value, bool joined) {
  CLI::App app;
  const Common common;
  const auto run = add_options(app, command, common);
  const std::string name = "--" + option_name, whole = name + "=" + value;
  const std::array separate = {"roformer", name.c_str(), value.c_str()};
  const std::array together = {"roformer", whole.c_str()};
  try {
    app.parse(joined ? marked_arguments(2, together.data()) : marked_arguments(3, separate.data()));
  } catch (const CLI::ParseError&) {  // other options are missing, or this one wants a number
  }
  std::vector<std::string> results;
  const auto collect = [&](const auto& self, CLI::App& group) -> void {
    for (const CLI::Option* option : group.get_options()) {
      if (option->check_lname(option_name)) results = option->results();
    }
    for (CLI::App* inner : group.get_subcommands([](const CLI::App*) { return true; })) self(self, *inner);
  };
  collect(collect, app);
  ASSERT_EQ(results.size(), 1u) << command.name << " " << name;
  if (results[0].starts_with(kValueMark)) results[0].erase(0, 1);  // refused before its value was read
  EXPECT_EQ(results[0], value) << command.name << " " << name;
}

TEST(CommandLine, ValuesInBracketsAreOneValue) {
  size_t texts = 0;
  for (const Command& command : all_commands()) {
    CLI::App app;
    const Common common;
    const auto run = add_options(app, command, common);
    std::vector<CLI::App*> groups = app.get_subcommands([](const CLI::App*) { return true; });
    groups.push_back(&app);
    for (CLI::App* group : groups) {
      for (const CLI::Option* option : group->get_options()) {
        // A flag has no value, and --columns is a list by its own rule.
        if (option->get_items_expected_min() == 0 || option->get_delimiter() != '\0') continue;
        for (const std::string& name : option->get_lnames()) {
          expect_kept(command, name, "[Smith, p. 5]", false);
          expect_kept(command, name, "[UNK]", true);
          expect_kept(command, name, "++", false);
          expect_kept(command, name, "", true);
        }
        texts += option->get_type_name().starts_with("TEXT") ? 1 : 0;
      }
    }
  }
  EXPECT_GT(texts, 50u);
}

TEST(CommandLine, AMarkOfTheUserIsKept) {
  CLI::App app;
  std::string text;
  app.add_option("--text", text);
  unmark_values(app);
  const std::array arguments = {"roformer", "--text", "\x1f[a]"};
  app.parse(marked_arguments(3, arguments.data()));
  EXPECT_EQ(text, "\x1f[a]");
}

}  // namespace
}  // namespace rf::cli
