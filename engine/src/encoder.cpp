// The forward pass of the encoder (see the header).
#include "encoder.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "parallel_for.h"
#include "position.h"
#include "rf/engine/interrupt.h"
#include "rf/engine/names.h"
#include "rf/io/error.h"
#include "rf/io/half.h"
#include "rf/model/computed_encoding.h"

namespace rf::engine {

namespace {

constexpr const char* kEncoderWhere = "input";

// The buffers of a workspace.
enum Buffers { kHidden, kWide, kNarrow, kEmbedded, kMixed, kLayerInput };

// The check of the innermost InterruptScope of this thread (rf/engine/interrupt.h).
thread_local const std::function<void()>* check_of_thread = nullptr;

template <class T>
void check_range(const T* values, int64_t count, int64_t end, const char* name) {
  if (values == nullptr) return;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < 0 || values[i] >= end)
      fail(kEncoderWhere, "{} must be in 0..{}, got {} at token {}", name, end - 1, values[i], i);
  }
}

}  // namespace

void* Workspace::buffer(int index, int64_t bytes) {
  Buffer& buffer = buffers_[index];
  if (buffer.bytes < bytes) {
    buffer = {};  // before more memory is taken
    buffer = {make_aligned(bytes, Pages::kHuge), bytes};
  }
  return buffer.memory.get();
}

Encoder::Encoder(const ModelConfig& config, const std::string& model_dir, const Weights& weights,
                 const std::string& prefix, Precision precision, const std::function<void(const std::string&)>& warn,
                 std::vector<LayerInputs> inputs)
    : config_(config), dtype_(activation_dtype(precision)) {
  if (precision == Precision::kInt8 && inputs.empty()) {
    Encoder exact(config, model_dir, weights, prefix, Precision::kFloat32, warn);
    inputs = exact.measure_inputs();
    position_ = std::move(exact.position_);
  } else {
    position_ = Position::open(config, model_dir, weights, prefix, warn);
  }
  inputs.resize(static_cast<size_t>(config.num_hidden_layers));
  if (has_linear_attention(config)) linear_.emplace(config, weights, *position_);
  word_scale_ = static_cast<float>(word_scale(config) * config.embedding_scale);
  if (dtype_ == RF_BF16) word_scale_ = io::float_of_bf16(io::bf16_of_float(word_scale_));
  words_ = weights.rows(prefix + "embeddings.word_embeddings.weight");
  if (config.type_vocab_size > 0) types_ = weights.mapped_rows(prefix + "embeddings.token_type_embeddings.weight");
  if (config.task_vocab_size > 0) tasks_ = weights.mapped_rows(prefix + kTaskTypes);
  if (config.embedding_norm)
    embeddings_norm_ = read_norm(weights, prefix + "embeddings.LayerNorm", config, config.embedding_norm_size());
  if (config.projects_embeddings())
    embeddings_project_ = read_linear(weights, prefix + "embeddings_project", precision);
  if (config.block.conv_kernel > 0) {
    const std::string name = prefix + kConvolution;
    convolution_ = read_convolution(weights, name + ".conv", config.block.conv_groups, precision);
    convolution_norm_ = read_norm(weights, name + ".LayerNorm", config, config.hidden_size);
  }
  for (int64_t i = 0; i < (config.block.shared ? 1 : config.num_hidden_layers); ++i) {
    const LayerInputs& largest = inputs[static_cast<size_t>(i)];
    blocks_.push_back(read_block(weights, prefix, config, i, precision, largest));
    const std::string layer = fmt::format("{}encoder.layer.{}.", prefix, i);
    const bool has_experts = config.has_experts(i);
    experts_.push_back(has_experts ? Experts(weights, layer, config, precision, largest.feed_forward) : Experts());
  }
  if (config.final_norm) final_norm_ = read_norm(weights, prefix + "encoder.final_norm", config, config.hidden_size);
  if (config.output_size > 0)
    output_projection_ = read_linear(weights, prefix + kOutputProjection, of_small_layers(precision));
  const int64_t width = config.block.layer_input_width;
  if (width == 0) return;
  const TensorFloats rows = weights.floats(fmt::format("{}{}.weight", prefix, kLayerInputs));
  const float* from = rows.get();
  for (Block& block : blocks_) {
    block.layer_input = Linear(precision, config.hidden_size, width, from, {});
    from += width * config.hidden_size;
  }
}

