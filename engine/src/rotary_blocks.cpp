// Loading and computing the blocks of a rotary decoder (see the header).
#include "rotary_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel_for.h"
#include "rf/engine/interrupt.h"

namespace rf::engine {

namespace {

// The buffers of a workspace.
enum BlockBuffers { kStream, kWideRows, kNormed, kAdded };

class LayerReader {
 public:
  LayerReader(const DecoderWeights& weights, Precision precision)
      : weights_(weights), config_(weights.config()), precision_(precision) {}

  Norm norm(const std::string& name) const {
    std::vector<float> gain = weights_.vector(name + ".weight");
    return {.kind = config_.layout == DecoderLayout::kLlama ? NormKind::kRms : NormKind::kLayer,
            .columns = std::ssize(gain),
            .gain = std::move(gain),
            .bias = bias(name),
            .eps = config_.norm_eps};
  }

  // One product of several matrices with one input, [sum of outs, in].
  Linear linear(const std::vector<std::string>& names, int64_t in, const std::vector<int64_t>& outs,
                const std::vector<float>& largest = {}) const {
    int64_t rows = 0;
    for (const int64_t out : outs) rows += out;
    const Floats all = make_floats(rows * in);
    std::vector<float> added;
    float* to = all.get();
    for (size_t i = 0; i < names.size(); ++i, to += outs[i - 1] * in) {
      weights_.read(names[i] + ".weight", to);
      const std::vector<float> part = bias(names[i]);
      added.insert(added.end(), part.begin(), part.end());
    }
    return {precision_, in, rows, all.get(), std::move(added), largest};
  }

  // Queries, keys and values, in this order.
  Linear qkv(const std::string& layer, const std::vector<float>& largest) const {
    const int64_t in = config_.hidden_size, queries = config_.query_width(), keys = config_.key_width();
    if (config_.layout == DecoderLayout::kLlama)
      return linear({layer + "attn_q", layer + "attn_k", layer + "attn_v"}, in, {queries, keys, keys}, largest);
    const std::string name = layer + "attn_qkv";
    if (config_.fused_rows == FusedRows::kParts) return linear({name}, in, {queries + 2 * keys}, largest);
    const Floats by_head = make_floats(3 * queries * in), by_part = make_floats(3 * queries * in);
    weights_.read(name + ".weight", by_head.get());
    std::vector<float> added = bias(name), reordered(added.size());
    order_by_part(by_head.get(), in, by_part.get());
    if (!added.empty()) order_by_part(added.data(), 1, reordered.data());
    return {precision_, in, 3 * queries, by_part.get(), std::move(reordered), largest};
  }

 private:
  std::vector<float> bias(const std::string& name) const {
    return weights_.has(name + ".bias") ? weights_.vector(name + ".bias") : std::vector<float>{};
  }

  // Rows of `width` numbers, [heads, 3, head_dim] to [3, heads, head_dim].
  void order_by_part(const float* from, int64_t width, float* to) const {
    const int64_t part = config_.head_dim * width;
    for (int64_t head = 0; head < config_.heads; ++head) {
      for (int64_t which = 0; which < 3; ++which, from += part)
        std::copy_n(from, part, to + (which * config_.heads + head) * part);
    }
  }

