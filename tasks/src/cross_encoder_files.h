// What sentence-transformers writes beside a cross-encoder, versions 3 to 6: how a logit becomes a score, prompts, and
// where the encoder lies. Version 3 names an activation in config.json, sbert_ce_default_activation_function, versions
// 4 and 5 there as sentence_transformers.activation_fn, version 6 in config_sentence_transformers.json with
// modules.json.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "rf/engine/prompts.h"
#include "rf/tasks/settings.h"

namespace rf::tasks {

struct CrossEncoderFiles {
  std::string encoder_dir;                    // config.json, weights, and the tokenizer's files
  bool is_stated = false;                     // the files say that it is a cross-encoder
  std::optional<ScoreActivation> activation;  // absent: by the number of labels
  engine::Prompts prompts;
};

// Also of a directory without such files. Throws Error for one of another kind of sentence-transformers, and for what
// is not computed. `note` receives a warning about an activation that sentence-transformers would not load either.
CrossEncoderFiles read_cross_encoder_files(const std::string& model_dir,
                                           const std::function<void(const std::string&)>& note);

double activated(ScoreActivation activation, double logit);
// sentence-transformers' rule where no file states one: Sigmoid of one logit, Identity of several.
ScoreActivation default_activation(int64_t num_labels);

}  // namespace rf::tasks
