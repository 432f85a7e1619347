// Files that sentence-transformers (versions 3 to 6) writes in addition to a cross-encoder: the activation of the
// logit, prompts, and the directory of the encoder. The activation is sbert_ce_default_activation_function in
// config.json for version 3, sentence_transformers.activation_fn in config.json for versions 4 and 5, and in
// config_sentence_transformers.json, with modules.json, for version 6.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "rf/engine/embedder.h"
#include "rf/tasks/settings.h"
#include "rf/text/chat_template.h"

namespace rf::tasks {

// Scores by the logits of the next token: that of `yes`, minus that of `no`.
struct TokenScore {
  int64_t yes = 0;
  std::optional<int64_t> no;
};

struct CrossEncoderFiles {
  std::string encoder_dir;                    // contains config.json, weights, and the tokenizer's files
  bool is_stated = false;                     // the files state that it is a cross-encoder
  std::optional<ScoreActivation> activation;  // absent: decided by the number of labels
  engine::Prompts prompts;
  std::optional<int64_t> max_length;                // tokens of a pair; absent: what tokenizer and positions say
  bool generates = false;                           // the encoder is a causal language model
  std::optional<TokenScore> score;                  // of one; absent: the tokens "yes" and "no"
  std::optional<text::ChatTemplate> chat_template;  // of the messages that pairs are; absent: the tokenizer's pairs
};

// Also accepts a directory without such files. Throws Error for other types of sentence-transformers models, and for
// unsupported settings. `note` receives a warning about an activation that sentence-transformers would not load either.
CrossEncoderFiles read_cross_encoder_files(const std::string& model_dir,
                                           const std::function<void(const std::string&)>& note);

double activated(ScoreActivation activation, double logit);
// The default of sentence-transformers: Sigmoid for one logit, Identity for several.
ScoreActivation default_activation(int64_t num_labels);

}  // namespace rf::tasks
