#include "read_options.h"

#include <filesystem>
#include <iterator>
#include <optional>

#include "rf/engine/names.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/written_files.h"

namespace rf::cli {

namespace {

namespace fs = std::filesystem;

const std::map<std::string, engine::Precision> kPrecisions(engine::kPrecisionNames.begin(),
                                                           engine::kPrecisionNames.end());

// An option whose value `parse` reads by name; a name that it refuses is a usage error.
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

// Removes and returns the field at the front of `rest`: the text up to the next comma, or a text in double quotes, in
// which "" stands for ". nullopt if the quotes do not close.
std::optional<std::string> take_field(std::string_view& rest) {
  std::string field;
  if (!rest.starts_with('"')) {
    field = rest.substr(0, rest.find(','));
    rest.remove_prefix(field.size());
    return field;
  }
  for (size_t at = 1; at < rest.size(); ++at) {
    if (rest[at] == '"' && !rest.substr(++at).starts_with('"')) {
      rest.remove_prefix(at);
      return field;
    }
    field += rest[at];
  }
  return std::nullopt;
}

// Removes the pair at the front of `rest`, name=field, and the comma after it.
void add_pair(std::string_view& rest, std::map<std::string, std::string>& columns) {
  const std::string_view list = rest;
  const std::string name(rest.substr(0, rest.find_first_of("=,")));
  rest.remove_prefix(name.size());
  std::optional<std::string> field;
  if (rest.starts_with('=')) {
    rest.remove_prefix(1);
    field = take_field(rest);
  }
  const bool ends = rest.empty() || rest.starts_with(',');
  if (name.empty() || !field || field->empty() || !ends || !columns.emplace(name, *field).second) {
    throw CLI::ValidationError("--columns",
                               fmt::format("must give each once, as name=field, got {}", io::printable(list)));
  }
  rest.remove_prefix(std::min<size_t>(1, rest.size()));
}

constexpr int kModuleDepth = 1;  // files of sentence-transformers' modules, such as 1_Pooling/config.json

bool is_model_file(const fs::path& path) {
  const std::string name = path.filename().string(), extension = path.extension().string();
  return extension == ".json" || extension == ".safetensors" || extension == ".gguf" ||
         std::ranges::find(text::kTokenizerFiles, name) != std::end(text::kTokenizerFiles);
}

void add_no_quotes(CLI::App& app, data::Quotes& quotes) {
  add_switch(app, "--no-quotes", quotes, data::Quotes::kText, "Quotation marks in csv and tsv are text");
}

}  // namespace

CLI::Option* add_text_inputs(CLI::App& app, data::ReadOptions& options) {
  CLI::Option* const input =
      app.add_option("--input", options.inputs,
                     "Files (.txt .jsonl .csv .tsv .parquet, also .gz and .zst), directories of such, quoted patterns "
                     "('corpus/**/*.jsonl.gz'), or - for standard input")
          ->required();
  add_named(app, "--format", options.format, data::format, data::format_name(options.format),
            "Format of all inputs: text, jsonl, csv, tsv or parquet; default: by file extension, else text");
  add_default(app, "--field", options.field,
              "Field with the text of a record: a JSON key (a.b or /a/b), a column's name, or in a table without "
              "header its number from 1");
  add_no_quotes(app, options.quotes);
  return input;
}

void add_id_field(CLI::App& app, data::ReadOptions& options) {
  options.ids = data::Ids::kIfPresent;
  app.add_option_function<std::string>(
         "--id-field",
         [&options](const std::string& name) {
           options.ids = data::Ids::kNamed;
           options.id_field = name;
         },
         "Field with the id of a record, named as --field is; a result has it as \"id\". Default: id, where there is "
         "one")
      ->type_name("TEXT");
}

void add_read_options(CLI::App& app, data::ReadOptions& options) {
  add_text_inputs(app, options);
  add_switch(app, "--skip-bad-records", options.bad_records, data::BadRecords::kSkip,
             "Count and skip damaged records and those without the field, instead of stopping at the first");
}

void add_record_inputs(CLI::App& app, std::vector<std::string>& inputs) {
  app.add_option("--input", inputs,
                 "Records of a fine-tuned model's task: files, also .gz and .zst, directories, patterns, or - for "
                 "standard input");
}

void add_record_format(CLI::App& app, data::Format& format, data::Quotes& quotes, const char* formats) {
  add_named(app, "--format", format, data::format, data::format_name(format),
            fmt::format("Format of all records: {}; default: by file extension, jsonl for standard input", formats));
  add_no_quotes(app, quotes);
}

void say_left_out(const std::vector<std::string>& files) {
  if (files.empty()) return;
  say(fmt::format("left out of the input, because this command writes it: {}{}", files.front(),
                  files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : ""));
}

void check_outputs(const std::vector<std::string>& outputs, std::vector<std::string> inputs, const std::string& model) {
  std::error_code error;
  if (fs::is_regular_file(model, error)) inputs.push_back(model);
  for (fs::recursive_directory_iterator entry(model, error), end; !error && entry != end; entry.increment(error)) {
    if (entry.depth() == kModuleDepth) entry.disable_recursion_pending();
    if (is_model_file(entry->path())) inputs.push_back(entry->path().string());
  }
  io::WrittenFiles(outputs).check_inputs(inputs);
}

void add_columns(CLI::App& app, std::map<std::string, std::string>& columns) {
  app.add_option_function<std::vector<std::string>>(
         "--columns",
         [&columns](const std::vector<std::string>& lists) {
           for (const std::string& list : lists) {
             std::string_view rest = list;
             do {
               add_pair(rest, columns);
             } while (!rest.empty());
           }
         },
         "Names of the fields: text=sentence1,pair=sentence2,label=score; one with a comma in double quotes")
      ->type_name("NAME=FIELD");
}

void add_dictionary(CLI::App& app, text::LoadOptions& options) {
  app.add_option(
      "--dict", options.dictionary,
      "jieba's dict.txt for tokenizers that segment; default: dict.txt in the model directory, else the installed one");
  app.add_option("--user-dict", options.user_dictionaries, "Further words, in jieba's format");
}

void check_dictionaries(const text::LoadOptions& options, const std::string& output_dir) {
  std::vector<std::string> inputs = options.user_dictionaries, outputs;
  inputs.push_back(options.dictionary);
  for (const std::string_view name : text::kTokenizerFiles) {
    if (!output_dir.empty()) outputs.push_back(fs::path(output_dir) / name);
  }
  io::WrittenFiles(outputs).check_inputs(inputs);
}

void add_precision(CLI::App& app, engine::Precision& precision) {
  add_choice(app, "--precision", precision, name_of(precision).c_str(), "Computes in float32, bfloat16 or int8",
             kPrecisions);
}

void add_cache_precision(CLI::App& app, engine::CachePrecision& precision) {
  add_choice(app, "--cache-precision", precision, "auto",
             "Generation keeps keys and values in bfloat16 or int8; auto: as they are computed",
             {engine::kCachePrecisionNames.begin(), engine::kCachePrecisionNames.end()});
}

std::string name_of(engine::Precision precision) { return name_in(kPrecisions, precision); }

void add_adapter(CLI::App& app, std::string& adapter) {
  app.add_option("--adapter", adapter, "Folder with an adapter of PEFT (LoRA), which is added to the model's weights")
      ->type_name("DIR");
}

void add_batch_tokens(CLI::App& app, int64_t& batch_tokens) {
  add_default(app, "--batch-tokens", batch_tokens, "Maximum tokens of a batch; a longer row is computed alone");
}

void add_document_rule(CLI::App& app, data::ReadOptions& options) {
  add_named(app, "--documents", options.document_rule, data::document_rule,
            data::document_rule_name(options.document_rule),
            "Boundary of documents in a text file or a record: file (all of it), blank-line or line");
}

}  // namespace rf::cli
