// Texts to vectors (rf/engine/embedder.h): the steps of sentence-transformers, each text on its own.
#include "rf/engine/embedder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "file_hash.h"
#include "heads.h"
#include "rf/engine/schedule.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/finite.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/model/config.h"
#include "rf/model/foreign_models.h"
#include "rf/text/tokenizer.h"
#include "sentence_modules.h"
#include "sentence_steps.h"
#include "text_rows.h"
#include "text_vectors.h"

namespace rf::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbedderWhere = "embed";
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Every token needs a row.
void check_static(const SentenceModules& modules, const text::Tokenizer& tokenizer) {
  if (modules.body == SentenceModules::Body::kTransformer) return;
  const int64_t rows =
      std::ssize(modules.table) / (modules.body == SentenceModules::Body::kStatic ? modules.table_width : 1);
  if (rows < tokenizer.vocabulary().size())
    fail(modules.encoder_dir, "the table must have a row for each of the {} tokens, got {}",
         tokenizer.vocabulary().size(), rows);
}

// Throws Error for options out of range before anything is read.
void check(const EmbedderOptions& options) {
  if (options.dimensions < 0)
    fail<ArgumentError>(kEmbedderWhere, "dimensions must be at least 1, got {}", options.dimensions);
  if (options.max_length < 0)
    fail<ArgumentError>(kEmbedderWhere, "max_length must be at least 1, got {}", options.max_length);
  if (options.max_active < 0)
    fail<ArgumentError>(kEmbedderWhere, "max_active must be at least 1, got {}", options.max_active);
  if (options.threads < 0) fail<ArgumentError>(kEmbedderWhere, "threads must be at least 0, got {}", options.threads);
}

void check_masked_lm(const std::string& dir) {
  constexpr const char* kRule = "sparse vectors need a masked language model, got {}";
  if (is_foreign_decoder(dir)) fail(dir, kRule, "a causal language model");
  const ModelConfig config = load_config(dir);
  const Head head = config.head();
  if (head == Head::kMaskedLm) return;
  fail(dir, kRule, head == Head::kCausalLm ? "a causal language model" : architecture_of(config, head));
}

// nullopt for a body without a transformer.
std::optional<Model> load_model(SentenceModules& modules, const EmbedderOptions& options) {
  const std::string& adapter = options.adapter;
  if (modules.body != SentenceModules::Body::kTransformer) {
    if (!adapter.empty())
      fail<ArgumentError>(kEmbedderWhere, "adapter must be absent without a transformer, got {}", adapter);
    return std::nullopt;
  }
  const bool is_sparse = options.vectors == VectorKind::kSparse && modules.sparse == SentenceModules::Sparse::kLogits;
  if (is_sparse) check_masked_lm(modules.encoder_dir);
  using ModelHead = ModelOptions::Head;
  return std::make_optional<Model>(modules.encoder_dir,
                                   ModelOptions{.precision = options.precision,
                                                .token_budget = options.token_budget,
                                                .head = is_sparse ? ModelHead::kMaskedLm : ModelHead::kBare,
                                                .layer_weights = modules.layer_weights,
                                                .warn = options.warn,
                                                .task = options.task,
                                                .adapter = adapter});
}

// The prompt of a role is the first prompt with one of its names, else "": default_name is for texts without a role.
std::string prompt_of_role(const Prompts& prompts, const EmbedderOptions& options) {
  using Names = std::vector<const char*>;
  if (options.prompt || options.prompt_name || options.role == TextRole::kNone)
    return prompt_of(prompts, options.prompt, options.prompt_name, kEmbedderWhere);
  for (const char* name : options.role == TextRole::kQuery ? Names{"query"} : Names{"document", "passage", "corpus"}) {
    if (const auto found = prompts.by_name.find(name); found != prompts.by_name.end()) return found->second;
  }
  return "";
}

}  // namespace

