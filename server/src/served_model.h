// A model directory in the server, with the computations that its files describe.
#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "metrics.h"
#include "rf/engine/embedder.h"
#include "rf/engine/schedule.h"
#include "rf/server/server.h"
#include "rf/tasks/continuation.h"
#include "rf/tasks/cross_encoder.h"
#include "rf/tasks/fill_mask.h"
#include "rf/text/tokenizer.h"

namespace rf::server {

// The computation, whose batches the metrics count.
engine::Computation counted(engine::Computation computation, Metrics& metrics);

// Models with a computation that all their requests share, so that the requests are computed together.
struct TextModel {
  TextModel(engine::Embedder opened, Metrics& metrics)
      : embedder(std::move(opened)), computation(counted(embedder.computation(), metrics)) {}
  engine::Embedder embedder;
  engine::Computation computation;
};
struct PairModel {
  PairModel(tasks::CrossEncoder opened, Metrics& metrics)
      : encoder(std::move(opened)), computation(counted(encoder.computation(), metrics)) {}
  tasks::CrossEncoder encoder;
  engine::Computation computation;
};

class ServedModel {
 public:
  // Throws Error for a directory that is not a model.
  ServedModel(const ModelDirectory& directory, const ServerOptions& options, Metrics& metrics);

  const std::string& name() const { return name_; }
  // "embedding", "sparse", "multi-vector", "classifier", "reranker" or "generator".
  const char* kind() const;
  // The entry of /v1/models: the kind, and for models of vectors "similarity", "prompts" and, if they fill masks,
  // "mask_token".
  nlohmann::ordered_json description() const;
  // The report of `roformer doctor`, without its path. Throws HttpError, 400, for a model that does not rotate.
  nlohmann::json rotation() const;
  std::string_view precision() const;
  int64_t max_length() const;  // tokens of a text

  // Throw HttpError, 400, for a model of another kind.
  const TextModel& texts(engine::VectorKind kind) const;
  const PairModel& pairs() const;
  const text::Tokenizer& tokenizer() const;
  // Opened at the first call. Throws HttpError, 400, for a model without this head.
  const tasks::MaskFiller& mask_filler() const;
  const tasks::Continuer& continuer() const;

  bool is_pair_model() const { return pairs_.has_value(); }
  bool is_late_interaction() const { return texts_ && texts_->embedder.info().token_dimensions > 0; }
  // The model of queries of late interaction.
  const TextModel& queries() const { return of_queries_ ? *of_queries_ : *texts_; }

 private:
  void open_embedder(const std::string& path, engine::VectorKind kind, Metrics& metrics);

  std::string name_, path_;
  bool fills_masks_ = false;
  engine::EmbedderOptions options_;
  std::optional<TextModel> texts_, of_queries_;
  std::optional<PairModel> pairs_;
  std::optional<tasks::Continuer> continuer_;
  mutable std::mutex mutex_;  // of the next
  mutable std::optional<tasks::MaskFiller> filler_;
};

}  // namespace rf::server
