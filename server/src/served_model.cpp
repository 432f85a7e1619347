// Model directories by what they compute (served_model.h).
#include "served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "http.h"
#include "rf/engine/names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/foreign_models.h"
#include "rf/model/rotary_report.h"

namespace rf::server {

namespace {

[[noreturn]] void refuse_kind(const std::string& name, const char* needed, const char* kind) {
  throw HttpError(http::status::bad_request,
                  fmt::format("this route needs {}, got the {} model {}", needed, kind, name));
}

// The head of the directory's model. nullopt if config.json is missing or unknown, as for static embeddings and
// ColBERT. With says_all, the model alone says what the directory does, so both are errors.
std::optional<Head> head_of(const std::string& path, bool says_all) {
  if (says_all) return load_any_config(path).head();
  if (!io::has_file(path + "/config.json")) return std::nullopt;
  try {
    return load_any_config(path).head();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

engine::Computation counted(engine::Computation computation, Metrics& metrics) {
  computation.run = [run = std::move(computation.run), &metrics](const engine::Tokens& tokens, float* out) {
    metrics.count_batch(std::ssize(tokens.offsets) - 1, std::ssize(tokens.ids));
    run(tokens, out);
  };
  return computation;
}

ServedModel::ServedModel(const ModelDirectory& directory, const ServerOptions& options, Metrics& metrics)
    : name_(directory.name), path_(directory.path) {
  options_ = {.precision = options.precision, .warn = options.note};
  engine::VectorKind kind = engine::vectors_of(path_);
  if (io::has_file(path_ + "/colbert_linear.safetensors")) kind = engine::VectorKind::kAll;  // bge-m3
  const bool is_bare = kind == engine::VectorKind::kDense && !io::has_file(path_ + "/modules.json");
  const std::optional<Head> head = head_of(path_, is_bare);
  fills_masks_ = head == Head::kMaskedLm;
  if (kind != engine::VectorKind::kDense) {
    open_embedder(path_, kind, metrics);
  } else if (tasks::is_cross_encoder(path_) || (is_bare && head == Head::kSequenceClassification)) {
    pairs_.emplace(tasks::CrossEncoder({.model_dir = path_, .precision = options.precision, .note = options.note}),
                   metrics);
  } else if (is_bare && head == Head::kCausalLm) {
    continuer_.emplace(path_, tasks::ContinuerOptions{.precision = options.precision,
                                                      .cache_precision = options.cache_precision,
                                                      .draft = options.draft,
                                                      .note = options.note});
  } else {
    open_embedder(path_, kind, metrics);
  }
}

void ServedModel::open_embedder(const std::string& path, engine::VectorKind kind, Metrics& metrics) {
  options_.vectors = kind;
  if (kind != engine::VectorKind::kTokens) {
    texts_.emplace(engine::Embedder(path, options_), metrics);
    return;
  }
  options_.role = engine::TextRole::kDocument;
  texts_.emplace(engine::Embedder(path, options_), metrics);
  if (!texts_->embedder.info().by_role) return;
  engine::EmbedderOptions of_queries = options_;
  of_queries.role = engine::TextRole::kQuery;
  of_queries_.emplace(engine::Embedder(path, of_queries), metrics);
}

const char* ServedModel::kind() const {
  if (continuer_) return "generator";
  if (pairs_) return pairs_->encoder.info().labels.size() == 1 ? "reranker" : "classifier";
  switch (texts_->embedder.info().vectors) {
    case engine::VectorKind::kSparse: return "sparse";
    case engine::VectorKind::kTokens: return "multi-vector";
    case engine::VectorKind::kAll: return "dense, sparse and multi-vector";
    case engine::VectorKind::kDense: break;
  }
  return "embedding";
}

nlohmann::ordered_json ServedModel::description() const {
  nlohmann::ordered_json facts = {{"kind", kind()}};
  if (!texts_) return facts;
  const engine::EmbedderInfo& info = texts_->embedder.info();
  facts["similarity"] = name_in(engine::kSimilarityNames, info.similarity);
  facts["prompts"] = nlohmann::json::array();
  for (const auto& [name, _] : info.prompts) facts["prompts"].push_back(name);
  const text::Vocabulary& vocabulary = tokenizer().vocabulary();
  const int32_t mask = vocabulary.special().mask;
  if (mask >= 0 && fills_masks_) facts["mask_token"] = vocabulary.token(mask);
  return facts;
}

nlohmann::json ServedModel::rotation() const {
  std::string encoder = path_;
  if (!io::has_file(path_ + "/config.json") && io::has_file(path_ + "/modules.json"))
    encoder = engine::read_module_list(path_).front().directory;
  try {
    nlohmann::json report = to_json(rotary_report(encoder));
    report.erase("path");
    return report;
  } catch (const Error& error) {
    const std::string message = error.what();  // "[path] ..": clients need not know the path
    throw HttpError(http::status::bad_request, message.substr(message.find("] ") + 2));
  }
}

std::string_view ServedModel::precision() const { return name_in(engine::kPrecisionNames, options_.precision); }

int64_t ServedModel::max_length() const {
  if (texts_) return texts_->embedder.info().max_length;
  return pairs_ ? pairs_->encoder.info().max_length : continuer_->max_length();
}

const TextModel& ServedModel::texts(engine::VectorKind kind) const {
  const engine::VectorKind own = texts_ ? texts_->embedder.info().vectors : kind;
  if (texts_ && (own == kind || own == engine::VectorKind::kAll)) return *texts_;
  const char* const needed = kind == engine::VectorKind::kDense    ? "a model of one vector per text"
                             : kind == engine::VectorKind::kSparse ? "a model of sparse vectors"
                                                                   : "a model of vectors of tokens";
  refuse_kind(name_, needed, this->kind());
}

const PairModel& ServedModel::pairs() const {
  if (!pairs_) refuse_kind(name_, "a model of sequence classification", kind());
  return *pairs_;
}

const tasks::Continuer& ServedModel::continuer() const {
  if (!continuer_) refuse_kind(name_, "a causal language model", kind());
  return *continuer_;
}

const text::Tokenizer& ServedModel::tokenizer() const {
  if (texts_) return texts_->embedder.tokenizer();
  return pairs_ ? pairs_->encoder.tokenizer() : continuer_->tokenizer();
}

const tasks::MaskFiller& ServedModel::mask_filler() const {
  const std::lock_guard lock(mutex_);
  if (!filler_) {
    try {
      filler_.emplace(path_, tasks::MaskFillerOptions{.precision = options_.precision, .note = options_.warn});
    } catch (const Error& error) {
      throw HttpError(http::status::bad_request,
                      fmt::format("/fill-mask needs a masked language model, got the {} model {}: {}", kind(), name_,
                                  error.what()));
    }
  }
  return *filler_;
}

}  // namespace rf::server
