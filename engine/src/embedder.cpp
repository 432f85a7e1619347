// Texts to vectors (rf/engine/embedder.h): the steps of sentence-transformers, each text on its own.
#include "rf/engine/embedder.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

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
#include "text_rows.h"

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

std::span<float> row(float* rows, int64_t i, int64_t columns) {
  return {rows + i * columns, static_cast<size_t>(columns)};
}

void hash_text(XXH3_state_t& state, std::string_view text) {
  const uint64_t size = text.size();
  XXH3_128bits_update(&state, &size, sizeof size);
  XXH3_128bits_update(&state, text.data(), text.size());
}

// Reads the file in blocks: a mapping of the weights would count as memory in use.
void hash_file(XXH3_state_t& state, const std::string& path) {
  constexpr size_t kBlock = size_t{1} << 20;
  hash_text(state, fs::path(path).filename().string());
  std::ifstream file(path, std::ios::binary);
  std::string block(kBlock, '\0');
  uint64_t size = 0;
  while (file.read(block.data(), kBlock) || file.gcount() > 0) {
    const auto count = static_cast<size_t>(file.gcount());
    XXH3_128bits_update(&state, block.data(), count);
    size += count;
  }
  if (!file.eof()) fail(path, "must be readable, got an error of reading");
  XXH3_128bits_update(&state, &size, sizeof size);
}

void check_masked_lm(const std::string& dir) {
  constexpr const char* kRule = "sparse vectors need a masked language model, got {}";
  if (is_foreign_decoder(dir)) fail(dir, kRule, "a causal language model");
  const ModelConfig config = load_config(dir);
  const Head head = config.head();
  if (head == Head::kMaskedLm || head == Head::kPreTraining) return;
  fail(dir, kRule, head == Head::kCausalLm ? "a causal language model" : architecture_of(config, head));
}

// nullopt for a body without a transformer.
std::optional<Model> load_model(const SentenceModules& modules, const EmbedderOptions& options) {
  if (modules.body != SentenceModules::Body::kTransformer) return std::nullopt;
  const bool is_sparse = options.vectors == VectorKind::kSparse;
  if (is_sparse) check_masked_lm(modules.encoder_dir);
  using ModelHead = ModelOptions::Head;
  return std::make_optional<Model>(modules.encoder_dir,
                                   ModelOptions{.precision = options.precision,
                                                .token_budget = options.token_budget,
                                                .head = is_sparse ? ModelHead::kMaskedLm : ModelHead::kBare,
                                                .warn = options.warn});
}

// The prompt of a role is the first of these names.
std::optional<std::string> prompt_name_of(const Prompts& prompts, TextRole role) {
  using Names = std::vector<const char*>;
  const Names names = role == TextRole::kNone    ? Names{}
                      : role == TextRole::kQuery ? Names{"query"}
                                                 : Names{"document", "passage", "corpus"};
  for (const char* name : names) {
    if (prompts.by_name.contains(name)) return name;
  }
  return std::nullopt;
}

}  // namespace

std::string name_of_text(const TokenizedTexts& tokens, int64_t sequence, std::span<const std::string_view> texts) {
  const auto index = std::ranges::find(tokens.sequence_of_text, sequence) - tokens.sequence_of_text.begin();
  return fmt::format("text {}, {},", index, io::printable(texts[static_cast<size_t>(index)]));
}

void normalize(std::span<float> vector) {
  double sum = 0;
  for (const float x : vector) sum += static_cast<double>(x) * x;
  const double scale = 1 / std::max(std::sqrt(sum), 1e-12);
  for (float& x : vector) x = static_cast<float>(x * scale);
}

TokenVectors vectors_of_texts(const TokenizedTexts& tokens, std::span<const float> rows, int64_t dimensions) {
  TokenVectors out;
  for (const int64_t sequence : tokens.sequence_of_text) {
    for (int64_t t = tokens.offsets[sequence]; t < tokens.offsets[sequence + 1]; ++t) {
      if (tokens.pooled[static_cast<size_t>(t)] == 0) continue;
      const auto row = rows.subspan(static_cast<size_t>(t * dimensions), static_cast<size_t>(dimensions));
      out.rows.insert(out.rows.end(), row.begin(), row.end());
    }
    out.offsets.push_back(std::ssize(out.rows) / dimensions);
  }
  return out;
}

