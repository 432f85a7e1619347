// roformer bake: computes the terms of a position encoding for the engine.
#include "rf/train/model_files.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "training_command.h"

namespace rf::cli {

namespace {

struct BakeOptions {
  std::string model_dir;
  std::optional<int64_t> length;
};

std::function<int()> configure_bake(CLI::App& app, const Common&) {
  auto options = std::make_shared<BakeOptions>();
  app.add_option("--model", options->model_dir, "Model directory")->required();
  app.add_option("--length", options->length,
                 "Tokens of the longest sequence, where an encoding has rows for each length; default: "
                 "max_position_embeddings and at least 2048, within 256 MiB");
  app.description(app.get_description() +
                  "\nCommands without PyTorch read position_terms.safetensors, which is written whenever a model is "
                  "saved. This\nwrites it for longer sequences, for checkpoints of a training run, and for directories "
                  "of earlier versions");
  return [options] {
    emit(train::bake(options->model_dir, options->length));
    return kOk;
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(bake, rf::cli::configure_bake)
