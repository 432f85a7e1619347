// Options for the input of a command, shared by several commands and by the training library.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "command.h"
#include "rf/data/reader.h"
#include "rf/engine/precision.h"
#include "rf/io/dtype.h"
#include "rf/io/printable.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

// An option whose values have names; an unknown name is a usage error that lists them. `initial`: the default's name,
// for --help; "": not shown.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const char* name, Value& value, const char* initial, const char* help,
                        const std::map<std::string, Value>& names) {
  std::string listed;
  for (const auto& [known, _] : names) listed += (listed.empty() ? "" : ", ") + known;
  CLI::Option* const option = app.add_option_function<std::string>(
      name,
      [&value, names, listed, name](const std::string& given) {
        const auto found = names.find(std::string(io::full_type_name(given)));
        if (found == names.end()) {
          throw CLI::ValidationError(name, fmt::format("must be one of {}, got {}", listed, io::printable(given)));
        }
        value = found->second;
      },
      help);
  option->type_name("NAME");
  if (*initial != '\0') option->default_str(initial);
  return option;
}

// The name of a value in such a table.
template <typename Value>
std::string name_in(const std::map<std::string, Value>& names, Value value) {
  return std::ranges::find(names, value, [](const auto& entry) { return entry.second; })->first;
}

// An option that may be empty, unlike the std::optional of CLI11.
inline CLI::Option* add_text(CLI::App& app, const char* name, std::optional<std::string>& text, const char* help) {
  return app.add_option_function<std::string>(
      name, [&text](const std::string& given) { text = given; }, help);
}
// --prompt and --prompt-name. Options: engine::EmbedderOptions or tasks::CrossEncoderOptions.
template <typename Options>
void add_prompt(CLI::App& app, Options& options, const char* help) {
  add_text(app, "--prompt", options.prompt, help);
  add_text(app, "--prompt-name", options.prompt_name, "One of the model's prompts")->excludes("--prompt");
}

// `options` must outlive the application. It has the user's values when the command runs; an unknown name is a usage
// error.
RF_CLI_API void add_read_options(CLI::App& app, data::ReadOptions& options);
// The options of add_read_options() that choose the texts of the input; returns the option --input.
CLI::Option* add_text_inputs(CLI::App& app, data::ReadOptions& options);
// --id-field: makes `options` ask for the ids of records.
void add_id_field(CLI::App& app, data::ReadOptions& options);
// --input of records with fields; not required.
RF_CLI_API void add_record_inputs(CLI::App& app, std::vector<std::string>& inputs);
// --format and --no-quotes of records. formats: the formats that the command reads, for --help.
RF_CLI_API void add_record_format(CLI::App& app, data::Format& format, data::Quotes& quotes,
                                  const char* formats = "jsonl, csv or tsv");
// --columns: the names of fields, "text=sentence1" -> text: sentence1. A value that is not such a pair, or names a
// column again, is a usage error.
RF_CLI_API void add_columns(CLI::App& app, std::map<std::string, std::string>& columns);
// A message about files of an input directory that were not read because the command writes them; none without files.
RF_CLI_API void say_left_out(const std::vector<std::string>& files);
// Throws Error if the command would write to a file that it reads: one of `inputs`, or of the model, a directory or a
// file.
RF_CLI_API void check_outputs(const std::vector<std::string>& outputs, std::vector<std::string> inputs,
                              const std::string& model);
// --dict and --user-dict: jieba's dictionaries.
RF_CLI_API void add_dictionary(CLI::App& app, text::LoadOptions& options);
// Throws Error if the command would overwrite a dictionary, by writing to standard output or a tokenizer's files into
// `output_dir`.
RF_CLI_API void check_dictionaries(const text::LoadOptions& options, const std::string& output_dir = "");
// --precision and --batch-tokens of commands that run the engine.
void add_precision(CLI::App& app, engine::Precision& precision);
void add_cache_precision(CLI::App& app, engine::CachePrecision& precision);
std::string name_of(engine::Precision precision);
void add_adapter(CLI::App& app, std::string& adapter);  // --adapter
void add_batch_tokens(CLI::App& app, int64_t& batch_tokens);
// --documents, for the commands to which it makes a difference.
RF_CLI_API void add_document_rule(CLI::App& app, data::ReadOptions& options);

}  // namespace rf::cli
