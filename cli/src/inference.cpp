// roformer forward and roformer fill-mask.
#include "rf/train/inference.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"

namespace rf::cli {

namespace {

struct FillMaskOptions {
  std::string model_dir, text;
  int64_t top_k = 5;
};

int run_fill_mask(const FillMaskOptions& options) {
  const std::string model_dir = train::model_of_run(options.model_dir, say);
  for (const auto& mask : train::fill_mask(model_dir, options.text, options.top_k)) {
    nlohmann::json predictions = nlohmann::json::array();
    for (const train::MaskPrediction& p : mask) {
      predictions.push_back({{"token", p.token}, {"id", p.id}, {"probability", p.probability}});
    }
    emit({{"text", options.text}, {"token_index", mask.front().token_index}, {"predictions", predictions}});
  }
  return kOk;
}

std::function<int()> configure_fill_mask(CLI::App& app, const Common&) {
  auto options = std::make_shared<FillMaskOptions>();
  app.add_option("--model", options->model_dir, "Model directory")->required();
  app.add_option("--text", options->text, "Text with one or more [MASK]")->required();
  app.add_option("--top-k", options->top_k, "Predictions for each mask, the best first")->capture_default_str();
  return [options] { return run_fill_mask(*options); };
}

std::function<int()> configure_forward(CLI::App& app, const Common&) {
  auto options = std::make_shared<train::ForwardOptions>();
  app.add_option("--model", options->model_dir, "Model directory")->required();
  app.add_option("--ids", options->ids_path, ".npy of integers [B,T]; multiple choice: [B,choices,T]")->required();
  app.add_option("--mask", options->mask_path, ".npy of integers like the ids; 0: not attended to");
  app.add_option("--types", options->types_path, ".npy of integers like the ids: token types");
  app.add_option("--output", options->output_path,
                 ".npy to write: logits; hidden states of a model without a head; question answering: [2,B,T]")
      ->required();
  app.add_option("--dtype", options->dtype, "float32 or float64")->capture_default_str();
  return [options] {
    options->model_dir = train::model_of_run(options->model_dir, say);
    const train::ForwardReport report = train::forward(*options);
    emit({{"output", options->output_path}, {"architecture", report.architecture}, {"shape", report.shape}});
    return kOk;
  };
}

}  // namespace

Command fill_mask_command() {
  return {"fill-mask", "The most probable tokens for each [MASK] of a text",
          "roformer fill-mask --model run --text 'The people of the United [MASK].' --top-k 5", Command::Seed::kNotUsed,
          configure_fill_mask};
}

Command forward_command() {
  return {"forward", "Raw logits or hidden states of token ids, for checks",
          "roformer forward --model run --ids ids.npy --output logits.npy", Command::Seed::kNotUsed, configure_forward};
}

}  // namespace rf::cli