void Encoder::check(const EncoderInput& input) const {
  const int64_t tokens = input.sequences.tokens;
  check_range(input.ids, tokens, config_.vocab_size, "token ids");
  check_range(input.types, tokens, config_.type_vocab_size, "token types");
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t position = input.sequences.positions[i];
    // The one after it must be a number too.
    if (position < 0 || position == INT64_MAX)
      fail(kEncoderWhere, "positions must be from 0 to 2^63 - 2, got {} at token {}", position, i);
  }
  position_->check(input.sequences);
}

std::vector<float> Encoder::word_scales(const EncoderInput& input) const {
  if (config_.dropped_id < 0) return {};
  std::vector<float> scales(static_cast<size_t>(input.sequences.tokens));
  for (int64_t text = 0; text < input.sequences.count; ++text) {
    const int64_t begin = input.sequences.cu_seqlens[text], end = input.sequences.cu_seqlens[text + 1];
    const auto is_kept = [&](int32_t id) { return id != config_.dropped_id; };
    const auto kept = static_cast<float>(std::count_if(input.ids + begin, input.ids + end, is_kept));
    for (int64_t t = begin; t < end; ++t) {
      scales[static_cast<size_t>(t)] = is_kept(input.ids[t]) ? word_scale_ * static_cast<float>(end - begin) / kept : 0;
    }
  }
  return scales;
}

void Encoder::embed(const EncoderInput& input, Workspace& work, void* x) const {
  const int64_t tokens = input.sequences.tokens, width = config_.embedding_size;
  auto* sum = static_cast<float*>(work.buffer(kEmbedded, tokens * width * 4));
  const std::vector<float> scales = word_scales(input);
  parallel_for(tokens, tokens > 64, [&](int64_t t) {
    words_(input.ids[t], sum + t * width);
    const float scale = scales.empty() ? word_scale_ : scales[static_cast<size_t>(t)];
    if (scale != 1) {
      for (int64_t i = 0; i < width; ++i) sum[t * width + i] *= scale;
    }
    if (!tasks_.empty()) tasks_.add_row(0, sum + t * width);
    if (!types_.empty()) types_.add_row(input.types == nullptr ? 0 : input.types[t], sum + t * width);
  });
  Sequences with_ids = input.sequences;
  with_ids.ids = input.ids;
  position_->add_input(with_ids, sum, width);
  const bool norms_last = config_.block.embedding_norm_last;
  if (embeddings_norm_.columns > 0 && !norms_last) embeddings_norm_(RF_F32, tokens, sum, nullptr, sum);
  if (embeddings_project_.empty()) return from_floats(dtype_, tokens * width, sum, x);
  void* rounded = sum;
  if (dtype_ != RF_F32) {
    rounded = work.buffer(kWide, tokens * width * bytes_of(dtype_));
    from_floats(dtype_, tokens * width, sum, rounded);
  }
  embeddings_project_(tokens, rounded, width, x);
  if (norms_last) embeddings_norm_(dtype_, tokens, x, nullptr, x);
}

rf_attention_args Encoder::attention_args(int64_t layer, const void* qkv, void* out) const {
  const int64_t head_dim = config_.head_dim(layer), key_heads = config_.key_heads(layer),
                out_width = this->out_width(layer);
  const auto* parts = static_cast<const char*>(qkv);
  rf_attention_args args = {};
  args.struct_size = sizeof args;
  args.dtype = dtype_;
  args.heads = config_.num_attention_heads;
  args.key_heads = key_heads;
  args.head_dim = args.value_dim = head_dim;
  args.q = parts;
  args.k = parts + out_width * bytes_of(dtype_);
  args.v = parts + (out_width + key_heads * head_dim) * bytes_of(dtype_);
  args.q_stride_t = args.k_stride_t = args.v_stride_t = qkv_width(layer);
  args.q_stride_h = args.k_stride_h = args.v_stride_h = args.out_stride_h = head_dim;
  args.out = out;
  args.out_stride_t = out_width;
  args.scale = attention_scale();
  args.score_cap = config_.block.score_cap;
  if (config_.is_decoder) args.window = RF_WINDOW_RIGHT;
  if (const int64_t reach = window(layer); reach > 0) {
    args.window = RF_WINDOW_LEFT | RF_WINDOW_RIGHT;
    args.window_left = config_.is_decoder ? reach - 1 : reach;
    args.window_right = config_.is_decoder ? 0 : reach;
  }
  return args;
}

