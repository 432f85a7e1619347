// The forward pass of the encoder (see the header).
#include "encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "rf/io/error.h"
#include "status.h"

namespace rf::engine {

namespace {

constexpr const char* kWhere = "input";

// The buffers of a workspace.
enum Buffers { kHidden, kWide, kNarrow, kEmbedded };

Norm read_norm(const Weights& weights, const std::string& name, double eps) {
  return {weights.vector(name + ".weight"), weights.vector(name + ".bias"), eps};
}

Linear read_linear(const Weights& weights, const std::string& name, Precision precision) {
  const std::vector<int64_t>& shape = weights.view(name + ".weight").shape;
  return Linear(precision, shape[1], shape[0], weights.floats(name + ".weight").get(), weights.vector(name + ".bias"));
}

// Queries, keys and values by one product.
Linear read_qkv(const Weights& weights, const std::string& name, Precision precision, int64_t hidden) {
  const Floats all = make_floats(3 * hidden * hidden);
  std::vector<float> bias;
  float* to = all.get();
  for (const char* part : {"query", "key", "value"}) {
    const Floats weight = weights.floats(fmt::format("{}.{}.weight", name, part));
    to = std::copy_n(weight.get(), hidden * hidden, to);
    const std::vector<float> added = weights.vector(fmt::format("{}.{}.bias", name, part));
    bias.insert(bias.end(), added.begin(), added.end());
  }
  return Linear(precision, hidden, 3 * hidden, all.get(), std::move(bias));
}

template <class T>
void check_range(const T* values, int64_t count, int64_t end, const char* name) {
  if (values == nullptr) return;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < 0 || values[i] >= end) {
      fail(kWhere, "{} must be in 0..{}, got {} at token {}", name, end - 1, values[i], i);
    }
  }
}

}  // namespace

void Workspace::Free::operator()(void* memory) const {
  std::free(memory);
}

void* Workspace::buffer(int index, int64_t bytes) {
  Buffer& buffer = buffers_[index];
  if (buffer.bytes < bytes) {
    buffer.memory.reset();
    buffer.bytes = 0;
    const int64_t rounded = (bytes + 63) / 64 * 64;
    buffer.memory.reset(std::aligned_alloc(64, static_cast<size_t>(rounded)));
    if (buffer.memory == nullptr) throw std::bad_alloc();
    buffer.bytes = rounded;
  }
  return buffer.memory.get();
}

Encoder::Encoder(const ModelConfig& config, const std::string& model_dir, const Weights& weights,
                 const std::string& prefix, Precision precision, const std::function<void(const std::string&)>& warn)
    : config_(config), dtype_(activation_dtype(precision)) {
  if (config.attention.type != "softmax") {
    fail("model", "attention must be softmax here, got {}; linear attention runs under torch", config.attention.type);
  }
  if (config.add_cross_attention) fail("model", "add_cross_attention must be false here, got true");
  position_ = Position::open(config, model_dir, weights, prefix, warn);
  words_ = weights.rows(prefix + "embeddings.word_embeddings.weight");
  types_ = weights.rows(prefix + "embeddings.token_type_embeddings.weight");
  embeddings_norm_ = read_norm(weights, prefix + "embeddings.LayerNorm", config.layer_norm_eps);
  if (config.embedding_size != config.hidden_size) {
    embeddings_project_ = read_linear(weights, prefix + "embeddings_project", precision);
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = fmt::format("{}encoder.layer.{}.", prefix, i);
    layers_.push_back({.qkv = read_qkv(weights, name + "attention.self", precision, config.hidden_size),
                       .attention_output = read_linear(weights, name + "attention.output.dense", precision),
                       .intermediate = read_linear(weights, name + "intermediate.dense", precision),
                       .output = read_linear(weights, name + "output.dense", precision),
                       .attention_norm = read_norm(weights, name + "attention.output.LayerNorm", config.layer_norm_eps),
                       .output_norm = read_norm(weights, name + "output.LayerNorm", config.layer_norm_eps)});
  }
}

