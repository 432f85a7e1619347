#include "read_options.h"

#include "command.h"
#include "rf/io/error.h"

namespace rf::cli {

namespace {

// An option whose value `parse` takes by name; a name that it refuses is a usage error.
template <typename Value>
void add_named(CLI::App& app, const std::string& name, Value& value, Value (*parse)(const std::string&),
               const char* initial, const std::string& description) {
  app.add_option_function<std::string>(
         name, [&value, parse](const std::string& text) { value = parse(text); }, description)
      ->default_str(initial)
      ->check([parse](const std::string& text) -> std::string {
        try {
          parse(text);
          return "";
        } catch (const Error& error) {
          return error.what();
        }
      });
}

void add_no_quotes(CLI::App& app, data::Quotes& quotes) {
  app.add_flag_callback(
      "--no-quotes", [&quotes] { quotes = data::Quotes::kText; }, "Quotation marks in csv and tsv are text");
}

}  // namespace

void add_read_options(CLI::App& app, data::ReadOptions& options) {
  app.add_option("--input", options.inputs,
                 "Files (.txt .jsonl .csv .tsv .parquet, also .gz and .zst), directories of such, quoted patterns "
                 "('corpus/**/*.jsonl.gz'), or - for standard input")
      ->required();
  add_named(app, "--format", options.format, data::format, data::format_name(options.format),
            "What the inputs are, where their names do not say it: text, jsonl, csv, tsv or parquet");
  app.add_option("--field", options.field,
                 "Where a record has its text: a JSON key (a.b or /a/b), a column's name, or in a table without header "
                 "its number from 1")
      ->capture_default_str();
  add_no_quotes(app, options.quotes);
  app.add_flag_callback(
      "--skip-bad-records", [&options] { options.bad_records = data::BadRecords::kSkip; },
      "Count broken records, and those without the field, instead of ending at the first");
}

void add_record_options(CLI::App& app, data::RecordOptions& options) {
  app.add_option("--input", options.inputs,
                 "Records of a fine-tuned model's task: .jsonl .csv .tsv, also .gz and .zst, directories, patterns, or "
                 "- for standard input");
  add_record_format(app, options.format, options.quotes);
}

void add_record_format(CLI::App& app, data::Format& format, data::Quotes& quotes) {
  add_named(
      app, "--format", format, data::format, data::format_name(format),
      "What the records are, where names do not say it: jsonl, csv or tsv; of standard input jsonl is the default");
  add_no_quotes(app, quotes);
}

void say_left_out(const std::vector<std::string>& files) {
  if (files.empty()) return;
  say(fmt::format("left out of the input, as what this command writes: {}{}", files.front(),
                  files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : ""));
}

void add_dictionary(CLI::App& app, text::LoadOptions& options) {
  app.add_option(
      "--dict", options.dictionary,
      "jieba's dict.txt for tokenizers that segment; default: dict.txt in the model directory, else the set-up's");
  app.add_option("--user-dict", options.user_dictionaries, "Further words, in jieba's format");
}

void add_document_rule(CLI::App& app, data::ReadOptions& options) {
  add_named(app, "--documents", options.document_rule, data::document_rule,
            data::document_rule_name(options.document_rule),
            "What a document is: file, blank-line or line; a record counts as a file");
}

}  // namespace rf::cli