  const DecoderWeights& weights_;
  const DecoderConfig& config_;
  Precision precision_;
};

}  // namespace

RotaryBlocks::RotaryBlocks(const DecoderWeights& weights, Precision precision,
                           const std::vector<LayerInputs>& largest_inputs)
    : config_(weights.config()), dtype_(activation_dtype(precision)), words_(weights.rows("token_embd.weight")) {
  const LayerReader reader(weights, precision);
  const int64_t width = config_.hidden_size, inner = config_.intermediate_size;
  for (int64_t i = 0; i < config_.layers; ++i) {
    const std::string name = fmt::format("blk.{}.", i);
    const LayerInputs& largest = largest_inputs[static_cast<size_t>(i)];
    const bool gated = config_.layout == DecoderLayout::kLlama;
    layers_.push_back(
        {.attention_norm = reader.norm(name + "attn_norm"),
         .feed_forward_norm = reader.norm(name + "ffn_norm"),
         .qkv = reader.qkv(name, largest.attention),
         .attention_output = reader.linear({name + "attn_output"}, config_.query_width(), {width}),
         .up = gated ? reader.linear({name + "ffn_gate", name + "ffn_up"}, width, {inner, inner}, largest.feed_forward)
                     : reader.linear({name + "ffn_up"}, width, {inner}, largest.feed_forward),
         .down = reader.linear({name + "ffn_down"}, inner, {width})});
  }
  final_norm_ = reader.norm("output_norm");
}

// y = down(activation(up(x))), or with a gate down(activation(gate(x)) * up(x)).
void RotaryBlocks::feed_forward(const Layer& layer, int64_t tokens, const void* x, void* wide, void* y) const {
  const int64_t inner = config_.intermediate_size;
  if (config_.layout == DecoderLayout::kGptNeox) {
    layer.up(tokens, x, config_.hidden_size, wide, config_.activation);
    return layer.down(tokens, wide, inner, y);
  }
  layer.up(tokens, x, config_.hidden_size, wide);
  multiply_by_gate(config_.activation, dtype_, tokens, inner, wide);
  layer.down(tokens, wide, 2 * inner, y);
}

void* RotaryBlocks::forward(const EncoderInput& input, Workspace& work, const Attend& attend) const {
  const int64_t tokens = input.sequences.tokens, hidden = config_.hidden_size, element = bytes_of(dtype_);
  const int64_t qkv = config_.query_width() + 2 * config_.key_width();
  const int64_t narrow = tokens * std::max(hidden, config_.query_width()) * element;
  const int64_t wide_columns = std::max({qkv, 2 * config_.intermediate_size, 2 * hidden});
  void* x = work.buffer(kStream, tokens * hidden * element);
  void* wide = work.buffer(kWideRows, tokens * wide_columns * element);
  void* normed = work.buffer(kNormed, narrow);
  void* added = work.buffer(kAdded, narrow);
  auto* const embedded = static_cast<float*>(wide);  // as large as two columns of 16 bits for each of its elements
  parallel_for(tokens, tokens > 64, [&](int64_t t) { words_(input.ids[t], embedded + t * hidden); });
  from_floats(dtype_, tokens * hidden, embedded, x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    check_interrupt();
    const Layer& layer = layers_[i];
    layer.attention_norm(dtype_, tokens, x, nullptr, normed);
    if (work.measured != nullptr) note_largest(tokens, static_cast<float*>(normed), (*work.measured)[i].attention);
    layer.qkv(tokens, normed, hidden, wide);
    attend(static_cast<int64_t>(i), wide, normed);
    layer.attention_output(tokens, normed, config_.query_width(), added);
    if (config_.parallel_residual) layer.feed_forward_norm(dtype_, tokens, x, nullptr, normed);
    add(dtype_, tokens * hidden, added, x);
    if (!config_.parallel_residual) layer.feed_forward_norm(dtype_, tokens, x, nullptr, normed);
    if (work.measured != nullptr) note_largest(tokens, static_cast<float*>(normed), (*work.measured)[i].feed_forward);
    feed_forward(layer, tokens, normed, wide, added);
    add(dtype_, tokens * hidden, added, x);
  }
  final_norm_(dtype_, tokens, x, nullptr, x);
  return x;
}

Linear read_decoder_head(const DecoderWeights& weights, Precision precision) {
  const DecoderConfig& config = weights.config();
  const std::string name = config.tied_embeddings ? "token_embd" : "output";
  return LayerReader(weights, precision).linear({name}, config.hidden_size, {config.vocab_size});
}

}  // namespace rf::engine
