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
#include <mutex>
#include <unordered_map>

#include "rf/engine/interrupt.h"
#include "rf/engine/schedule.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/finite.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/model/model_types.h"
#include "rf/text/batch.h"
#include "rf/text/tokenizer.h"
#include "sentence_modules.h"

namespace rf::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbedderWhere = "embed";
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

void check_lower_case(const SentenceModules& modules, const text::Tokenizer& tokenizer) {
  if (!modules.lower_case || tokenizer.options().letter_case == text::Case::kLower) return;
  fail(modules.encoder_dir,
       "do_lower_case in sentence_bert_config.json needs a tokenizer that lower-cases, got one "
       "that keeps letter case");
}

// Throws Error for options out of range before anything is read.
void check(const EmbedderOptions& options) {
  if (options.dimensions < 0)
    fail<ArgumentError>(kEmbedderWhere, "dimensions must be at least 1, got {}", options.dimensions);
  if (options.max_length < 0)
    fail<ArgumentError>(kEmbedderWhere, "max_length must be at least 1, got {}", options.max_length);
  if (options.threads < 0) fail<ArgumentError>(kEmbedderWhere, "threads must be at least 0, got {}", options.threads);
}

void normalize(float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double scale = 1 / std::max(std::sqrt(sum), 1e-12);
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] * scale);
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

// A model that cannot be computed is refused before its tokenizer, which may be of another kind too.
text::Tokenizer load_tokenizer(const std::string& encoder_dir) {
  check_model_type(encoder_dir, Opens::kEncodersAndDecoders);
  return text::Tokenizer::load(encoder_dir);
}

}  // namespace

std::string name_of_text(const TokenizedTexts& tokens, int64_t sequence, std::span<const std::string_view> texts) {
  const auto index = std::ranges::find(tokens.sequence_of_text, sequence) - tokens.sequence_of_text.begin();
  return fmt::format("text {}, {},", index, io::printable(texts[static_cast<size_t>(index)]));
}

struct Embedder::Impl {
  Impl(const std::string& model_dir, const EmbedderOptions& options)
      : modules(read_sentence_modules(model_dir)),
        tokenizer(load_tokenizer(modules.encoder_dir)),
        row_settings(text::read_row_settings(modules.encoder_dir)),
        model(modules.encoder_dir, {.precision = options.precision,
                                    .token_budget = options.token_budget,
                                    .head = ModelOptions::Head::kBare,
                                    .warn = options.warn}),
        token_budget(options.token_budget),
        threads(options.threads),
        long_texts(options.long_texts) {
    check_lower_case(modules, tokenizer);
    const bool has_modules = io::has_file(model_dir + "/modules.json");
    if (model.info().prefix_lm && !has_modules) modules.poolings = {Pooling::kPooler};  // what its training compares
    set_steps(options);
    set_info(options);
    info.prompt = prompt_of(modules.prompts, options.prompt, options.prompt_name, kEmbedderWhere);
  }

  void set_steps(const EmbedderOptions& options) {
    if (!options.poolings.empty()) modules.poolings = options.poolings;
    const auto is_normalize = [](const SentenceStep& step) { return step.kind == SentenceStep::Kind::kNormalize; };
    if (options.normalize == false) std::erase_if(modules.steps, is_normalize);
    info.normalized = !modules.steps.empty() && is_normalize(modules.steps.back());
    if (options.normalize == true && !info.normalized) {
      modules.steps.push_back({.kind = SentenceStep::Kind::kNormalize});
      info.normalized = true;
    }
    width = pooled_width();
    for (const SentenceStep& step : modules.steps) {
      if (step.kind != SentenceStep::Kind::kDense) continue;
      if (step.dense.in() != width) {
        fail<ArgumentError>(
            kEmbedderWhere,
            "the dense layer of the model reads {} features, got {} from the steps before it (--pooling?)",
            step.dense.in(), width);
      }
      width = step.dense.out();
    }
  }