struct Embedder::Impl {
  Impl(const std::string& model_dir, const EmbedderOptions& options)
      : modules(read_sentence_modules(model_dir, options.vectors, options.role)),
        rows(modules),
        model(load_model(modules, options)),
        token_budget(options.token_budget) {
    check_static(modules, rows.tokenizer());
    const bool has_modules = io::has_file(model_dir + "/modules.json");
    if (model && model->info().prefix_lm && !has_modules && options.vectors == VectorKind::kDense)
      modules.poolings = {Pooling::kPooler};  // the vectors that its training compares
    set_task(model_dir, options);
    for (const char* file : {kAdapterConfigFile, kAdapterWeightsFile}) {
      if (!options.adapter.empty()) modules.files.push_back(fmt::format("{}/{}", options.adapter, file));
    }
    info.vectors = options.vectors;
    info.role = options.role;
    set_steps(options);
    set_info(options);
    rows.set(options, positions());
    const text::SpecialIds& special = rows.tokenizer().vocabulary().special();
    unweighted = {special.cls, special.eos, special.pad, special.unk};
    info.prompt = prompt_of_role(modules.prompts, options);
    const bool is_given = options.prompt || options.prompt_name;
    if (!is_given && !info.task.empty()) info.prompt = info.tasks.at(info.task);
  }

  void set_task(const std::string& model_dir, const EmbedderOptions& options) {
    if (model) info.tasks = model->info().tasks;
    info.task = options.task;
    if (!info.tasks.empty()) return;
    if (!info.task.empty())
      fail<ArgumentError>(kEmbedderWhere, "task must be absent for a model without adapters, got {}",
                          io::printable(info.task));
    if (modules.is_adapted)
      fail(model_dir + "/modules.json",
           "the classes must be of sentence-transformers for a model without adapters, got custom_st.Transformer (the "
           "model's own code)");
  }

  void set_steps(const EmbedderOptions& options) {
    const bool is_dense = info.vectors == VectorKind::kDense, is_all = info.vectors == VectorKind::kAll;
    const bool pools = model && (is_dense || is_all || modules.sparse == SentenceModules::Sparse::kSteps);
    if (!options.poolings.empty() && !(model && is_dense))
      fail<ArgumentError>(kEmbedderWhere,
                          "a pooling goes with one vector of a transformer, got another kind of vectors");
    if (!options.poolings.empty()) modules.poolings = options.poolings;
    if (pools && modules.poolings.empty())
      fail<ArgumentError>(kEmbedderWhere, "a pooling must be given for a GGUF file without pooling_type, got none");
    if (!pools) modules.poolings.clear();
    const auto is_normalize = [](const SentenceStep& step) { return step.kind == SentenceStep::Kind::kNormalize; };
    if (options.normalize == false) std::erase_if(modules.steps, is_normalize);
    info.normalized = !modules.steps.empty() && is_normalize(modules.steps.back());
    if (options.normalize == true && !info.normalized) {
      modules.steps.push_back({.kind = SentenceStep::Kind::kNormalize});
      info.normalized = true;
    }
    info.width = width_after(modules.steps, first_width());
    if (!modules.token_steps.empty())
      info.token_dimensions = width_after(modules.token_steps, model->info().hidden_size);
    const Linear& weight = modules.token_weight;
    if (!weight.empty() && (weight.in() != model->info().hidden_size || weight.out() != 1))
      fail(modules.encoder_dir, "sparse_linear must have the shape (1, {}), got ({}, {})", model->info().hidden_size,
           weight.out(), weight.in());
  }