rf_attention_args Encoder::packed_args(int64_t layer, const EncoderInput& input, const PositionRows& rows,
                                       const void* qkv, void* out) const {
  const Sequences& sequences = input.sequences;
  rf_attention_args args = attention_args(layer, qkv, out);
  args.batch = 1;
  args.queries = args.keys = sequences.tokens;
  args.q_stride_b = args.k_stride_b = args.v_stride_b = args.q_stride_t * sequences.tokens;
  args.out_stride_b = args.out_stride_t * sequences.tokens;
  args.query_positions = args.key_positions = sequences.positions;
  if (input.attend != nullptr) {
    args.mask = input.attend;
    args.mask_stride_s = 1;
  }
  args.cu_seqlens_q = args.cu_seqlens_k = sequences.cu_seqlens;
  args.sequences = sequences.count;
  position_->set_terms(layer, rows, args);
  return args;
}

void Encoder::norm_heads(int64_t layer, const Block& block, int64_t tokens, void* qkv) const {
  if (block.query_norm.columns == 0) return;
  const bool is_whole = config_.block.whole_query_key_norm;
  const int64_t query_rows = is_whole ? 1 : config_.num_attention_heads;
  const int64_t key_rows = is_whole ? 1 : config_.key_heads(layer);
  constexpr int64_t kFewTokens = 16;
  parallel_for(tokens, tokens > kFewTokens, [&](int64_t t) {
    char* const queries = static_cast<char*>(qkv) + t * qkv_width(layer) * bytes_of(dtype_);
    char* const keys = queries + config_.query_width(layer) * bytes_of(dtype_);
    char* const values = keys + config_.key_width(layer) * bytes_of(dtype_);
    block.query_norm(dtype_, query_rows, queries, nullptr, queries);
    block.key_norm(dtype_, key_rows, keys, nullptr, keys);
    if (block.value_norm.columns > 0) block.value_norm(dtype_, key_rows, values, nullptr, values);
  });
}

// y = down(activation(up(x))), or with a gate down(activation(gate(x)) * up(x)).
void Encoder::feed_forward(const Block& block, int64_t tokens, const void* x, void* wide, void* y) const {
  const int64_t inner = config_.intermediate_size;
  if (block.up.is_gated()) {
    block.up(tokens, x, config_.hidden_size, wide);
  } else if (config_.block.gated) {
    block.up(tokens, x, config_.hidden_size, wide);
    multiply_by_gate(config_.hidden_act, dtype_, tokens, inner, wide);
  } else {
    block.up(tokens, x, config_.hidden_size, wide, config_.hidden_act);
  }
  block.down(tokens, wide, config_.block.gated && !block.up.is_gated() ? 2 * inner : inner, y);
}

void Encoder::layer_input(const Block& block, int64_t tokens, const void* embeddings, const void* x, void* wide,
                          void* y) const {
  const int64_t width = config_.block.layer_input_width, hidden = config_.hidden_size;
  void* const own = static_cast<char*>(wide) + tokens * width * bytes_of(dtype_);
  block.layer_input(tokens, embeddings, hidden, own);
  block.layer_input_norm(dtype_, tokens, own, nullptr, own);
  block.layer_gate(tokens, x, hidden, wide);
  activate(config_.hidden_act, dtype_, tokens, width, wide, width, own);
  block.layer_down(tokens, wide, width, y);
  block.layer_norm(dtype_, tokens, y, nullptr, y);
}

