// Finding and reading the weights of a rotary decoder (see the header).
#include "decoder_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "parallel_for.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "weights.h"

namespace rf::engine {

namespace {

constexpr const char* kDecoderWeightsWhere = "load_model";
constexpr int64_t kParallelRead = 65536;  // elements

// Tables of frequencies, which the rotation's report reads.
bool is_rope_factor(const std::string& name) {
  return name == "rope_freqs.weight" || name.starts_with("rope_factors_");
}

}  // namespace

DecoderWeights::DecoderWeights(const std::string& path) {
  const std::optional<std::string> gguf = gguf_path(path);
  gguf ? open_gguf(*gguf) : open_directory(path);
}

// A separate head in a file whose config.json ties it.
void DecoderWeights::untie_stored_head() {
  if (!config_.tied_embeddings) return;
  const std::string embedding = decoder_tensors(config_).front().file_names.front();
  if (!files_->tensors().contains(embedding)) return;
  for (const std::string& head : decoder_head_names(config_.layout)) {
    if (!files_->tensors().contains(head)) continue;
    const std::optional<std::string> warning = untied_warning(*files_, head, embedding);
    if (!warning) continue;
    config_.problems.push_back(*warning);
    config_.tied_embeddings = false;
  }
}

void DecoderWeights::open_directory(const std::string& model_dir) {
  config_ = read_decoder_config(model_dir);
  files_ = std::make_shared<CheckpointFiles>(model_dir, kDecoderWeightsWhere);
  untie_stored_head();
  std::set<std::string> used;
  for (const DecoderTensor& wanted : decoder_tensors(config_)) {
    const auto found = std::ranges::find_if(wanted.file_names,
                                            [&](const std::string& name) { return files_->tensors().contains(name); });
    if (found == wanted.file_names.end())
      fail(kDecoderWeightsWhere, "the checkpoint must have {}, got none", wanted.file_names[0]);
    const io::TensorView& view = files_->at(*found);
    used.insert(*found);
    add(wanted, {.shape = view.shape, .view = &view});
  }
  const std::vector<std::string> heads = decoder_head_names(config_.layout);
  for (const auto& [name, view] : files_->tensors()) {
    const bool copy = config_.tied_embeddings && std::ranges::find(heads, name) != heads.end();
    if (!used.contains(name) && !copy && !is_decoder_buffer(name)) {
      fail(kDecoderWeightsWhere, "the checkpoint must have no tensor that {} does not use, got {}",
           config_.architecture, io::printable(name));
    }
  }
}

void DecoderWeights::open_gguf(const std::string& path) {
  gguf_ = std::make_shared<io::GgufFile>(path);
  config_ = read_decoder_config(path, *gguf_);
  std::set<std::string> used;
  for (const DecoderTensor& wanted : decoder_tensors(config_)) {
    const io::GgufTensor* const tensor = gguf_->find(wanted.name);
    if (tensor == nullptr) fail(path, "the file must have the tensor {}, got none", wanted.name);
    gguf_->check(*tensor);
    used.insert(wanted.name);
    std::vector<int64_t> shape(tensor->shape.rbegin(), tensor->shape.rend());
    add(wanted, {.shape = std::move(shape), .quantised = tensor});
  }
  for (const io::GgufTensor& tensor : gguf_->tensors()) {
    if (used.contains(tensor.name) || is_rope_factor(tensor.name)) continue;
    fail(path, "the file must have no tensor that a {} does not use, got {}", config_.model_type,
         io::printable(tensor.name));
  }
}

void DecoderWeights::add(const DecoderTensor& wanted, Tensor found) {
  if (found.shape != wanted.shape) {
    fail(config_.path, "{} must have the shape [{}], got [{}]", wanted.name, fmt::join(wanted.shape, ", "),
         fmt::join(found.shape, ", "));
  }
  tensors_.emplace(wanted.name, std::move(found));
}

const DecoderWeights::Tensor& DecoderWeights::at(const std::string& name) const { return tensors_.at(name); }

void DecoderWeights::read(const std::string& name, float* to) const {
  const Tensor& tensor = at(name);
  if (tensor.view != nullptr) {
    const TensorFloats values(files_, *tensor.view);
    std::copy_n(values.get(), values.size(), to);
    return;
  }
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= extent;
  const int64_t row = tensor.shape.back();
  parallel_for(count / row, count > kParallelRead, [&](int64_t i) {
    gguf_->read(*tensor.quantised, static_cast<uint64_t>(i * row), static_cast<uint64_t>(row), to + i * row);
  });
  io::release_pages(gguf_->bytes(*tensor.quantised));
  const float* bad = std::find_if(to, to + count, [](float x) { return !std::isfinite(x); });
  if (bad != to + count) fail(config_.path, "weights must be finite, got {} in {}[{}]", *bad, name, bad - to);
}

std::vector<float> DecoderWeights::vector(const std::string& name) const {
  std::vector<float> values(static_cast<size_t>(at(name).shape[0]));
  read(name, values.data());
  return values;
}

ReadRow DecoderWeights::rows(const std::string& name) const {
  const Tensor& tensor = at(name);
  const int64_t width = tensor.shape[1];
  read(name, make_floats(tensor.shape[0] * width).get());  // for its check
  if (tensor.view != nullptr) {
    return [rows = MappedRows(files_, *tensor.view)](int64_t row, float* to) { rows.read_row(row, to); };
  }
  return [gguf = gguf_, found = tensor.quantised, width](int64_t row, float* to) {
    gguf->read(*found, static_cast<uint64_t>(row * width), static_cast<uint64_t>(width), to);
  };
}

namespace {

// Rows of `width` numbers, [heads, 3, head_dim] to [3, heads, head_dim].
void order_by_part(const DecoderConfig& config, const float* from, int64_t width, float* to) {
  const int64_t part = config.head_dim * width;
  for (int64_t head = 0; head < config.heads; ++head) {
    for (int64_t which = 0; which < 3; ++which, from += part)
      std::copy_n(from, part, to + (which * config.heads + head) * part);
  }
}

// Queries, keys and values, in this order.
Linear read_qkv(const DecoderWeights& weights, const std::string& layer, Precision precision,
                const std::vector<float>& largest_inputs) {
  const DecoderConfig& config = weights.config();
  const int64_t in = config.hidden_size, queries = config.query_width(), keys = config.key_width();
  if (config.layout == DecoderLayout::kLlama) {
    return read_joined(weights, {layer + "attn_q", layer + "attn_k", layer + "attn_v"}, in, {queries, keys, keys},
                       precision, largest_inputs);
  }
  const std::string name = layer + "attn_qkv";
  if (config.fused_rows == FusedRows::kParts)
    return read_joined(weights, {name}, in, {queries + 2 * keys}, precision, largest_inputs);
  const Floats by_head = make_floats(3 * queries * in), by_part = make_floats(3 * queries * in);
  weights.read(name + ".weight", by_head.get());
  order_by_part(config, by_head.get(), in, by_part.get());
  const std::vector<float> bias = read_bias(weights, name);
  std::vector<float> ordered(bias.size());
  if (!bias.empty()) order_by_part(config, bias.data(), 1, ordered.data());
  return {precision, in, 3 * queries, by_part.get(), std::move(ordered), largest_inputs};
}

}  // namespace

Norm read_norm(const DecoderWeights& weights, const std::string& name) {
  const DecoderConfig& config = weights.config();
  return {.kind = config.layout == DecoderLayout::kLlama ? NormKind::kRms : NormKind::kLayer,
          .columns = config.hidden_size,
          .gain = weights.vector(name + ".weight"),
          .bias = read_bias(weights, name),
          .eps = config.norm_eps};
}

Block read_block(const DecoderWeights& weights, int64_t layer, Precision precision, const LayerInputs& largest) {
  const DecoderConfig& config = weights.config();
  const std::string name = fmt::format("blk.{}.", layer);
  const int64_t width = config.hidden_size, inner = config.intermediate_size;
  const bool gated = config.layout == DecoderLayout::kLlama;
  const auto up = gated ? std::vector{name + "ffn_gate", name + "ffn_up"} : std::vector{name + "ffn_up"};
  return {.attention_norm = read_norm(weights, name + "attn_norm"),
          .feed_forward_norm = read_norm(weights, name + "ffn_norm"),
          .qkv = read_qkv(weights, name, precision, largest.attention),
          .attention_output = read_joined(weights, {name + "attn_output"}, config.query_width(), {width}, precision),
          .up = read_joined(weights, up, width, std::vector(up.size(), inner), precision, largest.feed_forward),
          .down = read_joined(weights, {name + "ffn_down"}, inner, {width}, precision)};
}

Linear read_decoder_head(const DecoderWeights& weights, Precision precision) {
  const DecoderConfig& config = weights.config();
  const std::string name = config.tied_embeddings ? "token_embd" : "output";
  return read_joined(weights, {name}, config.hidden_size, {config.vocab_size}, precision);
}

}  // namespace rf::engine
