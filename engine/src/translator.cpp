// Beam search over an encoder-decoder in batches (rf/engine/translator.h). A sentence has a search (prompt_search.h)
// and `beams` sequences of the decoder's cache; its beams are the queries of one sequence of cross-attention.
#include "rf/engine/translator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "encoder.h"
#include "heads.h"
#include "parallel_for.h"
#include "prompt_search.h"
#include "rf/io/error.h"
#include "rf/io/warning.h"
#include "weights.h"

namespace rf::engine {

namespace {

constexpr const char* kTranslatorWhere = "translate";
constexpr int64_t kMostTokens = int64_t{1} << 30;
constexpr int64_t kFirstCapacity = 64;  // tokens of a sequence; it grows

using Sources = std::span<const std::vector<int32_t>>;

// Sources without their padding, whose tokens keep their positions.
struct PackedSources {
  std::vector<int32_t> ids;
  std::vector<int64_t> positions, cu_seqlens{0};

  void add(const std::vector<int32_t>& source, int64_t pad) {
    for (size_t t = 0; t < source.size(); ++t) {
      if (source[t] == pad) continue;
      ids.push_back(source[t]);
      positions.push_back(static_cast<int64_t>(t));
    }
    cu_seqlens.push_back(std::ssize(ids));
  }
  EncoderInput input() const {
    return {.sequences = {std::ssize(ids), std::ssize(cu_seqlens) - 1, cu_seqlens.data(), positions.data()},
            .ids = ids.data()};
  }
};

// Sources by length, the longest first, in batches of at most batch_tokens, or of one source.
std::vector<std::vector<size_t>> batches_of(Sources sources, const TranslationOptions& options, int64_t pad) {
  std::vector<size_t> order;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::ranges::any_of(sources[i], [pad](int32_t id) { return id != pad; })) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  std::vector<std::vector<size_t>> batches;
  for (const size_t i : order) {
    const size_t longest = batches.empty() ? 0 : sources[batches.back()[0]].size();
    const size_t tokens = batches.empty() ? 0 : (batches.back().size() + 1) * longest;
    if (batches.empty() || tokens > static_cast<size_t>(options.batch_tokens / options.beams)) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

struct Network {
  ModelConfig config;
  Encoder encoder, decoder;
  HeadLayers output;
};

std::unique_ptr<const Network> load_network(const std::string& model_dir, const TranslatorOptions& options) {
  const io::WarningScope scope(options.warn);
  const ModelConfig config = load_translation_config(model_dir);
  const auto files = std::make_shared<const CheckpointFiles>(model_dir, "load_model");
  const TensorMap tensors =
      translation_tensors(*files, config, translation_weight_specs(config), EncodingTensors::kAny);
  const auto side = [&](TranslationSide which, Precision precision, std::vector<LayerInputs> inputs) {
    return Encoder(side_of(config, which), model_dir, Weights(files, config, which), "", precision, options.warn,
                   std::move(inputs));
  };
  using enum TranslationSide;
  std::vector<LayerInputs> of_encoder, of_decoder;
  if (options.precision == Precision::kInt8) {
    const Encoder encoder = side(kEncoder, Precision::kFloat32, {}), decoder = side(kDecoder, Precision::kFloat32, {});
    of_encoder = encoder.measure_inputs();
    of_decoder = decoder.measure_inputs(&encoder);
  }
  const auto bias = tensors.find(kOutputBias);
  Linear output(options.precision, config.hidden_size, config.vocab_size,
                TensorFloats(files, *tensors.at(kSharedEmbedding)).get(),
                bias == tensors.end() ? std::vector<float>() : finite_elements(*bias->second));
  return std::unique_ptr<const Network>(new Network{.config = config,
                                                    .encoder = side(kEncoder, options.precision, of_encoder),
                                                    .decoder = side(kDecoder, options.precision, of_decoder),
                                                    .output = HeadLayers(std::move(output), options.precision)});
}

// The maximum length of a translation, limited by a position table.
int64_t most_tokens(const Network& network, int64_t source_tokens, const TranslationOptions& options) {
  const double by_ratio = std::floor(options.max_ratio * static_cast<double>(source_tokens));
  const auto most = static_cast<int64_t>(
      std::clamp(by_ratio + static_cast<double>(options.max_extra), 1.0, static_cast<double>(kMostTokens)));
  const int64_t rows = network.config.max_position_embeddings;
  if (most <= rows) return most;
  try {
    network.decoder.check_length(most);
  } catch (const Error&) {
    return rows;
  }
  return most;
}

class BatchSearch {
 public:
  BatchSearch(const Network& network, const PackedSources& sources, std::span<const int64_t> limits,
              const TranslationOptions& options)
      : network_(network),
        options_(options),
        cu_seqlens_(sources.cu_seqlens),
        scores_(network.config.vocab_size),
        generation_(limits.size(),
                    GenerationOptions{.search = Search::kBeams,
                                      .stop_ids = {static_cast<int32_t>(network.config.decoder->eos_token_id)},
                                      .beams = options.beams,
                                      .length_penalty = options.length_penalty}) {
    for (size_t i = 0; i < limits.size(); ++i) generation_[i].max_new_tokens = limits[i];
    const void* states = network.encoder.encode(sources.input(), work_);
    keys_values_ = network.decoder.project_source(states, std::ssize(sources.ids));
    cross_lists_.rows.resize(sources.ids.size());
    std::iota(cross_lists_.rows.begin(), cross_lists_.rows.end(), int64_t{0});
    cross_ = {.keys_values = keys_values_.get(), .tokens = std::ssize(sources.ids), .lists = &cross_lists_};
    const int64_t longest = *std::ranges::max_element(limits), sequences = std::ssize(limits) * options.beams;
    // Decided by the model, not by the batch, whose limits must not change bits.
    if (network.decoder.may_share_rows(kMostTokens)) {
      cache_ = std::make_unique<SharedRows>(network.decoder.shared_shape(sequences));
    } else {
      cache_ = network.decoder.make_cache(sequences, std::min(kFirstCapacity, longest));
    }
  }

  std::vector<Translation> run() {
    begin();
    for (int64_t tokens = 1; !sequences_.empty(); ++tokens) {
      auto* const rows = dynamic_cast<KeyValueCache*>(cache_.get());
      if (rows != nullptr && tokens > rows->capacity()) rows->grow(2 * rows->capacity());
      advance(compute());
      collect_steps();
    }
    std::vector<Translation> results;
    for (const auto& search : searches_) {
      Generated best = std::move(search->results().at(0));
      if (best.stopped) best.ids.pop_back();
      results.push_back({.ids = std::move(best.ids), .score = best.score, .ended = best.stopped});
    }
    return results;
  }

 private:
  int64_t sentences() const { return std::ssize(generation_); }

  // The decoder's first token, in the first sequence of each sentence.
  void begin() {
    for (int64_t i = 0; i < sentences(); ++i) {
      sequences_.push_back(i * options_.beams);
      tokens_.push_back(static_cast<int32_t>(network_.config.decoder->start_token_id));
      first_rows_.push_back(i);
    }
    first_rows_.push_back(sentences());
  }

  void collect_steps() {
    sequences_.clear();
    tokens_.clear();
    first_rows_.assign(1, 0);
    for (const auto& search : searches_) {
      for (const PromptSearch::Step& step : search->steps()) {
        sequences_.push_back(step.sequence);
        tokens_.push_back(step.token);
      }
      first_rows_.push_back(std::ssize(sequences_));
    }
  }

  // Gives each sequence its next token; returns the logits after it.
  const float* compute() {
    const int64_t rows = std::ssize(sequences_), width = network_.config.hidden_size;
    const bool recomputes = options_.cache == TranslationOptions::Cache::kNone;
    offsets_.assign(1, 0);
    ids_.clear();
    for (int64_t r = 0; r < rows; ++r) {
      if (recomputes) {
        const std::span<const int32_t> known = cache_->ids(sequences_[r]);
        ids_.insert(ids_.end(), known.begin(), known.end());
        cache_->truncate(sequences_[r], 0);
      }
      ids_.push_back(tokens_[r]);
      offsets_.push_back(std::ssize(ids_));
    }
    if (auto* const shared = dynamic_cast<SharedRows*>(cache_.get()); shared != nullptr && recomputes) shared->clear();
    cross_lists_.begins.clear();
    cross_lists_.counts.clear();
    for (size_t i = 0; i + 1 < first_rows_.size(); ++i) {
      const auto tokens = static_cast<size_t>(offsets_[first_rows_[i + 1]]);
      cross_lists_.begins.resize(tokens, cu_seqlens_[i]);
      cross_lists_.counts.resize(tokens, cu_seqlens_[i + 1] - cu_seqlens_[i]);
    }
    SequenceCache* const cache = cache_.get();
    const Extension input{{&cache, 1}, sequences_, offsets_, ids_.data(), &cross_};
    auto* const hidden = static_cast<std::byte*>(network_.decoder.extend(input, work_));
    const int64_t row_bytes = width * bytes_of(network_.decoder.dtype());
    for (int64_t r = 0; r < rows && input.tokens() > rows; ++r)
      std::copy_n(hidden + (offsets_[r + 1] - 1) * row_bytes, row_bytes, hidden + r * row_bytes);
    logits_.resize(static_cast<size_t>(rows * network_.config.vocab_size));
    network_.output(rows, hidden, width, logits_.data(), head_memory_);
    check_logits(kTranslatorWhere, logits_, network_.config.vocab_size);
    return logits_.data();
  }

  void advance(const float* logits) {
    const int64_t vocab_size = network_.config.vocab_size;
    for (int64_t i = std::ssize(searches_); i < sentences(); ++i) {
      searches_.push_back(PromptSearch::make({generation_[i], *cache_, scores_, vocab_size, i * options_.beams,
                                              static_cast<int32_t>(network_.config.pad_token_id)}));
    }
    parallel_for(sentences(), sentences() > 1, [&](int64_t i) {
      if (first_rows_[i] < first_rows_[i + 1]) searches_[i]->advance(logits + first_rows_[i] * vocab_size);
    });
  }

  const Network& network_;
  const TranslationOptions& options_;
  std::span<const int64_t> cu_seqlens_;  // of the sources
  TokenScores scores_;
  std::vector<GenerationOptions> generation_;  // of the searches
  Workspace work_;
  HeadLayers::Memory head_memory_;
  AlignedMemory keys_values_;
  CrossInput cross_;
  KeyLists cross_lists_;
  std::unique_ptr<SequenceCache> cache_;
  std::vector<std::unique_ptr<PromptSearch>> searches_;
  // The next step: tokens of sequences of the cache; sentence i has those from first_rows_[i] to first_rows_[i + 1].
  std::vector<int64_t> sequences_, first_rows_;
  std::vector<int32_t> tokens_;
  // The input and output of the decoder.
  std::vector<int64_t> offsets_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_;
};

}  // namespace

struct Translator::Impl {
  std::unique_ptr<const Network> network;
  TranslatorInfo info;
};

Translator::Translator(const std::string& model_dir, const TranslatorOptions& options)
    : impl_(new Impl{.network = load_network(model_dir, options), .info = {}}) {
  const ModelConfig& config = impl_->network->config;
  impl_->info = {.vocab_size = config.vocab_size,
                 .max_position_embeddings = config.max_position_embeddings,
                 .pad_token_id = config.pad_token_id,
                 .eos_token_id = config.decoder->eos_token_id};
}

Translator::~Translator() = default;
Translator::Translator(Translator&&) noexcept = default;
Translator& Translator::operator=(Translator&&) noexcept = default;

const TranslatorInfo& Translator::info() const { return impl_->info; }

void Translator::check(const TranslationOptions& options) const {
  const int64_t most = std::min(TranslationOptions::kMaxBeams, impl_->info.vocab_size);
  if (options.beams < 1 || options.beams > most)
    fail(kTranslatorWhere, "beams must be in 1..{}, got {}", most, options.beams);
  check_length_penalty(kTranslatorWhere, options.length_penalty, 1);
  if (!(options.max_ratio >= 0) || !std::isfinite(options.max_ratio) || options.max_extra < 0) {
    fail(kTranslatorWhere, "max_ratio and max_extra must be at least 0, got {} and {}", options.max_ratio,
         options.max_extra);
  }
  if (options.batch_tokens < 1) fail(kTranslatorWhere, "batch-tokens must be at least 1, got {}", options.batch_tokens);
}

void Translator::check_source_length(int64_t tokens) const { impl_->network->encoder.check_length(tokens); }

std::vector<Translation> Translator::translate(Sources sources, const TranslationOptions& options) const {
  check(options);
  const Network& network = *impl_->network;
  for (size_t i = 0; i < sources.size(); ++i) {
    for (const int32_t id : sources[i]) {
      if (id >= 0 && id < impl_->info.vocab_size) continue;
      fail(kTranslatorWhere, "token ids must be in 0..{}, got {} in source {}", impl_->info.vocab_size - 1, id, i);
    }
  }
  const std::vector<std::vector<size_t>> batches = batches_of(sources, options, impl_->info.pad_token_id);
  std::vector<PackedSources> packed(batches.size());
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const size_t i : batches[b]) packed[b].add(sources[i], impl_->info.pad_token_id);
    network.encoder.check(packed[b].input());
  }
  std::vector<Translation> results(sources.size());
  std::vector<std::vector<int64_t>> limits(batches.size());
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const size_t i : batches[b]) limits[b].push_back(most_tokens(network, std::ssize(sources[i]), options));
    check_length_penalty(kTranslatorWhere, options.length_penalty, *std::ranges::max_element(limits[b]));
  }
  int64_t finished = 0;
  for (size_t b = 0; b < batches.size(); ++b) {
    std::vector<Translation> found = BatchSearch(network, packed[b], limits[b], options).run();
    for (size_t k = 0; k < found.size(); ++k) results[batches[b][k]] = std::move(found[k]);
    finished += std::ssize(found);
    if (options.done) options.done(finished);
  }
  return results;
}

}  // namespace rf::engine