  void set_info(const EmbedderOptions& options) {
    info.poolings = modules.poolings;
    info.prompts = modules.prompts.by_name;
    info.default_prompt_name = modules.prompts.default_name;
    info.similarity = modules.similarity;
    info.mean_of_maxima = modules.mean_of_maxima;
    const bool has_lengths = modules.tokens.query_length > 0 || modules.tokens.document_length > 0;
    info.by_role = modules.is_routed || (has_lengths && info.vectors != VectorKind::kTokens);
    info.max_active = options.max_active > 0 ? options.max_active : modules.max_active;
    info.dimensions = options.dimensions > 0   ? options.dimensions
                      : modules.dimensions > 0 ? std::min(modules.dimensions, info.width)
                                               : info.width;
    if (info.dimensions > info.width)
      fail<ArgumentError>(kEmbedderWhere, "dimensions must be at most the model's {}, got {}", info.width,
                          info.dimensions);
    if (info.vectors == VectorKind::kTokens) info.token_dimensions = info.dimensions;
    if (info.vectors == VectorKind::kSparse || info.vectors == VectorKind::kAll) {
      const bool is_of_tokens = modules.sparse == SentenceModules::Sparse::kTokens;
      info.sparse_dimensions = is_of_tokens ? model->info().vocab_size : info.dimensions;
      if (info.vectors == VectorKind::kSparse) info.dimensions = info.sparse_dimensions;
    }
    info.max_length = options.max_length > 0   ? options.max_length
                      : modules.max_length > 0 ? modules.max_length
                                               : default_length();
    check_length(options);
    const int64_t specials = rows.specials();
    if (info.max_length <= specials) {
      fail<ArgumentError>(kEmbedderWhere, "max_length must leave room beside {} special tokens, got {}", specials,
                          info.max_length);
    }
  }

  // Checks max_length in advance: files of sentence-transformers may allow more tokens than the model has positions.
  void check_length(const EmbedderOptions& options) {
    if (!model) return;
    try {
      model->check_length(info.max_length);
    } catch (const Error& error) {
      if (options.max_length > 0) {
        fail<ArgumentError>(kEmbedderWhere, "max_length must be a length that the model reads, got {}: {}",
                            info.max_length, error.what());
      }
      info.max_length = std::min(info.max_length, positions());
    }
  }

  int64_t default_length() const {
    if (modules.body == SentenceModules::Body::kStatic) return kNoLimit;
    return std::min(rows.settings().max_length.value_or(kNoLimit), positions());
  }

  int64_t positions() const { return model ? model->info().max_position_embeddings : kNoLimit; }

  // The width of the vectors before the steps.
  int64_t first_width() const {
    if (!model) return modules.table_width;
    const int64_t hidden = model->info().hidden_size;
    if (modules.poolings.empty()) return info.vectors == VectorKind::kTokens ? hidden : sparse_columns();
    return hidden * static_cast<int64_t>(modules.poolings.size());
  }
  int64_t sparse_columns() const {
    return modules.sparse == SentenceModules::Sparse::kTokens ? 1 : model->info().vocab_size;
  }

  // The rows of embed(). With VectorKind::kAll, the row of a token holds its vector and its weight; the first token of
  // a text lacks a vector, so its row holds the vector of the text.
  Computation::Rows row_kind() const {
    const bool has_tokens = info.token_dimensions > 0 || modules.sparse == SentenceModules::Sparse::kTokens;
    return has_tokens ? Computation::Rows::kTokens : Computation::Rows::kSequences;
  }
  int64_t row_columns() const {
    if (info.vectors == VectorKind::kAll) return std::max(info.dimensions, info.token_dimensions) + 1;
    return row_kind() == Computation::Rows::kTokens && info.token_dimensions == 0 ? 1 : info.dimensions;
  }

  // The vectors of sequences or tokens before the steps, [rows, first_width()]; zeros of an empty sequence.
  void first_vectors(const Tokens& tokens, float* out) const {
    if (!model) return look_up(modules, tokens, out);
    std::vector<int64_t> offsets;
    const Tokens input = without_empty(tokens, offsets);
    if (info.vectors == VectorKind::kTokens) return model->hidden(input, out);
    if (!modules.poolings.empty()) {
      model->pooled(input, modules.poolings, out);
    } else if (modules.sparse == SentenceModules::Sparse::kTokens) {
      return token_weights(hidden_of(input), out);
    } else {
      model->lexical(input, modules.lexical, out);
    }
    spread_rows(tokens.offsets, std::ssize(offsets) - 1, first_width(), out);
  }

