// The public interface of a model (rf/engine/model.h): checks of a call, chunks, and results from hidden states.
#include "rf/engine/model.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>

#include "encoder.h"
#include "heads.h"
#include "parallel_for.h"
#include "position.h"
#include "rf/engine/names.h"
#include "rf/engine/schedule.h"
#include "rf/io/error.h"
#include "rf/io/warning.h"
#include "rf/model/config.h"
#include "rf/model/foreign_models.h"
#include "rf/model/model_types.h"
#include "rf/model/weights.h"
#include "weights.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace rf::engine {

namespace {

constexpr const char* kModelWhere = "input";

Head wanted_head(const ModelConfig& config, ModelOptions::Head head) {
  switch (head) {
    case ModelOptions::Head::kConfigured: return config.head();
    case ModelOptions::Head::kBare: return Head::kNone;
    case ModelOptions::Head::kMaskedLm: return Head::kMaskedLm;
  }
  fail("model", "head must be a known one, got {}", static_cast<int>(head));
}

ModelInfo info_of(const ModelConfig& config, Head head) {
  ModelInfo info{.model_type = model_type(config),
                 .architecture = architecture_of(config, head),
                 .head = head,
                 .vocab_size = config.vocab_size,
                 .hidden_size = config.output_width(),
                 .layers = config.num_hidden_layers,
                 .heads = config.num_attention_heads,
                 .type_vocab_size = std::max<int64_t>(1, config.type_vocab_size),
                 .max_position_embeddings = config.max_position_embeddings,
                 .pad_token_id = config.pad_token_id,
                 .causal = config.is_decoder,
                 .prefix_lm = config.prefix_lm,
                 .labels = {},
                 .problem_type = config.problem_type,
                 .tasks = {},
                 .stop_ids = config.stop_ids};
  for (const AdapterSpec::Adapter& each :
       config.adapters ? config.adapters->tasks : std::vector<AdapterSpec::Adapter>())
    info.tasks.emplace(each.task, each.prompt);
  for (int64_t i = 0; i < config.num_labels; ++i) {
    const auto found = config.id2label.find(i);
    info.labels.push_back(found == config.id2label.end() ? "LABEL_" + std::to_string(i) : found->second);
  }
  return info;
}

// Sequences that are computed together.
struct Chunk {
  int64_t first_sequence = 0, sequences = 0;
  int64_t first_token = 0, tokens = 0;
  const int64_t* cu_seqlens = nullptr;  // from 0
  const int32_t* ids = nullptr;
  const char* hidden = nullptr;  // [tokens, hidden_size]
};

// The memory of a thread during a call, kept for the next.
struct Session {
  Workspace work;
  HeadLayers::Memory head;
  std::vector<int64_t> cu_seqlens, positions, read_tokens;  // positions: of all tokens of the call
  std::vector<std::byte> gathered;
  std::vector<float> pooled, logits;
};

// Adds the logits of a token to the maxima or sums of its sequence, over a part of the vocabulary. A NaN stays.
void add_lexical(LexicalPooling pooling, std::span<const float> logits, float* out) {
  const bool is_max = pooling.reduce == LexicalPooling::Reduce::kMax;
  for (size_t c = 0; c < logits.size(); ++c) {
    const float x = logits[c];
    if (is_max) {
      out[c] = x > out[c] || x != x ? x : out[c];
    } else if (!(x <= 0)) {
      const float weight = std::log1p(x);
      out[c] += pooling.logarithms == LexicalPooling::Logarithms::kTwo ? std::log1p(weight) : weight;
    }
  }
}

// Takes the logarithms of maxima, which equal the maxima of the logarithms; sums have them already.
void finish_lexical(LexicalPooling pooling, std::span<float> out) {
  if (pooling.reduce == LexicalPooling::Reduce::kSum) return;
  for (float& x : out) {
    if (x == 0) continue;  // true of most
    x = std::log1p(x);
    if (pooling.logarithms == LexicalPooling::Logarithms::kTwo) x = std::log1p(x);
  }
}

}  // namespace