  void set_info(const EmbedderOptions& options) {
    info.poolings = modules.poolings;
    info.prompts = modules.prompts.by_name;
    info.similarity = modules.similarity;
    info.width = width;
    info.dimensions = options.dimensions > 0 ? options.dimensions : modules.dimensions > 0 ? modules.dimensions : width;
    if (info.dimensions > width)
      fail<ArgumentError>(kEmbedderWhere, "dimensions must be at most the model's {}, got {}", width, info.dimensions);
    info.max_length = options.max_length > 0 ? options.max_length
                      : modules.max_length > 0
                          ? modules.max_length
                          : std::min(row_settings.max_length.value_or(kNoLimit), model.info().max_position_embeddings);
    check_length(options);
    const size_t specials = tokenizer.sequence_template().single.size() - 1;
    if (info.max_length <= static_cast<int64_t>(specials)) {
      fail<ArgumentError>(kEmbedderWhere, "max_length must leave room beside {} special tokens, got {}", specials,
                          info.max_length);
    }
  }

  // Before the first long text comes. Sentence-transformers' files may say more than the model has positions for.
  void check_length(const EmbedderOptions& options) {
    try {
      model.check_length(info.max_length);
    } catch (const Error& error) {
      if (options.max_length > 0) {
        fail<ArgumentError>(kEmbedderWhere, "max_length must be a length that the model reads, got {}: {}",
                            info.max_length, error.what());
      }
      info.max_length = std::min(info.max_length, model.info().max_position_embeddings);
    }
  }

  int64_t pooled_width() const { return model.info().hidden_size * static_cast<int64_t>(modules.poolings.size()); }

  // Tokens that poolings leave out. As sentence-transformers counts them: without the special token at the end.
  int64_t count_prompt_tokens(const std::string& prompt) const {
    if (modules.pooled_prompt != SentenceModules::PooledPrompt::kLeftOut || prompt.empty()) return 0;
    const text::Encoding tokens = tokenizer.encode_with_specials(prompt);
    const bool ends_special =
        tokenizer.sequence_template().single.back().part == text::SequenceTemplate::Part::kSpecial;
    return static_cast<int64_t>(tokens.size()) - (ends_special ? 1 : 0);
  }

  std::unique_ptr<text::BatchEncoder> take_encoder() const {
    const std::lock_guard lock(mutex);
    if (!idle.empty()) {
      std::unique_ptr<text::BatchEncoder> encoder = std::move(idle.back());
      idle.pop_back();
      return encoder;
    }
    const bool truncates = long_texts == LongTexts::kTruncate;
    const text::BatchOptions batch{.truncation = truncates ? text::Truncation::kLongestFirst : text::Truncation::kNone,
                                   .truncation_side = row_settings.truncation_side,
                                   .max_length = truncates ? info.max_length : 0,
                                   .threads = threads};
    return std::make_unique<text::BatchEncoder>(tokenizer, batch);
  }

