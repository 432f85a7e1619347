// The options that say what a command reads and how, the same in each.
#pragma once

#include <CLI/CLI.hpp>

#include "rf/data/reader.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

// `options` lives as long as the application. What the user gives is in it when the command runs; a name that is none
// is a usage error.
void add_read_options(CLI::App& app, data::ReadOptions& options);
// Where jieba's words come from: --dict and --user-dict.
void add_dictionary(CLI::App& app, text::LoadOptions& options);
// What a document is: for the commands to which it makes a difference.
void add_document_rule(CLI::App& app, data::ReadOptions& options);

}  // namespace rf::cli
