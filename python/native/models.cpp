// Opening the parts of an Engine (models.h).
#include "models.h"

#include <omp.h>

#include <filesystem>
#include <utility>

#include "rf/engine/model.h"
#include "rf/io/files.h"
#include "rf/io/shown_text.h"
#include "rf/io/warning.h"
#include "rf/model/config.h"
#include "rf/model/rotary_decoder.h"
#include "rf/model/run_checkpoints.h"
#include "rf/tasks/cross_encoder.h"
#include "rf/tasks/settings.h"
#include "rf/tasks/task.h"

namespace rf::python {

namespace fs = std::filesystem;

using First = ModelsOptions::First;

Models::Models(ModelsOptions options) : options_(std::move(options)) {
  const io::WarningScope scope(note());
  options_.model_dir = model_of_run(options_.model_dir, note());
  switch (options_.first == First::kAuto ? main_part() : options_.first) {
    case First::kFillMask: mask_filler(); return;
    case First::kGenerate: continuer(); return;
    case First::kPredict: predictor(); return;
    default: embedder();
  }
}

namespace {

// BertForNextSentencePrediction: its head, which pretraining needs, is not computed here.
bool has_pair_head_alone(const ModelConfig& config) {
  return config.architectures.size() == 1 && config.architectures[0].ends_with("ForNextSentencePrediction");
}

}  // namespace

First Models::main_part() const {
  const fs::path dir = options_.model_dir;
  if (io::has_file(dir / tasks::kTaskFile)) return First::kPredict;
  if (io::has_file(dir / "modules.json")) {
    return tasks::is_cross_encoder(dir) ? First::kPredict : First::kEmbed;
  }
  if (is_rotary_decoder(options_.model_dir)) return First::kGenerate;
  const ModelConfig config = load_config(options_.model_dir);
  if (config.is_decoder) return First::kGenerate;
  if (has_pair_head_alone(config)) return First::kEmbed;
  if (tasks::is_head_of_task(config.head())) return First::kPredict;
  return config.head() == Head::kMaskedLm ? First::kFillMask : First::kEmbed;
}

std::vector<std::string> Models::take_warnings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

// Called while a part is opened, so with the lock.
std::function<void(const std::string&)> Models::note() {
  return [this](const std::string& text) { warnings_.push_back(io::message_text(text)); };
}

engine::Embedder Models::open_embedder() {
  engine::EmbedderOptions embedding = options_.embedding;
  embedding.threads = engine::tokenizing_threads(options_.threads > 0 ? options_.threads : omp_get_max_threads());
  embedding.warn = note();
  return engine::Embedder(options_.model_dir, embedding);
}

tasks::MaskFiller Models::open_mask_filler() {
  return tasks::MaskFiller(
      options_.model_dir,
      {.precision = options_.embedding.precision, .token_budget = options_.embedding.token_budget, .note = note()});
}

tasks::Continuer Models::open_continuer() {
  return tasks::Continuer(options_.model_dir, {.precision = options_.embedding.precision, .note = note()});
}

tasks::Predictor Models::open_predictor() {
  tasks::PredictOptions predict;
  predict.model_dir = options_.model_dir;
  predict.precision = options_.embedding.precision;
  predict.batch_tokens = options_.embedding.token_budget;
  predict.note = note();
  return tasks::Predictor(predict);
}

ThreadsScope::ThreadsScope(int threads) {
  if (threads == 0) return;
  before_ = omp_get_max_threads();
  omp_set_num_threads(threads);
}

ThreadsScope::~ThreadsScope() {
  if (before_ > 0) omp_set_num_threads(before_);
}

}  // namespace rf::python