  void give_back(std::unique_ptr<text::BatchEncoder> encoder) const {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(encoder));
  }

  // Appends the rows of distinct texts.
  void append(std::span<const text::Row> rows, TokenizedTexts& out) const {
    for (const text::Row& row : rows) {
      if (static_cast<int64_t>(row.size()) > info.max_length)
        fail<ArgumentError>(kEmbedderWhere, "texts must have at most {} tokens, got {}", info.max_length, row.size());
      if (static_cast<int64_t>(row.size()) == info.max_length) ++out.full_texts;
      out.replaced_bytes += row.tokens.replaced_bytes;
      out.ids.insert(out.ids.end(), row.tokens.ids.begin(), row.tokens.ids.end());
      if (out.types.empty() && std::ranges::any_of(row.types, [](uint8_t type) { return type != 0; }))
        out.types.resize(static_cast<size_t>(out.offsets.back()));
      out.offsets.push_back(static_cast<int64_t>(out.ids.size()));
      if (!out.types.empty()) out.types.insert(out.types.end(), row.types.begin(), row.types.end());
    }
    if (!out.types.empty()) out.types.resize(out.ids.size());
  }

  // The poolings of sequences, [sequences, pooled_width()]; zeros of an empty one.
  void pool(const Tokens& tokens, float* out) const {
    std::vector<int64_t> offsets;  // of the others
    std::ranges::unique_copy(tokens.offsets, std::back_inserter(offsets));
    Tokens input = tokens;
    input.offsets = offsets;
    model.pooled(input, modules.poolings, out);
    const int64_t columns = pooled_width();
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

  // The vectors of a batch.
  void embed(const Tokens& tokens, float* out) const {
    const int64_t rows = std::ssize(tokens.offsets) - 1;
    int64_t columns = pooled_width();
    const auto is_dense = [](const SentenceStep& step) { return step.kind == SentenceStep::Kind::kDense; };
    const bool in_place = columns == info.dimensions && std::ranges::none_of(modules.steps, is_dense);
    std::vector<float> vectors(in_place ? 0 : static_cast<size_t>(rows * columns));
    pool(tokens, in_place ? out : vectors.data());
    for (const SentenceStep& step : modules.steps) {
      if (is_dense(step)) {
        vectors = dense(step, rows, vectors);
        columns = step.dense.out();
      } else {
        for (int64_t i = 0; i < rows; ++i) normalize((in_place ? out : vectors.data()) + i * columns, columns);
      }
    }
    const bool is_cut = info.dimensions < columns;
    for (int64_t i = 0; !in_place && i < rows; ++i) {
      std::copy_n(vectors.data() + i * columns, info.dimensions, out + i * info.dimensions);
      if (is_cut && info.normalized) normalize(out + i * info.dimensions, info.dimensions);
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
  text::Tokenizer tokenizer;
  text::RowSettings row_settings;
  Model model;
  EmbedderInfo info;
  int64_t width = 0;  // of a vector before it is truncated
  int64_t token_budget;
  int threads;
  LongTexts long_texts;

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<text::BatchEncoder>> idle;
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

const Model& Embedder::model() const { return impl_->model; }

void Embedder::use_prompt(const std::string& prompt) { impl_->info.prompt = prompt; }

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
  if (const auto& dictionary = impl_->tokenizer.options().dictionary) hash_text(*state, dictionary->hash());
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

TokenizedTexts Embedder::tokenize(std::span<const std::string_view> texts,
                                  const std::optional<std::string>& given) const {
  const std::string& prompt = given ? *given : impl_->info.prompt;
  TokenizedTexts out;
  std::unordered_map<std::string_view, int64_t> sequences;
  std::vector<std::string_view> distinct;
  for (const std::string_view text : texts) {
    const auto [found, is_new] = sequences.emplace(text, static_cast<int64_t>(distinct.size()));
    if (is_new) distinct.push_back(text);
    out.sequence_of_text.push_back(found->second);
  }
  std::vector<std::string> prompted;  // must not move while it is viewed
  prompted.reserve(distinct.size());
  std::vector<text::TextPair> samples;
  for (const std::string_view text : distinct) {
    if (prompt.empty()) {
      samples.push_back({text});
    } else {
      samples.push_back({prompted.emplace_back(prompt).append(text)});
    }
  }
  std::unique_ptr<text::BatchEncoder> encoder = impl_->take_encoder();
  constexpr size_t kAtOnce = 4096;
  for (size_t begin = 0; begin < samples.size(); begin += kAtOnce) {
    check_interrupt();
    impl_->append(encoder->encode(std::span(samples).subspan(begin, std::min(kAtOnce, samples.size() - begin))), out);
  }
  impl_->give_back(std::move(encoder));
  if (const int64_t left_out = impl_->count_prompt_tokens(prompt); left_out > 0) {
    out.pooled.assign(out.ids.size(), 1);
    for (int64_t i = 0; i < out.sequences(); ++i)
      std::fill_n(out.pooled.begin() + out.offsets[i], std::min(left_out, out.offsets[i + 1] - out.offsets[i]), 0);
  }
  return out;
}

void Embedder::embed(const Tokens& tokens, float* out) const {
  check_tokens(tokens, 0);
  std::vector<int64_t> offsets;
  for_batches(tokens.offsets, impl_->token_budget, [&](int64_t first, int64_t count) {
    impl_->embed(slice(tokens, first, count, offsets), out + first * impl_->info.dimensions);
  });
}

void Embedder::embed(std::span<const std::string_view> texts, float* out,
                     const std::optional<std::string>& prompt) const {
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

namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

template <typename Norm>
double sum_of_differences(std::span<const float> a, std::span<const float> b, const Norm& norm) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += norm(static_cast<double>(a[i]) - b[i]);
  return sum;
}

}  // namespace

double similarity(Similarity function, std::span<const float> a, std::span<const float> b) {
  switch (function) {
    case Similarity::kDot: return dot(a, b);
    case Similarity::kEuclidean: return -std::sqrt(sum_of_differences(a, b, [](double x) { return x * x; }));
    case Similarity::kManhattan: return -sum_of_differences(a, b, [](double x) { return std::abs(x); });
    case Similarity::kCosine: break;
  }
  const double lengths = std::sqrt(dot(a, a)) * std::sqrt(dot(b, b));
  return lengths > 0 ? dot(a, b) / lengths : 0;
}

}  // namespace rf::engine
