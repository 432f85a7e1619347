// From a model's configuration to its position encoding (position.h).
#include "position.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "distance_buckets.h"
#include "python_encoding.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rotary_rows.h"

namespace rf::nn {

namespace {

EncodingShape encoding_shape(const ModelConfig& config) {
  return {.layers = config.num_hidden_layers,
          .heads = config.num_attention_heads,
          .head_dim = rotated_dim(config),
          .hidden_size = config.hidden_size,
          .input_size = config.embedding_size,
          .max_position_embeddings = config.max_position_embeddings,
          .first_row = config.positions.first_row,
          .causal = config.is_causal(),
          .initializer_range = config.initializer_range,
          .vocab_size = config.vocab_size};
}

void check_linear(const ModelConfig& config) {
  const Direction direction = config.is_decoder ? Direction::kCausal : Direction::kBidirectional;
  const LinearAttentionConfig attention = parse_linear_attention(config.attention);
  for (const EncodingConfig& encoding : config.position_encodings) {
    if (is_python_encoding(encoding.type)) {
      fail("linear_attention", "position_encoding must be one of the program's with linear attention, got {}",
           encoding.type);
    }
    check_linear_attention(attention, encoding_entry(encoding.type).info, direction);
  }
  check_no_log_n(config);
  if (config.rotary_value) fail("model", "rotary_value must be false with linear attention, got true");
}

bool rotates_keys(Encoding& encoding) {
  return encoding.shared(make_positions(at::zeros({1}, at::kLong)), at::kFloat).terms.key.defined();
}

class StoredRotation : public LengthFreeEncoding {
 public:
  explicit StoredRotation(const at::Tensor& table_MD) : table_MD_(table_MD) {}

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    const auto rows_of = [&](const TokenPositions& tokens) { return rows(tokens.ids, dtype); };
    return {.terms = rotations_of(positions, "pairs", rows_of)};
  }

  void check_length(int64_t tokens) const override { check_last(tokens - 1); }

 private:
  void check_last(int64_t last) const {
    if (last < table_MD_.size(0)) return;
    fail("model", "positions must be below the {} rows of the checkpoint's own position table, got {}",
         table_MD_.size(0), last);
  }

  ops::Rotation rows(const at::Tensor& positions_BT, at::ScalarType dtype) const {
    if (positions_BT.numel() > 0) check_last(positions_BT.max().item<int64_t>());
    const at::Tensor rows_BTD = table_MD_.to(ops::row_dtype(dtype)).index({positions_BT});
    const int64_t half = rows_BTD.size(-1) / 2;
    return {.cos = rows_BTD.narrow(-1, half, half), .sin = rows_BTD.narrow(-1, 0, half)};
  }

  at::Tensor table_MD_;
};

// A rotation for each layer, out of several (ModernBERT).
class LayerRotations : public LengthFreeEncoding {
 public:
  explicit LayerRotations(const ModelConfig& config) {
    for (const RotarySettings& each : config.rotations) rotations_.emplace_back(each);
    for (const LayerSpec& layer : config.layers) of_layer_.push_back(layer.rotation);
  }

  bool changes_with_length() const override {
    return std::ranges::any_of(rotations_, [](const RotaryRows& rows) { return rows.changes_with_length(); });
  }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    require_one_axis("position_encoding", positions);
    Shared shared;
    for (const RotaryRows& rows : rotations_) {
      shared.parts.push_back({.terms = terms_on(rotary_terms(rows, positions, dtype), positions.device())});
    }
    return shared;
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections&) override {
    const int rotation = of_layer_.at(static_cast<size_t>(layer));
    return rotation < 0 ? Terms() : shared.parts.at(static_cast<size_t>(rotation)).terms;
  }

 private:
  std::vector<RotaryRows> rotations_;
  std::vector<int> of_layer_;
};

using Relative = PositionSpec::Relative;

bool is_relative(const ModelConfig& config) { return config.positions.relative != Relative::kNone; }

EncodingConfig relative_encoding(const ModelConfig& config) {
  const PositionSpec& spec = config.positions;
  if (spec.relative == Relative::kLinear) return {.type = "alibi", .options = "{}"};
  if (spec.relative == Relative::kBuckets) {
    if (spec.rows != PositionSpec::kBucketsRead) {
      fail("model", "relative_attention_num_buckets must be {} for training, since {} reads no more, got {}",
           PositionSpec::kBucketsRead, config.foreign_type, spec.rows);
    }
    return {.type = "t5", .options = R"({"scale":"sqrt"})"};
  }
  if (!spec.content_to_position && !spec.position_to_content)
    fail("model", "pos_att_type must name c2p, p2c or both for training with relative_attention, got neither");
  if (spec.buckets > kMaxLogBuckets)
    fail("model", "position_buckets must be at most {} for training, got {}", kMaxLogBuckets, spec.buckets);
  nlohmann::json options = {{"max_relative_positions", spec.max_distance}, {"share_att_key", spec.shared_projections}};
  options["pos_att_type"] = nlohmann::json::array();
  if (spec.content_to_position) options["pos_att_type"].push_back("c2p");
  if (spec.position_to_content) options["pos_att_type"].push_back("p2c");
  if (!spec.shared_projections) options["pos_key_bias"] = config.block.qkv_bias;
  if (spec.buckets > 0) options["position_buckets"] = spec.buckets;
  if (spec.relative_norm) {
    options["norm_rel_ebd"] = "layer_norm";
    options["layer_norm_eps"] = config.layer_norm_eps;
  }
  return {.type = "deberta", .options = options.dump()};
}

