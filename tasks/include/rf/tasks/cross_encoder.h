// Scores of pairs of texts by a model that reads both together: a CrossEncoder of sentence-transformers, versions 3 to
// 6, or any model with a head of sequence classification (docs/reranking.md). The engine computes the scores without
// padding, and a pair's scores have the same bits whatever other pairs are given.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rf/tasks/settings.h"
#include "rf/text/batch.h"
#include "rf/text/tokenizer.h"

namespace rf::engine {
enum class Precision;     // rf/engine/precision.h
struct Computation;       // rf/engine/schedule.h
class DistinctSequences;  // rf/engine/schedule.h
}  // namespace rf::engine

namespace rf::tasks {

struct CrossEncoderOptions {
  std::string model_dir;
  text::LoadOptions load{};
  std::string adapter{};                // a folder with an adapter of PEFT, which is added; "": none
  std::optional<int64_t> max_length{};  // tokens of a pair; default: the smaller of what tokenizer and positions say
  engine::Precision precision{};        // kFloat32
  int64_t batch_tokens = 4096;          // that are computed together; a longer pair is computed alone
  std::optional<std::string> prompt{};  // text before the first text of each pair; default: the model's
  std::optional<std::string> prompt_name{};  // one of the model's prompts
  std::optional<ScoreActivation> activation{};
  std::function<void(const std::string&)> note;  // receives warnings; may be empty
};

struct CrossEncoderInfo {
  std::vector<std::string> labels;  // of each score
  int64_t max_length = 0;
  ScoreActivation activation = ScoreActivation::kIdentity;
  std::string prompt;
  std::map<std::string, std::string> prompts;  // the model's, by name
  std::optional<std::string> default_prompt_name;
};

// Thread-safe.
class CrossEncoder {
 public:
  explicit CrossEncoder(const CrossEncoderOptions& options);

  const CrossEncoderInfo& info() const;
  // [pairs.size(), labels], after the activation (default: the model's). Throws Error for logits that are not finite.
  // place(i): the source of pair i in such a message, as "a.txt line 3"; default: its number. prompt: default:
  // info().prompt.
  std::vector<float> scores(std::span<const text::TextPair> pairs,
                            std::optional<ScoreActivation> activation = std::nullopt,
                            const std::function<std::string(int64_t)>& place = {},
                            const std::optional<std::string>& prompt = std::nullopt) const;

  // The steps of scores(), for the schedule (rf/engine/schedule.h); the computation gives the logits of pairs, and
  // the encoder must outlive it.
  engine::DistinctSequences tokenize(std::span<const text::TextPair> pairs,
                                     const std::optional<std::string>& prompt = std::nullopt) const;
  engine::Computation computation() const;
  void activate(std::vector<float>& logits, std::optional<ScoreActivation> activation = std::nullopt,
                const std::function<std::string(int64_t)>& place = {}) const;

  const text::Tokenizer& tokenizer() const;
  // Converts logits to probabilities of labels: sigmoid for one label and for a multi-label model, else softmax.
  void to_probabilities(std::vector<float>& logits) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // copies share the model
};

// Whether the files of sentence-transformers 6 in a directory say so.
bool is_cross_encoder(const std::string& model_dir);

// Throws Error for another name than identity, sigmoid, tanh or relu.
ScoreActivation score_activation(const std::string& name);
const char* score_activation_name(ScoreActivation activation);

}  // namespace rf::tasks
