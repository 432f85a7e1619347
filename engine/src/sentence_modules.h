// The files of sentence-transformers in a model directory: modules.json, the configurations of its modules,
// sentence_bert_config.json and config_sentence_transformers.json. Read strictly: a key or a module that is not
// supported is an error that names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers.h"
#include "rf/engine/embedder.h"
#include "rf/engine/model.h"

namespace rf::engine {

// What follows pooling.
struct SentenceStep {
  enum class Kind { kDense, kNormalize } kind;
  Linear dense{};
  std::optional<Activation> activation{};  // of the dense layer; absent: none
  enum class Residual { kNone, kInput, kProjected } residual = Residual::kNone;
  Linear residual_projection{};
};

struct SentenceModules {
  std::string encoder_dir;  // config.json, weights, and the tokenizer's files
  std::vector<Pooling> poolings{Pooling::kMean};
  enum class PooledPrompt { kIncluded, kLeftOut } pooled_prompt = PooledPrompt::kIncluded;
  std::vector<SentenceStep> steps;
  int64_t max_length = 0;  // 0: not stated
  bool lower_case = false;
  int64_t dimensions = 0;  // 0: all
  Prompts prompts;
  Similarity similarity = Similarity::kCosine;
  std::vector<std::string> files;  // that were read, without the encoder's
};

// Throws Error. A directory without modules.json is the encoder's, with mean pooling.
SentenceModules read_sentence_modules(const std::string& model_dir);

}  // namespace rf::engine