// The name in weight_specs() of a tensor of the encoding.
std::string listed_name(const std::string& prefix, const std::string& name) {
  constexpr std::pair<const char*, const char*> kTables[] = {
      {"weight", kLearnedPositions}, {"relative_attention_bias", kRelativeBias}, {"rel_embeddings", kRelativeRows}};
  for (const auto& [ours, listed] : kTables) {
    if (name == ours) return prefix + listed;
  }
  const size_t cut = name.rfind('_');
  const std::string part = name.substr(cut + 1), module = name.substr(0, cut);
  if (module == "norm") return fmt::format("{}{}.{}", prefix, kRelativeNorm, part);
  const size_t dot = module.rfind('.');  // layer.0.pos_key_proj
  return fmt::format("{}encoder.{}.attention.self.{}.{}", prefix, module.substr(0, dot), module.substr(dot + 1), part);
}

}  // namespace

std::vector<EncodingConfig> encodings_of(const ModelConfig& config) {
  if (!is_relative(config)) return config.position_encodings;
  std::vector<EncodingConfig> encodings;
  if (config.positions.learned) encodings.push_back({.type = "learned", .options = "{}"});
  encodings.push_back(relative_encoding(config));
  return encodings;
}

bool has_berts_positions(const ModelConfig& config) { return has_learned_positions(config) && !is_relative(config); }

std::vector<std::pair<std::string, std::string>> renamed_tensors(const ModelConfig& config, Head head,
                                                                 const Encoding& encoding) {
  std::vector<std::pair<std::string, std::string>> names;
  if (!is_relative(config)) return names;
  const bool is_combined = config.positions.learned;
  for (const auto& item : encoding.named_parameters()) {
    const std::string name = is_combined ? item.key().substr(item.key().find('.') + 1) : item.key();
    names.emplace_back(kEncodingPrefix + item.key(), listed_name(encoder_prefix(config, head), name));
  }
  return names;
}

std::shared_ptr<Encoding> make_position_encoding(const ModelConfig& config) {
  if (!config.rotations.empty()) return std::make_shared<LayerRotations>(config);
  if (has_linear_attention(config)) check_linear(config);
  const EncodingShape shape = encoding_shape(config);
  std::vector<std::shared_ptr<Encoding>> encodings;
  bool rotates = false;
  for (const EncodingConfig& encoding : encodings_of(config)) {
    encodings.push_back(make_encoding(encoding, shape));
    rotates = rotates || (config.rotary_value && rotates_keys(*encodings.back()));
  }
  if (config.rotary_value && !rotates) {
    fail("model", "rotary_value needs a position encoding that rotates, got {}", config.position_encodings[0].type);
  }
  return encodings.size() == 1 ? encodings[0] : combine_encodings(std::move(encodings));
}

std::shared_ptr<Encoding> make_stored_rotation(const at::Tensor& table_MD) {
  return std::make_shared<StoredRotation>(table_MD);
}

std::vector<std::shared_ptr<LinearAttention>> make_linear_attention(const ModelConfig& config) {
  std::vector<std::shared_ptr<LinearAttention>> layers;
  if (!has_linear_attention(config)) return layers;
  const LinearAttentionConfig attention = parse_linear_attention(config.attention);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers.push_back(std::make_shared<LinearAttention>(attention, config.head_dim(), layer));
  }
  return layers;
}

std::vector<WeightSpec> model_weight_specs(const ModelConfig& config, Head head, const Encoding& encoding,
                                           const std::vector<std::shared_ptr<LinearAttention>>& linear) {
  std::vector<WeightSpec> specs = weight_specs(config, head);
  if (has_berts_positions(config)) return specs;
  std::erase_if(specs, [](const WeightSpec& each) { return is_of_encoding(each.role); });
  for (const auto& item : encoding.named_parameters()) {
    specs.push_back({kEncodingPrefix + item.key(), item.value().sizes().vec(), encoding_role(item.key())});
  }
  for (const auto& item : encoding.named_buffers()) {
    specs.push_back({kEncodingPrefix + item.key(), item.value().sizes().vec(), WeightRole::kBuffer});
  }
  for (size_t layer = 0; layer < linear.size(); ++layer) {
    for (const auto& item : linear[layer]->named_buffers()) {
      specs.push_back({fmt::format("{}{}.{}", kLinearAttentionPrefix, layer, item.key()), item.value().sizes().vec(),
                       WeightRole::kBuffer});
    }
  }
  return specs;
}

}  // namespace rf::nn