struct Model::Impl {
  ModelInfo info;
  int64_t token_budget;
  std::optional<Encoder> encoder;
  HeadLayers layers;

  std::mutex mutex;
  std::vector<std::unique_ptr<Session>> idle;

  std::unique_ptr<Session> take_session() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Session>();
    std::unique_ptr<Session> session = std::move(idle.back());
    idle.pop_back();
    return session;
  }

  void give_back(std::unique_ptr<Session> session) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(session));
  }

  void open(const std::string& path, const ModelOptions& options);

  EncoderInput input_of(const Tokens& tokens) const {
    const auto given = [](auto values) { return values.empty() ? nullptr : values.data(); };
    EncoderInput input;
    input.sequences = {std::ssize(tokens.ids), std::ssize(tokens.offsets) - 1, tokens.offsets.data(),
                       tokens.positions.data()};
    input.ids = tokens.ids.data();
    input.types = reads_types ? given(tokens.types) : nullptr;
    input.attend = given(tokens.attend);
    return input;
  }

  // Calls visit(chunk, session) for all sequences in order. All tokens are checked before any is computed.
  template <class Visit>
  void for_chunks(const Tokens& given, const Visit& visit) {
    check_tokens(given, 1);
    std::unique_ptr<Session> session = take_session();
    Tokens tokens = given;
    if (tokens.positions.empty()) {
      session->positions.resize(tokens.ids.size());
      tokens.positions = session->positions;
      for (size_t i = 1; i < tokens.offsets.size(); ++i) {
        std::iota(session->positions.begin() + tokens.offsets[i - 1], session->positions.begin() + tokens.offsets[i],
                  int64_t{0});
      }
    }
    encoder->check(input_of(tokens));
    for_batches(tokens.offsets, token_budget, [&](int64_t first, int64_t count) {
      const EncoderInput input = input_of(slice(tokens, first, count, session->cu_seqlens));
      const void* hidden = encoder->encode(input, session->work);
      visit(Chunk{first, count, tokens.offsets[static_cast<size_t>(first)], input.sequences.tokens,
                  input.sequences.cu_seqlens, input.ids, static_cast<const char*>(hidden)},
            *session);
    });
    give_back(std::move(session));
  }

  int64_t row_bytes() const { return info.hidden_size * bytes_of(encoder->dtype()); }

  // Copies the hidden states of the chunk's tokens in `rows` next to each other.
  const void* gather(const Chunk& chunk, std::span<const int64_t> rows, Session& session) const {
    session.gathered.resize(rows.size() * static_cast<size_t>(row_bytes()));
    std::byte* to = session.gathered.data();
    for (const int64_t row : rows) {
      const auto* from = reinterpret_cast<const std::byte*>(chunk.hidden) + (row - chunk.first_token) * row_bytes();
      to = std::copy_n(from, row_bytes(), to);
    }
    return session.gathered.data();
  }

  // The last token that is not padding (a text may contain it too); the first token if all are padding.
  int64_t before_padding(const Chunk& chunk, int64_t begin, int64_t last) const {
    int64_t token = last;
    while (skips_padding && token >= begin && chunk.ids[token] == info.pad_token_id) --token;
    return std::max(token, begin);
  }

  // The rows of the tokens that heads of sequences read: the first or the last of each.
  const void* gather_ends(const Chunk& chunk, bool last, Session& session) const {
    session.read_tokens.clear();
    for (int64_t i = 0; i < chunk.sequences; ++i) {
      int64_t token = last ? chunk.cu_seqlens[i + 1] - 1 : chunk.cu_seqlens[i];
      if (last) token = before_padding(chunk, chunk.cu_seqlens[i], token);
      session.read_tokens.push_back(chunk.first_token + token);
    }
    return gather(chunk, session.read_tokens, session);
  }
  HeadReads reads = HeadReads::kTokens;
  bool skips_padding = false;  // of decoders, as in transformers
  bool reads_types = true;     // models without token types ignore the tokenizer's types, as transformers does

  // The vectors that heads of sequences read, of a chunk's sequences.
  const void* gather_read(const Chunk& chunk, const uint8_t* attend, Session& session) const {
    if (reads != HeadReads::kMean) return gather_ends(chunk, reads == HeadReads::kLastToken, session);
    const int64_t width = info.hidden_size;
    session.pooled.resize(static_cast<size_t>(chunk.sequences * width));
    pool(chunk, Pooling::kMean, attend, session.pooled.data(), width, session);
    if (encoder->dtype() == RF_F32) return session.pooled.data();
    session.gathered.resize(static_cast<size_t>(chunk.sequences * row_bytes()));
    from_floats(encoder->dtype(), chunk.sequences * width, session.pooled.data(), session.gathered.data());
    return session.gathered.data();
  }

  // The mean of the logits of each sequence's tokens.
  void mean_logits(const Chunk& chunk, const uint8_t* attend, float* out, Session& session) const {
    const int64_t columns = layers.logits();
    session.pooled.resize(static_cast<size_t>(chunk.tokens * columns));
    layers(chunk.tokens, chunk.hidden, info.hidden_size, session.pooled.data(), session.head);
    for (int64_t i = 0; i < chunk.sequences; ++i) {
      const int64_t begin = chunk.cu_seqlens[i];
      pool_sequence(Pooling::kMean, RF_F32, session.pooled.data() + begin * columns, chunk.cu_seqlens[i + 1] - begin,
                    columns, attend == nullptr ? nullptr : attend + begin, out + i * columns);
    }
  }

  // One vector per sequence of a chunk, with stride `stride`. pooled: [chunk.tokens] or nullptr, 0: left out.
  void pool(const Chunk& chunk, Pooling pooling, const uint8_t* pooled, float* out, int64_t stride,
            Session& session) const {
    const int64_t width = info.hidden_size;
    if (pooling == Pooling::kPooler) {
      std::vector<float>& vectors = session.pooled;
      vectors.resize(static_cast<size_t>(chunk.sequences * width));
      layers.pool(chunk.sequences, gather_ends(chunk, false, session), width, vectors.data(), session.head);
      for (int64_t i = 0; i < chunk.sequences; ++i) std::copy_n(vectors.data() + i * width, width, out + i * stride);
      return;
    }
    parallel_for(chunk.sequences, chunk.tokens > 256, [&](int64_t i) {
      const int64_t begin = chunk.cu_seqlens[i];
      pool_sequence(pooling, encoder->dtype(), chunk.hidden + begin * row_bytes(), chunk.cu_seqlens[i + 1] - begin,
                    width, pooled == nullptr ? nullptr : pooled + begin, out + i * stride);
    });
  }

  // The vocabulary's weights of a chunk's sequences, a few tokens at a time. attend: [chunk.tokens] or nullptr.
  void pool_logits(const Chunk& chunk, LexicalPooling pooling, const uint8_t* attend, float* out,
                   Session& session) const {
    constexpr int64_t kRows = 64, kColumns = 2048;
    const int64_t columns = layers.logits(), parts = (columns + kColumns - 1) / kColumns;
    std::fill_n(out, chunk.sequences * columns, 0.0F);
    session.logits.resize(static_cast<size_t>(std::min(kRows, chunk.tokens) * columns));
    const auto part_of = [&](float* row, int64_t part) {
      return std::span(row + part * kColumns, static_cast<size_t>(std::min(kColumns, columns - part * kColumns)));
    };
    int64_t sequence = 0;
    for (int64_t begin = 0; begin < chunk.tokens; begin += kRows) {
      const int64_t rows = std::min(kRows, chunk.tokens - begin);
      layers(rows, chunk.hidden + begin * row_bytes(), info.hidden_size, session.logits.data(), session.head);
      while (chunk.cu_seqlens[sequence + 1] <= begin) ++sequence;
      parallel_for(parts, rows * columns > (1 << 16), [&](int64_t part) {
        int64_t at = sequence;
        for (int64_t row = 0; row < rows; ++row) {
          while (chunk.cu_seqlens[at + 1] <= begin + row) ++at;
          if (attend != nullptr && attend[begin + row] == 0) continue;
          add_lexical(pooling, part_of(session.logits.data() + row * columns, part),
                      part_of(out + at * columns, part).data());
        }
      });
    }
    parallel_for(chunk.sequences, chunk.sequences * columns > (1 << 16), [&](int64_t i) {
      finish_lexical(pooling, std::span(out + i * columns, static_cast<size_t>(columns)));
    });
  }
};