void Encoder::convolve(const EncoderInput& input, const void* embeddings, void* x, void* wide, void* narrow) const {
  const int64_t tokens = input.sequences.tokens, taps = config_.block.conv_kernel;
  const auto bytes = static_cast<size_t>(config_.hidden_size * bytes_of(dtype_));
  parallel_for(input.sequences.count, tokens > 64, [&](int64_t i) {
    const int64_t begin = input.sequences.cu_seqlens[i], end = input.sequences.cu_seqlens[i + 1];
    char* to = static_cast<char*>(wide) + static_cast<size_t>(begin * taps) * bytes;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t s = t - taps / 2; s <= t + taps / 2; ++s, to += bytes) {
        const bool is_read = s >= begin && s < end && (input.attend == nullptr || input.attend[s] != 0);
        is_read ? std::memcpy(to, static_cast<const char*>(embeddings) + static_cast<size_t>(s) * bytes, bytes)
                : std::memset(to, 0, bytes);
      }
    }
  });
  convolution_(tokens, wide, convolution_.in(), narrow, config_.block.conv_act);
  convolution_norm_(dtype_, tokens, narrow, x, x);
}

void* Encoder::forward(const EncoderInput& input, Workspace& work, const Attend& attend) const {
  const int64_t tokens = input.sequences.tokens, hidden = config_.hidden_size, element = bytes_of(dtype_);
  const bool separate_gates =
      config_.block.gated && !std::ranges::all_of(blocks_, [](const Block& block) { return block.up.is_gated(); });
  const int64_t up_columns = config_.intermediate_size * (separate_gates ? 2 : 1);
  int64_t wide_columns =
      std::max({up_columns, config_.embedding_size, 2 * config_.block.layer_input_width, convolution_.in()});
  int64_t narrow_columns = std::max(hidden, config_.output_width());
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    wide_columns = std::max(wide_columns, qkv_width(layer));
    narrow_columns = std::max(narrow_columns, out_width(layer));
  }
  const int64_t narrow_bytes = tokens * narrow_columns * element;
  void* x = work.buffer(kHidden, tokens * hidden * element);
  void* wide = work.buffer(kWide, tokens * wide_columns * element);
  void* narrow = work.buffer(kNarrow, narrow_bytes);
  embed(input, work, x);
  void* embeddings = nullptr;  // of layer_input() and convolve()
  if (config_.block.layer_input_width > 0 || !convolution_.empty()) {
    embeddings = work.buffer(kLayerInput, tokens * hidden * element);
    std::memcpy(embeddings, x, static_cast<size_t>(tokens * hidden * element));
  }
  void* const normed = config_.block.pre_norm ? narrow : x;  // the input of attention and the feed-forward network
  void* const attended = config_.block.pre_norm ? work.buffer(kEmbedded, narrow_bytes) : wide;
  void* const fed = config_.block.pre_norm ? attended : narrow;
  const auto note = [&](std::vector<float> LayerInputs::*largest, size_t layer, const void* read) {
    if (work.measured != nullptr)
      note_largest(tokens, static_cast<const float*>(read), (*work.measured)[layer].*largest);
  };
  mix(0, tokens * hidden, x, work);
  const auto post_norm = [&](const Norm& norm, void* result) {
    if (norm.columns > 0) norm(dtype_, tokens, result, config_.block.attention_twice ? x : nullptr, result);
  };
  const void* pending = nullptr;  // a result that x is still to be increased by
  // normed = norm(x), after `pending` has been added to x.
  const auto norm_sum = [&](const Norm& norm, void* to) {
    pending == nullptr ? norm(dtype_, tokens, x, nullptr, to)
                       : norm(dtype_, tokens, pending, x, to, to == x ? nullptr : x);
    pending = nullptr;
  };
  const auto add_pending = [&] {
    if (pending != nullptr) add(dtype_, tokens * hidden, pending, x);
    pending = nullptr;
  };
  const auto layers = static_cast<size_t>(config_.num_hidden_layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    check_interrupt();
    const size_t i = config_.block.shared ? 0 : layer;  // of its weights
    const Block& block = blocks_[i];
    const bool normed_first = config_.block.pre_norm && block.attention_norm.columns > 0;
    normed_first ? norm_sum(block.attention_norm, normed) : add_pending();
    const void* const attended_input = normed_first ? normed : x;
    note(&LayerInputs::attention, i, attended_input);
    block.qkv(tokens, attended_input, hidden, wide);
    norm_heads(static_cast<int64_t>(layer), block, tokens, wide);
    attend(static_cast<int64_t>(layer), wide, narrow);
    block.attention_output(tokens, narrow, out_width(static_cast<int64_t>(layer)), attended);
    post_norm(block.attention_post_norm, attended);
    scale_and_cap(dtype_, tokens * hidden, config_.block.residual_scale, 0, attended);
    if (config_.block.parallel) block.feed_forward_norm(dtype_, tokens, x, nullptr, normed);
    config_.block.pre_norm ? void(pending = attended) : block.attention_norm(dtype_, tokens, attended, x, x);
    if (config_.block.parallel) add_pending();
    const bool sums = config_.block.pre_norm && !config_.block.parallel,
               is_normed = block.feed_forward_norm.columns > 0;
    if (sums) is_normed ? norm_sum(block.feed_forward_norm, normed) : add_pending();
    const void* const fed_input = is_normed ? normed : x;
    if (input.cross != nullptr) {
      note(&LayerInputs::cross, i, fed_input);
      cross_attention(static_cast<int64_t>(i), input, x, wide, narrow);
    }
    note(&LayerInputs::feed_forward, i, fed_input);
    experts_[i].empty() ? feed_forward(block, tokens, fed_input, wide, fed)
                        : experts_[i](dtype_, tokens, fed_input, fed, work.experts);
    post_norm(block.feed_forward_post_norm, fed);
    scale_and_cap(dtype_, tokens * hidden, config_.block.residual_scale, 0, fed);
    config_.block.pre_norm ? void(pending = fed) : block.feed_forward_norm(dtype_, tokens, fed, x, x);
    if (!block.layer_gate.empty()) {
      add_pending();
      layer_input(block, tokens, embeddings, x, wide, fed);
      pending = fed;
    }
    if (block.scale != 1) add_pending();
    scale_and_cap(dtype_, tokens * hidden, block.scale, 0, x);
    if (layer == 0 && !convolution_.empty()) convolve(input, embeddings, x, wide, narrow);
    if (layer + 1 == layers) break;
    if (!layer_weights_.empty()) add_pending();
    mix(layer + 1, tokens * hidden, x, work);
  }
  final_norm_.columns > 0 ? norm_sum(final_norm_, x) : add_pending();
  mix(layers, tokens * hidden, x, work);
  if (output_projection_.empty()) return x;
  output_projection_(tokens, x, hidden, narrow);
  return narrow;
}