  Computation computation() const {
    return {.run = [this](const Tokens& tokens, float* out) { embed(tokens, out); },
            .columns = row_columns(),
            .rows = row_kind()};
  }

  void embed(const Tokens& tokens, float* out) const {
    check_tokens(tokens, 0);
    std::vector<int64_t> offsets;
    const Computation rows = computation();
    for_batches(tokens.offsets, token_budget, [&](int64_t first, int64_t count) {
      embed_batch(slice(tokens, first, count, offsets), out + rows.row_of(tokens.offsets, first) * rows.columns);
    });
  }

  void embed_batch(const Tokens& tokens, float* out) const {
    if (info.vectors == VectorKind::kAll) return embed_all(tokens, out);
    const int64_t count = computation().rows_of(tokens), wanted = row_columns();
    int64_t columns = first_width();
    const auto is_dense = [](const SentenceStep& step) { return step.kind == SentenceStep::Kind::kDense; };
    if (columns == wanted && std::ranges::none_of(modules.steps, is_dense)) {
      first_vectors(tokens, out);
      for (const SentenceStep& step : modules.steps) change(step, count, columns, out);
      return;
    }
    std::vector<float> vectors(static_cast<size_t>(count * columns));
    first_vectors(tokens, vectors.data());
    columns = apply(modules.steps, count, columns, vectors);
    for (int64_t i = 0; i < count; ++i) first_elements(vectors.data() + i * columns, columns, out + i * wanted);
  }

  // The first elements of a vector of one text, or of one token.
  void first_elements(const float* vector, int64_t columns, float* out) const {
    std::copy_n(vector, info.dimensions, out);
    if (info.dimensions < columns && info.normalized) normalize(out, info.dimensions);
  }

  std::vector<float> hidden_of(const Tokens& tokens) const {
    std::vector<float> hidden(tokens.ids.size() * static_cast<size_t>(model->info().hidden_size));
    model->hidden(tokens, hidden.data());
    return hidden;
  }

  void token_weights(const std::vector<float>& hidden, float* out) const {
    const int64_t width = modules.token_weight.in();
    modules.token_weight(std::ssize(hidden) / width, hidden.data(), width, out, Activation::kRelu);
  }