void Model::Impl::open(const std::string& path, const ModelOptions& options) {
  const std::optional<std::string> gguf = gguf_path(path);
  const auto file = gguf ? std::make_shared<const io::GgufFile>(*gguf) : nullptr;
  const bool masked = options.head == ModelOptions::Head::kMaskedLm;  // of encoders alone
  const ModelConfig config = gguf     ? read_decoder_config(*gguf, *file)
                             : masked ? load_config(path)
                                      : load_any_config(path);
  for (const auto& [what, value] : {std::pair{"task", options.task}, {"adapter", options.adapter}}) {
    if (gguf && !value.empty()) fail<ArgumentError>("model", "{} must be absent for a GGUF file, got {}", what, value);
  }
  if (config.add_cross_attention) fail("model", "add_cross_attention must be false here, got true");
  const Head head = wanted_head(config, options.head);
  const Weights weights =
      gguf ? Weights(file, config, head) : Weights(path, config, head, options.warn, {options.task, options.adapter});
  for (const std::string& problem : config.problems) {
    if (options.warn) options.warn(problem);
  }
  const std::string prefix = encoder_prefix(config, head);
  info = info_of(config, head);
  encoder.emplace(config, path, weights, prefix, options.precision, options.warn);
  if (options.cache_precision != CachePrecision::kAuto && (head != Head::kCausalLm || !info.causal)) {
    fail<ArgumentError>("model", "cache_precision must be auto without a causal language model, got {} for {}",
                        name_in(kCachePrecisionNames, options.cache_precision), info.architecture);
  }
  encoder->set_cache_precision(options.cache_precision);
  if (!options.layer_weights.empty()) encoder->set_layer_weights(options.layer_weights);
  layers = HeadLayers(config, head, weights, prefix, options.precision);
  reads = head_reads(config, head);
  skips_padding = config.family == Family::kDecoder && config.pad_token_id >= 0;
  reads_types = config.type_vocab_size > 0;
}