void Encoder::set_layer_weights(std::vector<float> weights) {
  if (config_.output_size > 0)
    fail("model", "a model whose hidden states are projected must be without layer weights, got some");
  const auto states = static_cast<size_t>(config_.num_hidden_layers + 1);
  if (weights.size() != states)
    fail("model", "layer weights must be those of {} hidden states, got {}", states, weights.size());
  layer_weights_ = std::move(weights);
}

void Encoder::mix(size_t state, int64_t elements, void* x, Workspace& work) const {
  if (layer_weights_.empty()) return;
  auto* const sum = static_cast<float*>(work.buffer(kMixed, 2 * elements * 4));
  float* const floats = sum + elements;
  to_floats(dtype_, elements, x, floats);
  for (int64_t i = 0; i < elements; ++i) sum[i] = layer_weights_[state] * floats[i] + (state == 0 ? 0 : sum[i]);
  if (state + 1 == layer_weights_.size()) from_floats(dtype_, elements, sum, x);
}

const int64_t* Encoder::prefixes(const EncoderInput& input, Workspace& work) const {
  if (!config_.prefix_lm) return nullptr;
  work.prefixes.clear();
  for (int64_t i = 0; i < input.sequences.count; ++i) {
    const int64_t begin = input.sequences.cu_seqlens[i], end = input.sequences.cu_seqlens[i + 1];
    int64_t t = begin;
    while (t < end && (input.types == nullptr || input.types[t] == 0)) ++t;
    work.prefixes.push_back(t - begin);
  }
  return work.prefixes.data();
}