  void embed_all(const Tokens& tokens, float* out) const {
    std::vector<int64_t> offsets;
    std::vector<float> hidden = hidden_of(without_empty(tokens, offsets));
    const int64_t width = model->info().hidden_size, count = std::ssize(tokens.ids), wanted = row_columns();
    const int64_t sequences = std::ssize(offsets) - 1;
    std::vector<float> weights(static_cast<size_t>(count)), dense(static_cast<size_t>(sequences * first_width()));
    token_weights(hidden, weights.data());
    float* pooled = dense.data();
    for (int64_t i = 0; i < sequences; ++i) {
      for (const Pooling pooling : modules.poolings) {
        pool_sequence(pooling, RF_F32, hidden.data() + offsets[i] * width, offsets[i + 1] - offsets[i], width, nullptr,
                      pooled);
        pooled += width;
      }
    }
    const int64_t columns = apply(modules.steps, sequences, first_width(), dense);
    const int64_t token_columns = apply(modules.token_steps, count, width, hidden);
    std::fill_n(out, count * wanted, 0.0F);
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(hidden.data() + t * token_columns, token_columns, out + t * wanted);
      out[(t + 1) * wanted - 1] = weights[static_cast<size_t>(t)];
    }
    for (int64_t i = 0; i < sequences; ++i) {
      std::fill_n(out + offsets[i] * wanted, wanted - 1, 0.0F);
      first_elements(dense.data() + i * columns, columns, out + offsets[i] * wanted);
    }
  }

  TextVectors vectors(const TokenizedTexts& tokens, int64_t sequence, std::span<const float> rows,
                      TextRole role) const {
    const auto begin = static_cast<size_t>(tokens.offsets[sequence]);
    const auto count = static_cast<size_t>(tokens.offsets[sequence + 1]) - begin;
    const auto columns = static_cast<size_t>(row_columns()), width = static_cast<size_t>(info.token_dimensions);
    TextVectors out;
    if (info.vectors == VectorKind::kDense) out.dense.assign(rows.begin(), rows.end());
    if (info.vectors == VectorKind::kAll) {
      out.dense.resize(static_cast<size_t>(info.dimensions));
      if (count > 0) std::copy_n(rows.begin(), info.dimensions, out.dense.begin());
    }
    if (info.sparse_dimensions > 0) {
      const auto ids = std::span(tokens.ids).subspan(begin, count);
      out.sparse = modules.sparse == SentenceModules::Sparse::kTokens
                       ? sparse_of_tokens(ids, rows.data() + columns - 1, columns, unweighted, info.max_active)
                       : sparse_of(rows, info.max_active);
    }
    for (size_t t = 0; width > 0 && t < count; ++t) {
      if (tokens.pooled[begin + t] == 0) continue;
      const auto row = rows.subspan(t * columns, width);
      out.tokens.insert(out.tokens.end(), row.begin(), row.end());
    }
    const std::optional<TokenPooling>& pooling = modules.token_pooling;
    if (pooling && (role == TextRole::kQuery ? pooling->pools_queries : pooling->pools_documents))
      pool_tokens(*pooling, info.token_dimensions, out.tokens);
    return out;
  }
  SentenceModules modules;
  TextRows rows;
  std::optional<Model> model;
  EmbedderInfo info;
  int64_t token_budget;
  std::vector<int32_t> unweighted;  // tokens without weights of bge-m3
};

Embedder::Embedder(const std::string& model_dir, const EmbedderOptions& options) {
  check(options);
  const io::WarningScope scope(options.warn);
  impl_ = std::make_unique<Impl>(model_dir, options);
}
Embedder::~Embedder() = default;
Embedder::Embedder(Embedder&&) noexcept = default;
Embedder& Embedder::operator=(Embedder&&) noexcept = default;

const EmbedderInfo& Embedder::info() const { return impl_->info; }

const Model& Embedder::model() const {
  if (!impl_->model) fail(kEmbedderWhere, "hidden states need a transformer, got a model that is a table");
  return *impl_->model;
}

std::optional<std::string> Embedder::token(int64_t index) const {
  if (impl_->modules.sparse == SentenceModules::Sparse::kSteps)
    fail(kEmbedderWhere, "names of tokens need weights of the vocabulary, got those of a SparseAutoEncoder");
  const text::Vocabulary& vocabulary = impl_->rows.tokenizer().vocabulary();
  if (index >= vocabulary.size() && index < impl_->info.sparse_dimensions) return std::nullopt;
  return vocabulary.token(index);
}

const text::Tokenizer& Embedder::tokenizer() const { return impl_->rows.tokenizer(); }

std::vector<float> Embedder::shorten(std::span<const float> vector, int64_t dimensions, bool normalizes) const {
  std::vector<float> first(vector.begin(), vector.begin() + dimensions);
  const bool is_normalized = impl_->info.normalized;
  if (is_normalized ? dimensions < std::ssize(vector) : normalizes) normalize(first.data(), dimensions);
  return first;
}

std::string Embedder::identity() const {
  FileHash hash;
  std::vector<std::string> paths = model_files(impl_->modules.encoder_dir);
  for (const std::string_view name : text::kTokenizerFiles) {
    const std::string path = (fs::path(impl_->modules.encoder_dir) / name).string();
    if (io::has_file(path)) paths.push_back(path);
  }
  std::ranges::sort(paths);
  paths.insert(paths.end(), impl_->modules.files.begin(), impl_->modules.files.end());
  for (const std::string& path : paths) hash.add_file(path);
  if (const auto& dictionary = impl_->rows.tokenizer().options().dictionary) hash.add_text(dictionary->hash());
  if (!impl_->info.task.empty()) hash.add_text(impl_->info.task);
  return hash.hex();
}