struct Embedder::Impl {
  Impl(const std::string& model_dir, const EmbedderOptions& options)
      : modules(read_sentence_modules(model_dir, options.vectors, options.role)),
        rows(modules),
        model(load_model(modules, options)),
        token_budget(options.token_budget) {
    check_static(modules, rows.tokenizer());
    const bool has_modules = io::has_file(model_dir + "/modules.json");
    if (model && model->info().prefix_lm && !has_modules)
      modules.poolings = {Pooling::kPooler};  // what its training compares
    info.vectors = options.vectors;
    info.role = options.role;
    set_steps(options);
    set_info(options);
    rows.set(options, positions());
    const bool is_given = options.prompt || options.prompt_name;
    const std::optional<std::string> name =
        is_given ? options.prompt_name : prompt_name_of(modules.prompts, options.role);
    info.prompt = prompt_of(modules.prompts, options.prompt, name, kEmbedderWhere);
  }

  void set_steps(const EmbedderOptions& options) {
    const bool pools = model && info.vectors == VectorKind::kDense;
    if (!options.poolings.empty() && !pools)
      fail<ArgumentError>(kEmbedderWhere,
                          "a pooling goes with one vector of a transformer, got another kind of vectors");
    if (!options.poolings.empty()) modules.poolings = options.poolings;
    if (!pools) modules.poolings.clear();
    const auto is_normalize = [](const SentenceStep& step) { return step.kind == SentenceStep::Kind::kNormalize; };
    if (options.normalize == false) std::erase_if(modules.steps, is_normalize);
    info.normalized = !modules.steps.empty() && is_normalize(modules.steps.back());
    if (options.normalize == true && !info.normalized) {
      modules.steps.push_back({.kind = SentenceStep::Kind::kNormalize});
      info.normalized = true;
    }
    info.width = first_width();
    for (const SentenceStep& step : modules.steps) {
      if (step.kind == SentenceStep::Kind::kLayerNorm && step.norm.columns != info.width)
        fail<ArgumentError>(kEmbedderWhere, "the norm of the model reads {} features, got {}", step.norm.columns,
                            info.width);
      if (step.kind != SentenceStep::Kind::kDense) continue;
      if (step.dense.in() != info.width) {
        fail<ArgumentError>(
            kEmbedderWhere,
            "the dense layer of the model reads {} features, got {} from the steps before it (--pooling?)",
            step.dense.in(), info.width);
      }
      info.width = step.dense.out();
    }
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
                      : modules.dimensions > 0 ? modules.dimensions
                                               : info.width;
    if (info.dimensions > info.width)
      fail<ArgumentError>(kEmbedderWhere, "dimensions must be at most the model's {}, got {}", info.width,
                          info.dimensions);
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

  // Before the first long text comes. Sentence-transformers' files may say more than the model has positions for.
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

  // Of the vectors before the steps.
  int64_t first_width() const {
    if (!model) return modules.table_width;
    if (info.vectors == VectorKind::kSparse) return model->info().vocab_size;
    const int64_t hidden = model->info().hidden_size;
    return info.vectors == VectorKind::kTokens ? hidden : hidden * static_cast<int64_t>(modules.poolings.size());
  }

  // The vectors of sequences or tokens before the steps, [rows, first_width()]; zeros of an empty sequence.
  void first_vectors(const Tokens& tokens, float* out) const {
    if (!model) return look_up(tokens, out);
    std::vector<int64_t> offsets;  // of the others
    std::ranges::unique_copy(tokens.offsets, std::back_inserter(offsets));
    Tokens input = tokens;
    input.offsets = offsets;
    if (info.vectors == VectorKind::kTokens) return model->hidden(input, out);
    if (info.vectors == VectorKind::kSparse) {
      model->lexical(input, modules.lexical, out);
    } else {
      model->pooled(input, modules.poolings, out);
    }
    const int64_t columns = first_width();
    int64_t from = std::ssize(offsets) - 1;
    for (int64_t i = std::ssize(tokens.offsets) - 1; i-- > 0 && from <= i;) {
      if (tokens.offsets[i] == tokens.offsets[i + 1]) {
        std::fill_n(out + i * columns, columns, 0.0f);
      } else {
        --from;
        std::copy_n(out + from * columns, columns, out + i * columns);
      }
    }
  }

  // Without a transformer: means of rows, or the weights of the tokens that occur.
  void look_up(const Tokens& tokens, float* out) const {
    const int64_t columns = modules.table_width;
    for (size_t i = 1; i < tokens.offsets.size(); ++i, out += columns) {
      const auto ids = tokens.ids.subspan(tokens.offsets[i - 1], tokens.offsets[i] - tokens.offsets[i - 1]);
      std::fill_n(out, columns, 0.0F);
      if (modules.body == SentenceModules::Body::kSparseStatic) {
        for (const int32_t id : ids) out[id] = modules.table[id];
      } else if (!ids.empty()) {
        mean_of_rows(ids, out);
      }
    }
  }

  void mean_of_rows(std::span<const int32_t> ids, float* out) const {
    const int64_t columns = modules.table_width;
    std::vector<double> sum(static_cast<size_t>(columns));
    for (const int32_t id : ids) {
      for (int64_t c = 0; c < columns; ++c) sum[c] += modules.table[id * columns + c];
    }
    for (int64_t c = 0; c < columns; ++c) out[c] = static_cast<float>(sum[c] / static_cast<double>(ids.size()));
  }

  Computation computation() const {
    return {.run = [this](const Tokens& tokens, float* out) { embed(tokens, out); },
            .columns = info.dimensions,
            .rows = info.vectors == VectorKind::kTokens ? Computation::Rows::kTokens : Computation::Rows::kSequences};
  }

  void embed(const Tokens& tokens, float* out) const {
    check_tokens(tokens, 0);
    std::vector<int64_t> offsets;
    const Computation rows = computation();
    for_batches(tokens.offsets, token_budget, [&](int64_t first, int64_t count) {
      embed_batch(slice(tokens, first, count, offsets), out + rows.row_of(tokens.offsets, first) * info.dimensions);
    });
  }

  void embed_batch(const Tokens& tokens, float* out) const {
    const int64_t count = computation().rows_of(tokens);
    int64_t columns = first_width();
    const auto is_dense = [](const SentenceStep& step) { return step.kind == SentenceStep::Kind::kDense; };
    const bool in_place = columns == info.dimensions && std::ranges::none_of(modules.steps, is_dense);
    std::vector<float> vectors(in_place ? 0 : static_cast<size_t>(count * columns));
    first_vectors(tokens, in_place ? out : vectors.data());
    for (const SentenceStep& step : modules.steps) {
      float* const x = in_place ? out : vectors.data();
      if (is_dense(step)) {
        vectors = dense(step, count, vectors);
        columns = step.dense.out();
      } else if (step.kind == SentenceStep::Kind::kLayerNorm) {
        step.norm(RF_F32, count, x, nullptr, x);
      } else {
        for (int64_t i = 0; i < count; ++i) normalize(row(x, i, columns));
      }
    }
    const bool is_cut = info.dimensions < columns;
    for (int64_t i = 0; !in_place && i < count; ++i) {
      std::copy_n(vectors.data() + i * columns, info.dimensions, out + i * info.dimensions);
      if (is_cut && info.normalized) normalize(row(out, i, info.dimensions));
    }
  }

  static std::vector<float> dense(const SentenceStep& step, int64_t rows, const std::vector<float>& x) {
    const int64_t in = step.dense.in(), out = step.dense.out();
    std::vector<float> y(static_cast<size_t>(rows * out));
    step.dense(rows, x.data(), in, y.data(), step.activation);
    std::vector<float> through;
    if (step.residual == SentenceStep::Residual::kProjected) {
      through.resize(y.size());
      step.residual_projection(rows, x.data(), in, through.data());
    }
    const std::vector<float>& added = through.empty() ? x : through;
    for (size_t i = 0; step.residual != SentenceStep::Residual::kNone && i < y.size(); ++i) y[i] += added[i];
    return y;
  }
  SentenceModules modules;
  TextRows rows;
  std::optional<Model> model;
  EmbedderInfo info;
  int64_t token_budget;
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

const text::Tokenizer& Embedder::tokenizer() const { return impl_->rows.tokenizer(); }

std::vector<float> Embedder::shorten(std::span<const float> vector, int64_t dimensions) const {
  std::vector<float> first(vector.begin(), vector.begin() + dimensions);
  if (dimensions < std::ssize(vector) && impl_->info.normalized) normalize(first);
  return first;
}

const std::string& Embedder::token(int64_t index) const { return impl_->rows.tokenizer().vocabulary().token(index); }

std::string Embedder::identity() const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(impl_->modules.encoder_dir)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.starts_with("model") && name.find(".safetensors") != std::string::npos;
    const bool tokenizer = std::ranges::find(text::kTokenizerFiles, name) != std::end(text::kTokenizerFiles);
    if (name == "config.json" || weights || tokenizer) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  paths.insert(paths.end(), impl_->modules.files.begin(), impl_->modules.files.end());
  for (const std::string& path : paths) hash_file(*state, path);
  if (const auto& dictionary = impl_->rows.tokenizer().options().dictionary) hash_text(*state, dictionary->hash());
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

TokenizedTexts Embedder::tokenize(std::span<const std::string_view> texts, const std::optional<std::string>& prompt,
                                  std::optional<TextRole> role) const {
  const EmbedderInfo& info = impl_->info;
  return impl_->rows.tokenize(texts, prompt ? *prompt : info.prompt, role.value_or(info.role), info.max_length);
}

void Embedder::embed(const Tokens& tokens, float* out) const { impl_->embed(tokens, out); }

Computation Embedder::computation() const { return impl_->computation(); }

std::vector<SparseVector> Embedder::embed_sparse(std::span<const std::string_view> texts,
                                                 const std::optional<std::string>& prompt) const {
  if (impl_->info.vectors != VectorKind::kSparse)
    fail<ArgumentError>(kEmbedderWhere, "sparse vectors need VectorKind::kSparse, got another kind");
  const int64_t dimensions = impl_->info.dimensions;
  const TokenizedTexts tokenized = tokenize(texts, prompt);
  const Tokens tokens = tokenized.tokens();
  std::vector<SparseVector> distinct;
  std::vector<float> weights;
  std::vector<int64_t> offsets;
  for_batches(tokens.offsets, impl_->token_budget, [&](int64_t first, int64_t count) {
    weights.resize(static_cast<size_t>(count * dimensions));
    impl_->embed_batch(slice(tokens, first, count, offsets), weights.data());
    io::check_finite(
        weights, dimensions, [](int64_t) { return kEmbedderWhere; },
        [&](int64_t row) { return "the vector of " + name_of_text(tokenized, first + row, texts); });
    for (int64_t i = 0; i < count; ++i) {
      const auto row = std::span(weights).subspan(static_cast<size_t>(i * dimensions), static_cast<size_t>(dimensions));
      distinct.push_back(sparse_of(row, impl_->info.max_active));
    }
  });
  std::vector<SparseVector> all;
  for (const int64_t sequence : tokenized.sequence_of_text) all.push_back(distinct[sequence]);
  return all;
}

TokenVectors Embedder::embed_tokens(std::span<const std::string_view> texts, const std::optional<std::string>& prompt,
                                    std::optional<TextRole> role) const {
  if (impl_->info.vectors != VectorKind::kTokens)
    fail<ArgumentError>(kEmbedderWhere, "vectors of tokens need VectorKind::kTokens, got another kind");
  const TokenizedTexts tokens = tokenize(texts, prompt, role);
  std::vector<float> rows(tokens.ids.size() * static_cast<size_t>(impl_->info.dimensions));
  embed(tokens.tokens(), rows.data());
  const auto name = [&](int64_t token) {
    const auto sequence = std::ranges::upper_bound(tokens.offsets, token) - tokens.offsets.begin() - 1;
    return "a vector of " + name_of_text(tokens, sequence, texts);
  };
  io::check_finite(
      rows, impl_->info.dimensions, [](int64_t) { return kEmbedderWhere; }, name);
  return vectors_of_texts(tokens, rows, impl_->info.dimensions);
}

void Embedder::embed(std::span<const std::string_view> texts, float* out,
                     const std::optional<std::string>& prompt) const {
  if (impl_->info.vectors == VectorKind::kTokens)
    fail<ArgumentError>(kEmbedderWhere, "vectors of tokens need embed_tokens(), got embed()");
  const TokenizedTexts tokenized = tokenize(texts, prompt);
  const int64_t dimensions = impl_->info.dimensions, sequences = tokenized.sequences();
  embed(tokenized.tokens(), out);
  io::check_finite(
      std::span(out, static_cast<size_t>(sequences * dimensions)), dimensions, [](int64_t) { return kEmbedderWhere; },
      [&](int64_t sequence) { return "the vector of " + name_of_text(tokenized, sequence, texts); });
  // From the last text on, because a text's sequence never comes after it.
  for (int64_t i = tokenized.texts(); sequences < tokenized.texts() && i-- > 0;) {
    const int64_t from = tokenized.sequence_of_text[i];
    if (from != i) std::copy_n(out + from * dimensions, dimensions, out + i * dimensions);
  }
}

}  // namespace rf::engine