void* Encoder::encode(const EncoderInput& input, Workspace& work) const {
  position_->prepare(input.sequences, work.rows);
  const int64_t* const prefix = prefixes(input, work);
  const auto attend = [&](int64_t layer, const void* qkv, void* out) {
    rf_attention_args args = packed_args(layer, input, work.rows, qkv, out);
    args.prefix = prefix;
    linear_ ? (*linear_)(layer, args, work.features) : run_attention(layer, args, work);
  };
  return forward(input, work, std::cref(attend));
}

int64_t Encoder::readable_length(int64_t most) const {
  while (most > 1) {
    try {
      check_length(most);
      break;
    } catch (const Error&) {
      most /= 2;
    }
  }
  return most;
}

std::vector<LayerInputs> Encoder::measure_inputs(const Encoder* source) const {
  constexpr int64_t kSequences = 8, kMaxTokens = 32;
  const int64_t readable = readable_length(kMaxTokens);
  const int64_t length = source == nullptr ? readable : source->readable_length(readable);
  std::mt19937 random(0);
  std::vector<int32_t> ids;
  std::vector<int64_t> positions, cu_seqlens{0};
  for (int64_t i = 0; i < kSequences; ++i) {
    for (int64_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(config_.vocab_size)));
      positions.push_back(t);
    }
    cu_seqlens.push_back(std::ssize(ids));
  }
  const std::vector<float> none(static_cast<size_t>(config_.hidden_size));
  std::vector<LayerInputs> inputs(static_cast<size_t>(config_.num_hidden_layers), {none, none, none});
  Workspace work;
  EncoderInput input{.sequences = {std::ssize(ids), kSequences, cu_seqlens.data(), positions.data()},
                     .ids = ids.data()};
  CrossInput cross{.tokens = std::ssize(ids)};
  KeyLists lists;
  AlignedMemory keys_values;
  if (source != nullptr) {
    keys_values = project_source(source->encode(input, work), cross.tokens);
    for (int64_t t = 0; t < cross.tokens; ++t) {
      lists.rows.push_back(t);
      lists.begins.push_back(t / length * length);
      lists.counts.push_back(length);
    }
    cross.keys_values = keys_values.get();
    cross.lists = &lists;
    input.cross = &cross;
  }
  work.measured = &inputs;
  encode(input, work);
  return inputs;
}

void Encoder::check_ids(std::span<const int32_t> ids) const {
  check_range(ids.data(), std::ssize(ids), config_.vocab_size, "token ids");
}

void Encoder::set_cache_precision(CachePrecision precision) {
  if (precision == CachePrecision::kAuto) return;
  if (linear_)
    fail<ArgumentError>("model", "cache_precision must be auto with linear attention, got {}",
                        name_in(kCachePrecisionNames, precision));
  cache_type_ = precision == CachePrecision::kInt8 ? RF_CACHE_INT8 : RF_CACHE_BF16;
}

std::unique_ptr<SequenceCache> Encoder::make_cache(int64_t sequences, int64_t capacity) const {
  if (!linear_) {
    return std::make_unique<KeyValueCache>(KeyValueCache::Shape{.layers = config_.num_hidden_layers,
                                                                .heads = config_.key_heads(),
                                                                .head_dim = config_.head_dim(),
                                                                .dtype = dtype_,
                                                                .type = cache_type_,
                                                                .sequences = sequences,
                                                                .capacity = capacity});
  }
  if (position_->changes_within(capacity)) {
    fail("generate",
         "with linear attention the rotation of a token must not change as its sequence grows, got one that changes "
         "within {} tokens",
         capacity);
  }
  return std::make_unique<LinearStates>(linear_->states_shape(sequences, capacity));
}

// The rules for positions depend only on the first and last position of a sequence.
void Encoder::check_length(int64_t tokens) const {
  const int64_t ends[] = {0, tokens - 1}, cu_seqlens[] = {0, 2};
  position_->check({.tokens = 2, .count = 1, .cu_seqlens = cu_seqlens, .positions = ends});
}

InterruptScope::InterruptScope(std::function<void()> check) : check_(std::move(check)), before_(check_of_thread) {
  check_of_thread = &check_;
}

InterruptScope::~InterruptScope() { check_of_thread = before_; }

void check_interrupt() {
  if (check_of_thread != nullptr) (*check_of_thread)();
}

}  // namespace rf::engine