TokenizedTexts Embedder::tokenize(std::span<const std::string_view> texts, const std::optional<std::string>& prompt,
                                  std::optional<TextRole> role, int64_t max_length) const {
  const EmbedderInfo& info = impl_->info;
  if (max_length <= impl_->rows.specials())
    fail<ArgumentError>(kEmbedderWhere, "max_length must leave room beside {} special tokens, got {}",
                        impl_->rows.specials(), max_length);
  const TextRole of_texts = role.value_or(info.role);
  const int64_t of_role = impl_->rows.length_of(of_texts);
  return impl_->rows.tokenize(texts, prompt ? *prompt : info.prompt, of_texts,
                              std::min(max_length, of_role > 0 ? of_role : info.max_length));
}

void Embedder::embed(const Tokens& tokens, float* out) const { impl_->embed(tokens, out); }

Computation Embedder::computation() const { return impl_->computation(); }

TextVectors Embedder::vectors(const TokenizedTexts& tokens, int64_t sequence, std::span<const float> rows,
                              std::optional<TextRole> role) const {
  return impl_->vectors(tokens, sequence, rows, role.value_or(impl_->info.role));
}

std::vector<TextVectors> Embedder::vectors(std::span<const std::string_view> texts,
                                           const std::optional<std::string>& prompt, std::optional<TextRole> role,
                                           int64_t max_length) const {
  const TokenizedTexts tokenized = tokenize(texts, prompt, role, max_length);
  const Tokens tokens = tokenized.tokens();
  const Computation computed = computation();
  std::vector<TextVectors> distinct;
  std::vector<float> rows;
  std::vector<int64_t> offsets;
  for_batches(tokens.offsets, impl_->token_budget, [&](int64_t first, int64_t count) {
    const Tokens batch = slice(tokens, first, count, offsets);
    rows.resize(static_cast<size_t>(computed.rows_of(batch) * computed.columns));
    impl_->embed_batch(batch, rows.data());
    for (int64_t i = first; i < first + count; ++i) {
      const std::span<const float> own = computed.of_sequence(rows, offsets, i - first);
      io::check_finite(
          own, std::max<int64_t>(1, std::ssize(own)), [](int64_t) { return kEmbedderWhere; },
          [&](int64_t) { return "the vector of " + name_of_text(tokenized, i, texts); });
      distinct.push_back(vectors(tokenized, i, own, role));
    }
  });
  if (tokenized.sequences() == tokenized.texts()) return distinct;
  std::vector<TextVectors> all;
  for (const int64_t sequence : tokenized.sequence_of_text) all.push_back(distinct[sequence]);
  return all;
}

void Embedder::embed(std::span<const std::string_view> texts, float* out,
                     const std::optional<std::string>& prompt) const {
  if (computation().rows == Computation::Rows::kTokens)
    fail<ArgumentError>(kEmbedderWhere, "vectors of tokens need vectors(), got embed()");
  const TokenizedTexts tokenized = tokenize(texts, prompt);
  const int64_t dimensions = impl_->info.dimensions, sequences = tokenized.sequences();
  embed(tokenized.tokens(), out);
  io::check_finite(
      std::span(out, static_cast<size_t>(sequences * dimensions)), dimensions, [](int64_t) { return kEmbedderWhere; },
      [&](int64_t sequence) { return "the vector of " + name_of_text(tokenized, sequence, texts); });
  // Goes from the last text to the first, because the sequence of a text never has a higher number than the text.
  for (int64_t i = tokenized.texts(); sequences < tokenized.texts() && i-- > 0;) {
    const int64_t from = tokenized.sequence_of_text[i];
    if (from != i) std::copy_n(out + from * dimensions, dimensions, out + i * dimensions);
  }
}

}  // namespace rf::engine