Model::Model(const std::string& model_dir, const ModelOptions& options) : impl_(std::make_unique<Impl>()) {
  if (options.token_budget < 1) fail("model", "token_budget must be at least 1, got {}", options.token_budget);
  const io::WarningScope scope(options.warn);
  check_model_type(model_dir, Opens::kEncodersAndDecoders);
  impl_->token_budget = options.token_budget;
  impl_->open(model_dir, options);
#ifdef __GLIBC__
  malloc_trim(0);  // returns the memory of loading to the system
#endif
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelInfo& Model::info() const { return impl_->info; }

LoadedModel Model::loaded() const { return {*impl_->encoder, impl_->layers}; }

std::shared_ptr<const PositionTerms> Model::position_terms() const { return impl_->encoder->position().terms(); }

void Model::check_length(int64_t tokens) const {
  if (tokens < 1) fail(kModelWhere, "a sequence must have at least one token, got {}", tokens);
  impl_->encoder->check_length(tokens);
}

void Model::hidden(const Tokens& tokens, float* out) const {
  const int64_t width = impl_->info.hidden_size;
  impl_->for_chunks(tokens, [&](const Chunk& chunk, Session&) {
    to_floats(impl_->encoder->dtype(), chunk.tokens * width, chunk.hidden, out + chunk.first_token * width);
  });
}

void Model::pooled(const Tokens& tokens, Pooling pooling, float* out) const { pooled(tokens, {&pooling, 1}, out); }

void Model::pooled(const Tokens& tokens, std::span<const Pooling> poolings, float* out) const {
  const int64_t width = impl_->info.hidden_size, stride = width * static_cast<int64_t>(poolings.size());
  if (std::ranges::find(poolings, Pooling::kPooler) != poolings.end() && !impl_->layers.has_pooler()) {
    fail("model", "pooling by the pooler needs a BERT or a prefix language model with a pooler, got {} without one",
         impl_->info.architecture);
  }
  const std::span<const uint8_t> mask = tokens.pooled.empty() ? tokens.attend : tokens.pooled;
  impl_->for_chunks(tokens, [&](const Chunk& chunk, Session& session) {
    const uint8_t* pooled = mask.empty() ? nullptr : mask.data() + chunk.first_token;
    for (size_t i = 0; i < poolings.size(); ++i) {
      float* to = out + chunk.first_sequence * stride + static_cast<int64_t>(i) * width;
      impl_->pool(chunk, poolings[i], pooled, to, stride, session);
    }
  });
}

int64_t Model::logits_per_row() const { return impl_->layers.logits(); }

bool Model::logits_of_tokens() const { return impl_->reads == HeadReads::kTokens; }

void Model::logits(const Tokens& tokens, float* out) const {
  const int64_t columns = logits_per_row(), width = impl_->info.hidden_size;
  const bool of_tokens = logits_of_tokens();
  impl_->for_chunks(tokens, [&](const Chunk& chunk, Session& session) {
    float* const to = out + (of_tokens ? chunk.first_token : chunk.first_sequence) * columns;
    if (of_tokens) return impl_->layers(chunk.tokens, chunk.hidden, width, to, session.head);
    const uint8_t* const attend = tokens.attend.empty() ? nullptr : tokens.attend.data() + chunk.first_token;
    if (impl_->reads == HeadReads::kMeanLogits) return impl_->mean_logits(chunk, attend, to, session);
    const void* rows = impl_->gather_read(chunk, attend, session);
    impl_->layers(chunk.sequences, rows, width, to, session.head);
  });
}

void Model::lexical(const Tokens& tokens, const LexicalPooling& pooling, float* out) const {
  if (impl_->info.head != Head::kMaskedLm)
    fail("model", "weights of the vocabulary need a masked language model, got {}", impl_->info.architecture);
  const int64_t columns = logits_per_row();
  impl_->for_chunks(tokens, [&](const Chunk& chunk, Session& session) {
    const uint8_t* const attend = tokens.attend.empty() ? nullptr : tokens.attend.data() + chunk.first_token;
    impl_->pool_logits(chunk, pooling, attend, out + chunk.first_sequence * columns, session);
  });
}

void Model::vocabulary_logits(const Tokens& tokens, std::span<const int64_t> rows, float* out) const {
  if (!is_language_model(impl_->info.head))
    fail("model", "logits over the vocabulary need a language model, got {}", impl_->info.architecture);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t least = i == 0 ? 0 : rows[i - 1] + 1;
    if (rows[i] < least || rows[i] >= static_cast<int64_t>(tokens.ids.size()))
      fail(kModelWhere, "rows must ascend below the {} tokens, got {} at {}", tokens.ids.size(), rows[i], i);
  }
  const int64_t columns = logits_per_row();
  size_t next = 0;
  impl_->for_chunks(tokens, [&](const Chunk& chunk, Session& session) {
    const size_t begin = next;
    while (next < rows.size() && rows[next] < chunk.first_token + chunk.tokens) ++next;
    if (next == begin) return;
    const void* hidden = impl_->gather(chunk, rows.subspan(begin, next - begin), session);
    impl_->layers(static_cast<int64_t>(next - begin), hidden, impl_->info.hidden_size,
                  out + static_cast<int64_t>(begin) * columns, session.head);
  });
}

}  // namespace rf::engine
