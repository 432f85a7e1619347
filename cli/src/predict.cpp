// roformer predict.
#include "rf/tasks/predict.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "read_options.h"

namespace rf::cli {

namespace {

std::function<int()> configure_predict(CLI::App& app, const Common&) {
  auto options = std::make_shared<tasks::PredictOptions>();
  app.add_option("--model", options->model_dir, "Directory of a fine-tuned model")->required();
  CLI::Option_group* const what = app.add_option_group("what to read");
  add_record_inputs(*what, options->input.inputs);
  what->add_option("--text", options->texts, "One or several texts; each is a record");
  what->require_option(1);
  add_record_format(app, options->input.format, options->input.quotes, "jsonl, csv, tsv or text, one record per line");
  add_columns(app, options->columns);
  app.add_option("--max-length", options->max_length, "Tokens per row; default: the task's");
  add_adapter(app, options->adapter);
  add_precision(app, options->precision);
  add_batch_tokens(app, options->batch_tokens);
  add_dictionary(app, options->load);
  return [options] {
    options->note = warn_user;
    check_dictionaries(options->load);
    tasks::predict(*options, emit, progress());
    progress().finish();
    return kOk;
  };
}

}  // namespace

Command predict_command() {
  return {"predict", "Predictions of a fine-tuned model, one JSON line per record",
          "roformer predict --model tuned --input new.tsv\n  roformer predict --model tuned --input new.tsv "
          "--precision bfloat16",
          Command::Seed::kNotUsed, configure_predict};
}

}  // namespace rf::cli
