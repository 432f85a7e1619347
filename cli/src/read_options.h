// The options that say what a command reads and how, the same in each.
#pragma once

#include <CLI/CLI.hpp>

#include "rf/data/reader.h"
#include "rf/data/records.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

// `options` lives as long as the application. What the user gives is in it when the command runs; a name that is none
// is a usage error.
void add_read_options(CLI::App& app, data::ReadOptions& options);
// Records with fields: --input, --format and --no-quotes. --input is not required.
void add_record_options(CLI::App& app, data::RecordOptions& options);
// --format and --no-quotes alone.
void add_record_format(CLI::App& app, data::Format& format, data::Quotes& quotes);
// Where jieba's words come from: --dict and --user-dict.
void add_dictionary(CLI::App& app, text::LoadOptions& options);
// What a document is: for the commands to which it makes a difference.
void add_document_rule(CLI::App& app, data::ReadOptions& options);

}  // namespace rf::cli
