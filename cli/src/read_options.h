// The options that say what a command reads and how, the same in each.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "rf/data/reader.h"
#include "rf/data/records.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

// An option whose values have names; one that is none is a usage error that lists them. `initial`: the default's name,
// for --help; "": not shown.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const char* name, Value& value, const char* initial, const char* help,
                        const std::map<std::string, Value>& names) {
  std::string listed;
  for (const auto& [known, _] : names) listed += (listed.empty() ? "" : ", ") + known;
  CLI::Option* const option = app.add_option_function<std::string>(
      name,
      [&value, names, listed, name](const std::string& given) {
        const auto found = names.find(given);
        if (found == names.end()) {
          throw CLI::ValidationError(name, fmt::format("must be one of {}, got {}", listed, given));
        }
        value = found->second;
      },
      help);
  option->type_name("NAME");
  if (*initial != '\0') option->default_str(initial);
  return option;
}

// `options` lives as long as the application. What the user gives is in it when the command runs; a name that is none
// is a usage error.
void add_read_options(CLI::App& app, data::ReadOptions& options);
// --input of records with fields; not required.
void add_record_inputs(CLI::App& app, std::vector<std::string>& inputs);
// --format and --no-quotes of such. formats: those that the command reads, for --help.
void add_record_format(CLI::App& app, data::Format& format, data::Quotes& quotes,
                       const char* formats = "jsonl, csv or tsv");
// --columns: which field is what, "text=sentence1" -> text: sentence1. One that is no such pair, or names a column
// again, is a usage error.
void add_columns(CLI::App& app, std::map<std::string, std::string>& columns);
// Where jieba's words come from: --dict and --user-dict.
// Files of an input directory that were not read, because the command writes them; nothing where there are none.
void say_left_out(const std::vector<std::string>& files);
void add_dictionary(CLI::App& app, text::LoadOptions& options);
// What a document is: for the commands to which it makes a difference.
void add_document_rule(CLI::App& app, data::ReadOptions& options);

}  // namespace rf::cli
