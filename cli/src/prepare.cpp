// roformer prepare: converts documents to token shards; and roformer merge, which joins their parts.
#include "rf/data/prepare.h"

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "read_options.h"
#include "rf/io/printable.h"

namespace rf::cli {

namespace {

nlohmann::json to_json(const data::PrepareReport& report, const std::string& output_dir) {
  nlohmann::json result = {{"output", output_dir},
                           {"documents", report.documents},
                           {"train_tokens", report.train_tokens},
                           {"valid_tokens", report.valid_tokens},
                           {"unknown_tokens", report.unknown_tokens},
                           {"unknown_rate", report.unknown_rate()},
                           {"replaced_bytes", report.replaced_bytes},
                           {"skipped_records", report.skipped_records},
                           {"input_bytes", report.input_bytes}};
  if (report.test_tokens > 0) result["test_tokens"] = report.test_tokens;
  return result;
}

int run_prepare(const data::PrepareOptions& options) {
  check_dictionaries(options.tokenizer, options.output_dir);
  const data::PrepareReport report = data::prepare(options, progress());
  progress().finish();
  say_left_out(report.left_out);
  nlohmann::json result = to_json(report, options.output_dir);
  if (!options.test_inputs.empty()) result["test_tokens"] = report.test_tokens;
  if (options.part) result["part"] = fmt::format("{}/{}", options.part->number, options.part->parts);
  emit(result);
  return kOk;
}

int run_merge(const data::MergeOptions& options) {
  const data::PrepareReport report = data::merge(options, progress());
  progress().finish();
  emit(to_json(report, options.output_dir));
  return kOk;
}

// "2/4"; nullopt unless 1 <= 2 <= 4.
std::optional<data::InputPart> parse_part(const std::string& text) {
  data::InputPart part;
  const char* const end = text.data() + text.size();
  const auto [slash, bad_number] = std::from_chars(text.data(), end, part.number);
  if (bad_number != std::errc() || slash == end || *slash != '/') return std::nullopt;
  const auto [rest, bad_parts] = std::from_chars(slash + 1, end, part.parts);
  const bool is_part = bad_parts == std::errc() && rest == end && part.number >= 1 && part.number <= part.parts;
  return is_part ? std::optional(part) : std::nullopt;
}

void add_part(CLI::App& app, data::PrepareOptions& options) {
  app.add_option_function<std::string>(
         "--part", [&options](const std::string& text) { options.part = parse_part(text); },
         "Make part i of n, such as 2/4, of the input's files; roformer merge joins the parts")
      ->check([](const std::string& text) {
        return parse_part(text) ? "" : "must be i/n with 1 <= i <= n, got " + io::printable(text);
      });
}

std::function<int()> configure_prepare(CLI::App& app, const Common& common) {
  auto options = std::make_shared<data::PrepareOptions>();
  add_read_options(app, options->input);
  add_document_rule(app, options->input);
  app.add_option("--model", options->model_dir, "Directory with the tokenizer's files")->required();
  add_dictionary(app, options->tokenizer);
  add_choice<data::WordRule>(
      app, "--words", options->words, "tokenizer",
      "Word boundaries for whole-word masking: tokenizer, or jieba (for a vocabulary of Chinese characters)",
      {{"tokenizer", data::WordRule::kTokenizer}, {"jieba", data::WordRule::kJieba}});
  app.add_option("--output", options->output_dir, "Data directory to write")->required();
  CLI::Option* const fraction = add_default(app, "--valid-fraction", options->valid_fraction,
                                            "Part of the documents to hold out, drawn with the seed");
  app.add_option("--valid-input", options->valid_inputs, "Held-out documents from other files, read like --input")
      ->excludes(fraction);
  app.add_option("--test-input", options->test_inputs, "Documents of the split \"test\", which training does not read");
  add_default(app, "--shard-tokens", options->shard_tokens, "Tokens after which a new shard starts");
  add_part(app, *options);
  return [options, &common] {
    options->seed = common.seed.value_or(options->seed);
    options->threads = common.threads;
    return run_prepare(*options);
  };
}

std::function<int()> configure_merge(CLI::App& app, const Common&) {
  auto options = std::make_shared<data::MergeOptions>();
  app.add_option("--input", options->inputs, "Directories of all parts, in any order")->required();
  app.add_option("--output", options->output_dir, "Data directory to write")->required();
  return [options] { return run_merge(*options); };
}

}  // namespace

Command merge_command() {
  return {"merge", "Join the parts of a data directory", "roformer merge --input parts/1 parts/2 --output data",
          Command::Seed::kNotUsed, configure_merge};
}

Command prepare_command() {
  return {"prepare", "Tokenize text into shards", "roformer prepare --input corpus/ --model v --output data",
          Command::Seed::kUsed, configure_prepare};
}

}  // namespace rf::cli
