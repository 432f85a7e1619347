// The tensors of both layouts, once for all formats (rotary_decoder.h).
#include <fmt/format.h>

#include <string_view>

#include "rf/model/rotary_decoder.h"

namespace rf {

namespace {

enum class Parts { kWeight, kWeightAndBias };

class TensorList {
 public:
  explicit TensorList(const DecoderConfig& config) : config_(config), neox_(config.layout == DecoderLayout::kGptNeox) {}

  std::vector<DecoderTensor> all() {
    const int64_t width = config_.hidden_size;
    add("token_embd", neox_ ? "gpt_neox.embed_in" : "model.embed_tokens", {config_.vocab_size, width}, Parts::kWeight);
    for (int64_t i = 0; i < config_.layers; ++i) add_layer(i);
    add("output_norm", neox_ ? "gpt_neox.final_layer_norm" : "model.norm", {width}, norm_parts());
    const std::vector<std::string> heads = decoder_head_names(config_.layout);
    if (config_.tied_embeddings) {
      // One tensor under either name.
      tensors_.front().file_names.insert(tensors_.front().file_names.end(), heads.begin(), heads.end());
      return std::move(tensors_);
    }
    tensors_.push_back({.name = "output.weight", .file_names = heads, .shape = {config_.vocab_size, width}});
    return std::move(tensors_);
  }

 private:
  void add_layer(int64_t layer) {
    gguf_ = fmt::format("blk.{}.", layer);
    file_ = fmt::format("{}.layers.{}.", neox_ ? "gpt_neox" : "model", layer);
    const int64_t width = config_.hidden_size, queries = config_.query_width(), keys = config_.key_width(),
                  inner = config_.intermediate_size;
    const Parts qkv = parts(config_.qkv_bias), out = parts(config_.output_bias), mlp = parts(config_.mlp_bias);
    add("attn_norm", "input_layernorm", {width}, norm_parts());
    if (neox_) {
      add("attn_qkv", "attention.query_key_value", {queries + 2 * keys, width}, qkv);
      add("attn_output", "attention.dense", {width, queries}, out);
    } else {
      add("attn_q", "self_attn.q_proj", {queries, width}, qkv);
      add("attn_k", "self_attn.k_proj", {keys, width}, qkv);
      add("attn_v", "self_attn.v_proj", {keys, width}, qkv);
      add("attn_output", "self_attn.o_proj", {width, queries}, out);
    }
    add("ffn_norm", "post_attention_layernorm", {width}, norm_parts());
    if (!neox_) add("ffn_gate", "mlp.gate_proj", {inner, width}, mlp);
    add("ffn_up", neox_ ? "mlp.dense_h_to_4h" : "mlp.up_proj", {inner, width}, mlp);
    add("ffn_down", neox_ ? "mlp.dense_4h_to_h" : "mlp.down_proj", {width, inner}, mlp);
    gguf_.clear();
    file_.clear();
  }

  static Parts parts(bool bias) { return bias ? Parts::kWeightAndBias : Parts::kWeight; }
  Parts norm_parts() const { return parts(neox_); }

  void add(std::string_view name, std::string_view file_name, std::vector<int64_t> shape, Parts parts) {
    const int64_t rows = shape[0];
    add_part(name, file_name, "weight", std::move(shape));
    if (parts == Parts::kWeightAndBias) add_part(name, file_name, "bias", {rows});
  }
  void add_part(std::string_view name, std::string_view file_name, std::string_view part, std::vector<int64_t> shape) {
    tensors_.push_back({.name = fmt::format("{}{}.{}", gguf_, name, part),
                        .file_names = {fmt::format("{}{}.{}", file_, file_name, part)},
                        .shape = std::move(shape)});
  }

  const DecoderConfig& config_;
  const bool neox_;
  std::string gguf_, file_;  // what the names of a layer begin with
  std::vector<DecoderTensor> tensors_;
};

}  // namespace

std::vector<DecoderTensor> decoder_tensors(const DecoderConfig& config) { return TensorList(config).all(); }

std::vector<std::string> decoder_head_names(DecoderLayout layout) {
  if (layout == DecoderLayout::kGptNeox) return {"embed_out.weight", "lm_head.weight"};
  return {"lm_head.weight"};
}

bool is_decoder_buffer(const std::string& name) {
  constexpr std::string_view kBuffers[] = {"rotary_emb.inv_freq", "attention.bias", "attention.masked_bias"};
  for (const std::string_view buffer : kBuffers) {
    if (name.ends_with(std::string(".").append(buffer))) return true;
  }
  return false;
}

}  // namespace rf
