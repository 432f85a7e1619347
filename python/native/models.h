// What an Engine of Python has open: the parts that its methods need, each opened at its first use and kept. They are
// the classes that the commands use. May be used by several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rf/engine/embedder.h"
#include "rf/tasks/continuation.h"
#include "rf/tasks/fill_mask.h"
#include "rf/tasks/predict.h"

namespace rf::python {

struct ModelsOptions {
  std::string model_dir;
  // The part that is opened first: kAuto is the one that the directory is made for, predictions of a task,
  // continuations by a causal model, masks of a masked language model; else vectors.
  enum class First { kAuto, kEmbed, kFillMask, kGenerate, kPredict } first = First::kAuto;
  engine::EmbedderOptions embedding;  // its precision and token_budget are those of all parts
  int threads = 0;                    // that compute; 0: as many as OpenMP uses
};

class Models {
 public:
  explicit Models(ModelsOptions options);

  const engine::Embedder& embedder() { return opened(embedder_, &Models::open_embedder); }
  const tasks::MaskFiller& mask_filler() { return opened(mask_filler_, &Models::open_mask_filler); }
  const tasks::Continuer& continuer() { return opened(continuer_, &Models::open_continuer); }
  const tasks::Predictor& predictor() { return opened(predictor_, &Models::open_predictor); }

  const ModelsOptions& options() const { return options_; }
  std::vector<std::string> take_warnings();

 private:
  template <typename Part>
  const Part& opened(std::unique_ptr<Part>& part, Part (Models::*open)()) {
    const std::lock_guard lock(mutex_);
    if (part == nullptr) part = std::make_unique<Part>((this->*open)());
    return *part;
  }
  engine::Embedder open_embedder();
  tasks::MaskFiller open_mask_filler();
  tasks::Continuer open_continuer();
  tasks::Predictor open_predictor();
  std::function<void(const std::string&)> note();
  ModelsOptions::First main_part() const;

  ModelsOptions options_;
  std::mutex mutex_;  // of all that follows
  std::vector<std::string> warnings_;
  std::unique_ptr<engine::Embedder> embedder_;
  std::unique_ptr<tasks::MaskFiller> mask_filler_;
  std::unique_ptr<tasks::Continuer> continuer_;
  std::unique_ptr<tasks::Predictor> predictor_;
};

// While it exists, OpenMP uses so many threads for work that this thread begins; 0: as many as before.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads);
  ~ThreadsScope();
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace rf::python
