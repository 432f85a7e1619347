// roformer fill-mask.
#include "rf/tasks/fill_mask.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "rf/model/run_checkpoints.h"

namespace rf::cli {

namespace {

struct FillMaskOptions {
  std::string model_dir, text;
  int64_t top_k = 5;
};

int run_fill_mask(const FillMaskOptions& options) {
  const tasks::MaskFiller filler(model_of_run(options.model_dir, say), {.note = warn_user});
  for (const tasks::FilledMask& mask : filler.fill(options.text, options.top_k)) {
    nlohmann::json best = nlohmann::json::array();
    for (const tasks::MaskCandidate& each : mask.candidates) {
      best.push_back({{"token", each.token}, {"id", each.id}, {"probability", each.probability}});
    }
    emit({{"text", options.text}, {"token_index", mask.token_index}, {"predictions", best}});
  }
  return kOk;
}

std::function<int()> configure_fill_mask(CLI::App& app, const Common&) {
  auto options = std::make_shared<FillMaskOptions>();
  app.add_option("--model", options->model_dir, "Model directory")->required();
  app.add_option("--text", options->text, "Text with one or more mask tokens, such as [MASK] or <mask>")->required();
  add_default(app, "--top-k", options->top_k, "Predictions for each mask, the best first");
  return [options] { return run_fill_mask(*options); };
}

}  // namespace

Command fill_mask_command() {
  return {"fill-mask", "Predict the masked tokens of a text",
          "roformer fill-mask --model run --text 'The people of the United [MASK].' --top-k 5", Command::Seed::kNotUsed,
          configure_fill_mask};
}

}  // namespace rf::cli