void Encoder::check(const EncoderInput& input) const {
  const int64_t tokens = input.sequences.tokens;
  check_range(input.ids, tokens, config_.vocab_size, "token ids");
  check_range(input.types, tokens, config_.type_vocab_size, "token types");
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t position = input.sequences.positions[i];
    if (position < 0) fail(kWhere, "positions must be at least 0, got {} at token {}", position, i);
  }
  position_->check(input.sequences);
}

void Encoder::embed(const EncoderInput& input, Workspace& work, void* x) const {
  const int64_t tokens = input.sequences.tokens, width = config_.embedding_size;
  auto* sum = static_cast<float*>(work.buffer(kEmbedded, tokens * width * 4));
  std::memset(sum, 0, static_cast<size_t>(tokens * width) * sizeof(float));
#pragma omp parallel for schedule(static) if (tokens > 64)
  for (int64_t t = 0; t < tokens; ++t) {
    words_.add_row(input.ids[t], sum + t * width);
    types_.add_row(input.types == nullptr ? 0 : input.types[t], sum + t * width);
  }
  position_->add_input(input.sequences, sum, width);
  embeddings_norm_(RF_F32, tokens, sum, nullptr, sum);
  if (embeddings_project_.empty()) return from_floats(dtype_, tokens * width, sum, x);
  void* rounded = sum;
  if (dtype_ != RF_F32) {
    rounded = work.buffer(kWide, tokens * width * bytes_of(dtype_));
    from_floats(dtype_, tokens * width, sum, rounded);
  }
  embeddings_project_(tokens, rounded, width, x);
}

void Encoder::attend(int64_t layer, const EncoderInput& input, const PositionRows& rows, const void* qkv,
                     void* out) const {
  const Sequences& sequences = input.sequences;
  const int64_t hidden = config_.hidden_size, head_dim = config_.head_dim();
  const auto* parts = static_cast<const char*>(qkv);
  rf_attention_args args = {};
  args.struct_size = sizeof args;
  args.dtype = dtype_;
  args.batch = 1;
  args.queries = args.keys = sequences.tokens;
  args.heads = args.key_heads = config_.num_attention_heads;
  args.head_dim = args.value_dim = head_dim;
  args.q = parts;
  args.k = parts + hidden * bytes_of(dtype_);
  args.v = parts + 2 * hidden * bytes_of(dtype_);
  args.q_stride_t = args.k_stride_t = args.v_stride_t = 3 * hidden;
  args.q_stride_b = args.k_stride_b = args.v_stride_b = 3 * hidden * sequences.tokens;
  args.q_stride_h = args.k_stride_h = args.v_stride_h = args.out_stride_h = head_dim;
  args.out = out;
  args.out_stride_t = hidden;
  args.out_stride_b = hidden * sequences.tokens;
  args.query_positions = args.key_positions = sequences.positions;
  args.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  if (input.attend != nullptr) {
    args.mask = input.attend;
    args.mask_stride_s = 1;
  }
  if (config_.is_decoder) args.window = RF_WINDOW_RIGHT;
  args.cu_seqlens_q = args.cu_seqlens_k = sequences.cu_seqlens;
  args.sequences = sequences.count;
  position_->set_terms(layer, rows, args);
  check_status(rf_attention_forward(&args));
}

void* Encoder::encode(const EncoderInput& input, Workspace& work) const {
  const int64_t tokens = input.sequences.tokens, hidden = config_.hidden_size, element = bytes_of(dtype_);
  const int64_t wide_columns = std::max({3 * hidden, config_.intermediate_size, config_.embedding_size});
  void* x = work.buffer(kHidden, tokens * hidden * element);
  void* wide = work.buffer(kWide, tokens * wide_columns * element);
  void* narrow = work.buffer(kNarrow, tokens * hidden * element);
  position_->prepare(input.sequences, work.rows);
  embed(input, work, x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    layer.qkv(tokens, x, hidden, wide);
    attend(static_cast<int64_t>(i), input, work.rows, wide, narrow);
    layer.attention_output(tokens, narrow, hidden, wide);
    layer.attention_norm(dtype_, tokens, wide, x, x);
    layer.intermediate(tokens, x, hidden, wide, config_.hidden_act);
    layer.output(tokens, wide, config_.intermediate_size, narrow);
    layer.output_norm(dtype_, tokens, narrow, x, x);
  }
  return x;
}

}  // namespace rf::engine
