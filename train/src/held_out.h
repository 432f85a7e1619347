// The held-out documents of a data directory, and a model's loss on them: used by pretraining, `evaluate` and
// `compare`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "language_model.h"
#include "rf/text/vocabulary.h"
#include "rf/train/pretrain.h"
#include "rf/train/run_config.h"

namespace rf::train {

// The options of rows in a run file.
data::BatchOptions batch_options(const RunConfig& run, int64_t max_length, int64_t batch_size);
// Tokens of a stage's micro-batch, including padding.
int64_t batch_tokens(const Stage& stage);

class HeldOut {
 public:
  using Note = std::function<void(const std::string&)>;  // receives a message for the user

  // train: of the same data directory. Throws Error when the data were prepared with another vocabulary.
  HeldOut(std::shared_ptr<const data::Split> train, const std::string& data_dir, const std::string& split,
          const text::Vocabulary& vocabulary);
  bool empty() const { return split_->tokens() == 0; }

  // Throws Error if the options do not give any rows.
  void check(const data::BatchOptions& options) const;
  // max_batches: 0: all. `progress` shows the batches done.
  EvaluationReport measure(nn::Model& model, const data::BatchOptions& options, Precision precision,
                           int64_t max_batches, io::Progress& progress, const Ranks& ranks);
  // The same documents in rows of at most `length` tokens, about `batch_tokens` per batch, so that with the run's limit
  // of batches the same number of tokens is measured at every length. nullopt, with a message to `note`, if the model
  // cannot read rows of that length (beyond a learned table).
  std::optional<EvaluationReport> measure_length(nn::Model& model, const RunConfig& run, int64_t length,
                                                 int64_t batch_tokens, io::Progress& progress, const Note& note,
                                                 const Ranks& ranks);
  // Loss of the training split's token frequencies, nats per token that measure_length predicts; nullopt without such
  // tokens.
  std::optional<double> unigram_loss(const RunConfig& run, int64_t length, int64_t batch_tokens);

 private:
  data::BatchOptions length_options(const RunConfig& run, int64_t length, int64_t batch_tokens) const;

  text::SpecialIds special_;
  std::shared_ptr<const data::Split> train_, split_;
  std::optional<UnigramModel> unigram_;  // of the training split; made when it is first needed
};

}  // namespace rf::train
