// roformer evaluate: evaluates a fine-tuned model on records with the engine, or a language model on prepared data with
// the training library.
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "read_options.h"
#include "rf/model/run_checkpoints.h"
#include "rf/tasks/predict.h"
#include "training_library.h"

namespace rf::cli {

namespace {

struct EvaluateOptions {
  train::EvaluateOptions data;    // with --data
  tasks::PredictOptions records;  // with --input
  std::optional<int64_t> max_length;
};

// Options of one form are errors with the other form, because they would be ignored.
void check_form(const CLI::App& app, const char* form, std::initializer_list<const char*> foreign) {
  for (const char* name : foreign) {
    if (app.count(name) > 0) fail_usage("evaluate", "{} must be left out with {}, got it", name, form);
  }
}

int run_evaluate(const CLI::App& app, EvaluateOptions& options, const Common& common) {
  if (options.data.data_dir.empty() == options.records.input.inputs.empty()) {
    fail_usage("evaluate", "one of --data and --input must be given, got {}",
               options.data.data_dir.empty() ? "neither" : "both");
  }
  nlohmann::json result;
  if (options.data.data_dir.empty()) {
    check_form(app, "--input",
               {"--split", "--mask-probability", "--whole-word", "--pairs", "--padded", "--bfloat16", "--batch"});
    options.records.model_dir = options.data.model_dir;
    if (!common.process_group.empty()) {
      fail_usage("evaluate", "several processes share --data only, got --input; run roformer evaluate for it");
    }
    options.records.max_length = options.max_length;
    options.records.note = warn_user;
    result = tasks::evaluate(options.records, progress());
  } else {
    check_form(app, "--data",
               {"--format", "--no-quotes", "--columns", "--dict", "--user-dict", "--precision", "--batch-tokens"});
    options.data.model_dir = model_of_run(options.data.model_dir, say);
    options.data.max_length = options.max_length;
    options.data.seed = common.seed.value_or(options.data.seed);
    options.data.process_group = common.process_group;
    result = evaluate_data(options.data, common);
  }
  progress().finish();
  emit(result);
  return kOk;
}

std::function<int()> configure_evaluate(CLI::App& app, const Common& common) {
  auto options = std::make_shared<EvaluateOptions>();
  train::EvaluateOptions& data = options->data;
  app.add_option("--model", data.model_dir, "Model directory")->required();
  app.add_option(
      "--max-length", options->max_length,
      "Tokens per row; default: those of the run whose model it is (128 for other models), or with --input the task's");
  app.add_option("--data", data.data_dir, "Language models: data directory made by prepare");
  add_default(app, "--batch", data.batch_size, "With --data: rows per forward pass");
  add_default(app, "--split", data.split, "With --data: valid, train or test");
  add_default(app, "--mask-probability", data.mask.probability,
              "With --data: share of tokens to mask (masked language models)");
  add_switch(app, "--whole-word", data.mask.unit, data::MaskUnit::kWholeWord, "With --data: mask whole words");
  add_choice<data::Pairs>(
      app, "--pairs", data.pairs, "none",
      "With --data: also classify pairs of sentences, next_sentence or sentence_order, with a model "
      "that was pretrained on them",
      {data::kPairsNames.begin(), data::kPairsNames.end()});
  add_switch(app, "--padded", data.packing, data::Packing::kPadded,
             "With --data: a row is one piece of a document; default: rows are packed");
  add_switch(app, "--bfloat16", data.precision, train::Precision::kBfloat16,
             "With --data: compute in bfloat16 where training does; default: float32");
  add_record_inputs(app, options->records.input.inputs);
  add_record_format(app, options->records.input.format, options->records.input.quotes);
  add_columns(app, options->records.columns);
  add_precision(app, options->records.precision);
  add_batch_tokens(app, options->records.batch_tokens);
  add_dictionary(app, options->records.load);
  return [options, &app, &common] {
    check_dictionaries(options->records.load);
    return run_evaluate(app, *options, common);
  };
}

}  // namespace

Command evaluate_command() {
  return {"evaluate", "A language model's loss on held-out documents, or a fine-tuned model's metrics on records",
          "roformer evaluate --model run --data data\n  roformer evaluate --model tuned --input test.tsv",
          Command::Seed::kUsed, configure_evaluate};
}

}  // namespace rf::cli
