// roformer prepare: documents to token shards.
#include "rf/data/prepare.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "read_options.h"

namespace rf::cli {

namespace {

int run_prepare(const data::PrepareOptions& options) {
  const data::PrepareReport report = data::prepare(options, progress());
  progress().finish();
  say_left_out(report.left_out);
  nlohmann::json result = {{"output", options.output_dir},
                           {"documents", report.documents},
                           {"train_tokens", report.train_tokens},
                           {"valid_tokens", report.valid_tokens},
                           {"unknown_tokens", report.unknown_tokens},
                           {"unknown_rate", report.unknown_rate()},
                           {"replaced_bytes", report.replaced_bytes},
                           {"skipped_records", report.skipped_records},
                           {"input_bytes", report.input_bytes}};
  if (!options.test_inputs.empty()) result["test_tokens"] = report.test_tokens;
  emit(result);
  return kOk;
}

std::function<int()> configure_prepare(CLI::App& app, const Common& common) {
  auto options = std::make_shared<data::PrepareOptions>();
  add_read_options(app, options->input);
  add_document_rule(app, options->input);
  app.add_option("--model", options->model_dir, "Directory with the tokenizer's files")->required();
  add_dictionary(app, options->tokenizer);
  add_choice<data::WordRule>(
      app, "--words", options->words, "tokenizer",
      "Whose words whole-word masking masks: tokenizer, or jieba (for a vocabulary of Chinese characters)",
      {{"tokenizer", data::WordRule::kTokenizer}, {"jieba", data::WordRule::kJieba}});
  app.add_option("--output", options->output_dir, "Data directory to write")->required();
  CLI::Option* const fraction = app.add_option("--valid-fraction", options->valid_fraction,
                                               "Part of the documents to hold out, drawn with the seed")
                                    ->capture_default_str();
  app.add_option("--valid-input", options->valid_inputs, "Held-out documents from other files, read like --input")
      ->excludes(fraction);
  app.add_option("--test-input", options->test_inputs, "Documents of the split \"test\", which only evaluate reads");
  app.add_option("--shard-tokens", options->shard_tokens, "Tokens after which a new shard starts")
      ->capture_default_str();
  return [options, &common] {
    options->seed = common.seed.value_or(options->seed);
    options->threads = common.threads;
    return run_prepare(*options);
  };
}

}  // namespace

Command prepare_command() {
  return {"prepare", "Text to token shards", "roformer prepare --input corpus/ --model v --output data",
          Command::Seed::kUsed, configure_prepare};
}

}  // namespace rf::cli
