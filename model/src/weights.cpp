// Names, shapes and roles of the tensors that transformers' RoFormer and BERT classes save (spec R-HF-03), in the order
// of their modules, and the tensors of RoFormerV2's port. Letters: V vocabulary, E embedding_size, C hidden_size, F
// intermediate_size, D head size.
#include "rf/model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "names.h"
#include "rf/io/error.h"

namespace rf {
namespace {

static_assert(std::ranges::is_sorted(kHeads, {}, &HeadRow::head) &&
                  std::size(kHeads) == static_cast<size_t>(Head::kPreTraining) + 1,
              "kHeads must have a row for each head, in order");

class Builder {
 public:
  explicit Builder(const BlockSpec& block) : block_(block) {}
  void add(std::string name, std::vector<int64_t> shape, WeightRole role) {
    specs_.push_back({std::move(name), std::move(shape), role});
  }
  // A projection of a position encoding.
  void projection(const std::string& name, int64_t out, int64_t in, bool bias) {
    add(name + ".weight", {out, in}, WeightRole::kEncoding);
    if (bias) add(name + ".bias", {out}, WeightRole::kEncodingBias);
  }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias = true) {
    add(name + ".weight", {out, in}, WeightRole::kMatrix);
    specs_.back().transposed = block_.transposed && name.find("encoder.layer.") != std::string::npos;
    if (bias) add(name + ".bias", {out}, WeightRole::kBias);
  }
  void norm(const std::string& name, int64_t size) {
    if (block_.norm_weight) add(name + ".weight", {size}, WeightRole::kNormGain);
    if (block_.norm_bias) add(name + ".bias", {size}, WeightRole::kNormBias);
  }
  std::vector<WeightSpec> take() { return std::move(specs_); }

 private:
  const BlockSpec& block_;
  std::vector<WeightSpec> specs_;
};

void add_attention(Builder& to, const std::string& name, const ModelConfig& c, int64_t layer, bool has_norm) {
  const BlockSpec& block = c.block;
  const int64_t queries = c.query_width(layer), keys = c.key_width(layer);
  if (block.fused_qkv != BlockSpec::Fused::kNone) {
    to.linear(name + ".self.query_key_value", queries + 2 * keys, c.hidden_size, block.qkv_bias);
  } else {
    to.linear(name + ".self.query", queries, c.hidden_size, block.qkv_bias || block.query_value_bias);
    to.linear(name + ".self.key", keys, c.hidden_size, block.qkv_bias);
    to.linear(name + ".self.value", keys, c.hidden_size, block.qkv_bias || block.query_value_bias);
  }
  if (block.query_value_bias && block.fused_qkv != BlockSpec::Fused::kNone) {
    to.add(name + ".self.q_bias", {queries}, WeightRole::kBias);
    to.add(name + ".self.v_bias", {keys}, WeightRole::kBias);
  }
  if (block.whole_query_key_norm) {
    to.norm(name + ".self.query_norm", queries);
    to.norm(name + ".self.key_norm", keys);
  }
  const std::pair<const char*, int64_t> sides[] = {{"query", c.num_attention_heads}, {"key", c.key_heads(layer)}};
  for (const auto& [side, heads] : sides) {
    const std::string norm = fmt::format("{}.self.{}_norm", name, side);
    if (!block.query_key_norm) continue;
    switch (block.head_norm) {
      case BlockSpec::HeadNorm::kShared: to.norm(norm, c.head_dim(layer)); break;
      case BlockSpec::HeadNorm::kStacked:
        to.add(norm + ".weight", {heads, c.head_dim(layer)}, WeightRole::kNormGain);
        break;
      case BlockSpec::HeadNorm::kApart:
        for (int64_t h = 0; h < heads; ++h)
          to.add(fmt::format("{}.{}.weight", norm, h), {c.head_dim(layer)}, WeightRole::kNormGain);
    }
  }
  if (block.sinks) to.add(name + ".self.sinks", {c.num_attention_heads}, WeightRole::kBias);
  to.linear(name + ".output.dense", c.hidden_size, queries, block.output_bias);
  if (has_norm) to.norm(name + ".output.LayerNorm", c.hidden_size);
  if (block.post_norm || block.attention_twice) to.norm(name + ".output.post_norm", c.hidden_size);
}

void add_experts(Builder& to, const std::string& layer, const ModelConfig& c) {
  const int64_t count = c.block.experts, inner = c.expert_columns();
  const int64_t width = c.hidden_size;
  const std::string experts = layer + "intermediate.experts.";
  const auto matrix = [&](const std::string& name, std::vector<int64_t> shape) {
    to.add(name, std::move(shape), WeightRole::kMatrix);
  };
  const auto stacked = [&](const std::string& name, int64_t out, int64_t in) {
    matrix(experts + name + ".weight", {count, out, in});
    if (c.block.expert_bias) to.add(experts + name + ".bias", {count, out}, WeightRole::kBias);
  };
  to.linear(layer + "intermediate.router", count, width, c.block.expert_bias);
  switch (c.block.expert_files) {
    case BlockSpec::ExpertFiles::kEach:
      for (int64_t e = 0; e < count; ++e) {
        to.linear(fmt::format("{}{}.gate", experts, e), inner, width, false);
        to.linear(fmt::format("{}{}.up", experts, e), inner, width, false);
        to.linear(fmt::format("{}{}.down", experts, e), width, inner, false);
      }
      return;
    case BlockSpec::ExpertFiles::kStacked:
      stacked("gate", inner, width);
      stacked("up", inner, width);
      stacked("down", width, inner);
      return;
    case BlockSpec::ExpertFiles::kJoined:
      stacked("gate_up", 2 * inner, width);
      stacked("down", width, inner);
      return;
    case BlockSpec::ExpertFiles::kInterleaved:
      matrix(experts + "gate_up_proj", {count, width, 2 * inner});
      to.add(experts + "gate_up_proj_bias", {count, 2 * inner}, WeightRole::kBias);
      matrix(experts + "down_proj", {count, inner, width});
      to.add(experts + "down_proj_bias", {count, width}, WeightRole::kBias);
      return;
    case BlockSpec::ExpertFiles::kBlocks:
      for (const auto& [name, out, in] : {std::tuple("gate_up_proj", 2 * inner, width), {"down_proj", width, inner}}) {
        matrix(fmt::format("{}{}_blocks", experts, name), {count, out, in / kMxfp4Block, kMxfp4Block / 2});
        matrix(fmt::format("{}{}_scales", experts, name), {count, out, in / kMxfp4Block});
        to.add(fmt::format("{}{}_bias", experts, name), {count, out}, WeightRole::kBias);
      }
      return;
    case BlockSpec::ExpertFiles::kRows: break;
  }
  for (const char* name : {"w1", "w2"}) matrix(experts + name, {count * inner, width});
  to.add(layer + "output.experts.bias", {width}, WeightRole::kBias);
}

void add_feed_forward(Builder& to, const std::string& layer, const ModelConfig& c, bool has_experts) {
  const bool up_bias = c.block.mlp_bias && c.block.up_bias;
  if (has_experts) {
    add_experts(to, layer, c);
  } else if (c.block.fused_gate != BlockSpec::FusedGate::kNone) {
    to.linear(layer + "intermediate.gate_up", 2 * c.intermediate_size, c.hidden_size, up_bias);
  } else {
    if (c.block.gated) to.linear(layer + "intermediate.gate", c.intermediate_size, c.hidden_size, up_bias);
    to.linear(layer + "intermediate.dense", c.intermediate_size, c.hidden_size, up_bias);
  }
  if (!has_experts) to.linear(layer + "output.dense", c.hidden_size, c.intermediate_size, c.block.mlp_bias);
  if (c.block.input_norm && !c.block.shared_norm) to.norm(layer + "output.LayerNorm", c.hidden_size);
  if (c.block.post_norm) to.norm(layer + "output.post_norm", c.hidden_size);
}

void add_layer_input(Builder& to, const std::string& layer, const ModelConfig& c) {
  const int64_t width = c.block.layer_input_width;
  to.linear(layer + "layer_input.gate", width, c.hidden_size, false);
  to.linear(layer + "layer_input.down", c.hidden_size, width, false);
  to.norm(layer + "layer_input.norm", c.hidden_size);
}

void add_encoder(Builder& to, const ModelConfig& c, const std::string& prefix) {
  const std::string embeddings = prefix + "embeddings.";
  to.add(embeddings + "word_embeddings.weight", {c.vocab_size, c.embedding_size}, WeightRole::kEmbedding);
  if (has_learned_positions(c)) {
    const int64_t rows = c.max_position_embeddings + c.positions.first_row;
    to.add(prefix + kLearnedPositions, {rows, c.embedding_size}, WeightRole::kEncoding);
  }
  if (c.type_vocab_size > 0)
    to.add(embeddings + "token_type_embeddings.weight", {c.type_vocab_size, c.embedding_size}, WeightRole::kEmbedding);
  if (c.task_vocab_size > 0) to.add(prefix + kTaskTypes, {c.task_vocab_size, c.embedding_size}, WeightRole::kEmbedding);
  if (c.embedding_norm) to.norm(embeddings + "LayerNorm", c.embedding_norm_size());
  if (c.projects_embeddings())
    to.linear(prefix + "embeddings_project", c.hidden_size, c.embedding_size,
              c.block.output_bias && !c.block.embedding_norm_last);
  if (const int64_t taps = c.block.conv_kernel; taps > 0) {
    to.add(prefix + kConvolution + ".conv.weight", {c.hidden_size, c.hidden_size / c.block.conv_groups, taps},
           WeightRole::kMatrix);
    to.add(prefix + kConvolution + ".conv.bias", {c.hidden_size}, WeightRole::kBias);
    to.norm(prefix + kConvolution + ".LayerNorm", c.hidden_size);
  }
  if (has_position_table(c))
    to.add(prefix + "encoder.embed_positions.weight", {c.max_position_embeddings, c.head_dim()}, WeightRole::kTable);
  if (const int64_t width = c.block.layer_input_width; width > 0) {
    to.linear(prefix + kLayerInputs, c.num_hidden_layers * width, c.hidden_size, false);
    to.norm(prefix + kLayerInputNorm, width);
  }
  using Relative = PositionSpec::Relative;
  const PositionSpec& positions = c.positions;
  if (positions.relative == Relative::kBuckets)
    to.add(prefix + kRelativeBias, {positions.rows, c.num_attention_heads}, WeightRole::kEncodingBias);
  if (positions.relative == Relative::kDisentangled) {
    to.add(prefix + kRelativeRows, {positions.rows, c.hidden_size}, WeightRole::kEncoding);
    if (positions.relative_norm) {
      to.add(prefix + kRelativeNorm + ".weight", {c.hidden_size}, WeightRole::kEncoding);
      to.add(prefix + kRelativeNorm + ".bias", {c.hidden_size}, WeightRole::kEncodingBias);
    }
  }
  const bool projects = positions.relative == Relative::kDisentangled && !positions.shared_projections;
  for (int64_t l = 0; l < (c.block.shared ? 1 : c.num_hidden_layers); ++l) {
    const std::string layer = fmt::format("{}encoder.layer.{}.", prefix, l), self = layer + "attention.self.";
    add_attention(to, layer + "attention", c, l, c.block.has_attention_norm(l));
    if (projects && positions.content_to_position)
      to.projection(self + "pos_key_proj", c.hidden_size, c.hidden_size, c.block.qkv_bias);
    if (projects && positions.position_to_content)
      to.projection(self + "pos_query_proj", c.hidden_size, c.hidden_size, true);
    if (c.add_cross_attention) add_attention(to, layer + "crossattention", c, l, true);
    add_feed_forward(to, layer, c, c.has_experts(l));
    if (c.block.layer_input_width > 0) add_layer_input(to, layer, c);
    if (c.block.layer_scale) to.add(layer + "scale", {1}, WeightRole::kNormGain);
  }
  if (c.final_norm) to.norm(prefix + "encoder.final_norm", c.hidden_size);
  if (c.output_size > 0) to.linear(prefix + kOutputProjection, c.output_size, c.hidden_size, false);
}

std::string decoder_name(const ModelConfig& config) {
  return config.family == Family::kDecoder ? "lm_head" : "cls.predictions.decoder";
}

void add_head(Builder& to, const ModelConfig& c, Head head) {
  using Bias = HeadSpec::VocabularyBias;
  const std::string pooler = pooler_name(c, head);
  const bool is_tied = is_language_model(head) && c.tie_word_embeddings;
  const Bias bias = head_spec(c).vocabulary_bias;
  if (has_pooler(c, head)) to.linear(pooler, c.output_width(), c.output_width());
  if (is_language_model(head) && bias == Bias::kShared)
    to.add("cls.predictions.bias", {c.vocab_size}, WeightRole::kBias);
  for (const HeadStage& stage : head_stages(c, head)) {
    if (stage.linear == pooler) continue;
    if (!is_tied || stage.linear != decoder_name(c)) {
      to.linear(stage.linear, stage.outputs, stage.inputs, stage.bias);
    } else if (bias == Bias::kOfDecoder) {
      to.add(stage.linear + ".bias", {stage.outputs}, WeightRole::kBias);
    }
    if (!stage.norm.empty()) to.norm(stage.norm, stage.outputs);
  }
  if (head == Head::kPreTraining) to.linear(kPairLayer, 2, c.hidden_size);
}

HeadSpec::Before before_last(const ModelConfig& config, Head head) {
  const auto before = row_of(head).before;
  return before == nullptr ? HeadSpec::Before::kNothing : head_spec(config).*before;
}

std::vector<HeadStage> language_model_stages(const ModelConfig& c) {
  using Transform = HeadSpec::Transform;
  const HeadSpec spec = head_spec(c);
  const Activation activation = spec.transform_activation.value_or(c.hidden_act);
  const std::string transform = "cls.predictions.transform.";
  const int64_t width = spec.transform_width > 0 ? spec.transform_width : c.embedding_size;
  std::vector<HeadStage> stages;
  if (spec.transform != Transform::kNone)
    stages.push_back({transform + "dense", width, c.output_width(), spec.transform_bias});
  if (spec.transform == Transform::kTwoDense || spec.transform == Transform::kFull) stages[0].activation = activation;
  if (spec.transform == Transform::kTwoDense)
    stages.push_back({transform + "second", c.embedding_size, width, spec.transform_bias, activation});
  if (spec.transform == Transform::kFull) stages[0].norm = transform + "LayerNorm";
  const bool bias = spec.vocabulary_bias != HeadSpec::VocabularyBias::kNone;
  stages.push_back({decoder_name(c), c.vocab_size, c.embedding_size, bias});
  return stages;
}

int64_t columns_of(const ModelConfig& config, Head head) {
  const int64_t columns = row_of(head).columns;
  return columns == HeadRow::kVocabulary ? config.vocab_size
         : columns == HeadRow::kLabels   ? config.num_labels
                                         : columns;
}

}  // namespace

std::vector<WeightSpec> weight_specs(const ModelConfig& config, Head head) {
  Builder to(config.block);
  add_encoder(to, config, encoder_prefix(config, head));
  add_head(to, config, head);
  return to.take();
}

HeadSpec head_spec(const ModelConfig& config) {
  using Before = HeadSpec::Before;
  if (config.is_foreign()) return config.heads;
  if (config.family == Family::kBert) return {};
  HeadSpec spec = {.sequence = Before::kDense, .choice = Before::kNothing, .bare_pooler = false};
  if (config.family != Family::kRoFormerV2) return spec;
  const bool projects = config.projects_embeddings();
  spec.transform = projects ? HeadSpec::Transform::kProjection : HeadSpec::Transform::kNone;
  spec.transform_bias = false;
  spec.vocabulary_bias = HeadSpec::VocabularyBias::kNone;
  return spec;
}

HeadReads head_reads(const ModelConfig& config, Head head) {
  const HeadRow::Reads reads = row_of(head).reads;
  const std::string& pooling = config.classifier_pooling;
  if (reads == HeadRow::Reads::kTokens) return HeadReads::kTokens;
  if (reads == HeadRow::Reads::kChoice && !config.is_foreign()) {
    const bool is_last = before_last(config, head) == HeadSpec::Before::kNothing && config.summary_type == "last";
    return is_last ? HeadReads::kLastToken : HeadReads::kFirstToken;
  }
  if (pooling == "mean") return HeadReads::kMean;
  if (reads == HeadRow::Reads::kSequence && pooling == "last") return HeadReads::kLastToken;
  return reads == HeadRow::Reads::kSequence && pooling == "late" ? HeadReads::kMeanLogits : HeadReads::kFirstToken;
}

std::vector<HeadStage> head_stages(const ModelConfig& config, Head head) {
  using Before = HeadSpec::Before;
  using Drops = HeadSpec::Drops;
  if (is_language_model(head)) return language_model_stages(config);
  std::vector<HeadStage> stages;
  const HeadRow& row = row_of(head);
  if (row.before == nullptr) return stages;
  const HeadSpec spec = head_spec(config);
  const Before before = before_last(config, head);
  const int64_t width = config.output_width();
  HeadStage last{std::string(row.last), columns_of(config, head), width, spec.last_bias};
  const bool is_choice = row.reads == HeadRow::Reads::kChoice, drops = row.dropout && spec.drops != Drops::kNone;
  last.dropout = (drops && (!is_choice || before != Before::kNothing)) || (row.are_ends && spec.answer_drops);
  if (before == Before::kPooler) stages.push_back({pooler_name(config, head), width, width, true, Activation::kTanh});
  if (before == Before::kDense) {
    stages.push_back({.linear = "classifier.dense",
                      .outputs = width,
                      .inputs = width,
                      .bias = spec.dense_bias,
                      .activation = spec.activation.value_or(config.hidden_act),
                      .norm = spec.dense_norm ? "classifier.norm" : "",
                      .dropout = drops && !is_choice && spec.drops == Drops::kBoth});
    if (row.last == "classifier") last.linear = "classifier.out_proj";
  }
  stages.push_back(std::move(last));
  return stages;
}

std::string pooler_name(const ModelConfig& config, Head head) { return encoder_prefix(config, head) + "pooler.dense"; }

bool has_pooler(const ModelConfig& config, Head head) {
  if (head == Head::kPreTraining) return true;
  if (config.prefix_lm && (head == Head::kNone || head == Head::kCausalLm)) return true;
  if (head == Head::kNone) return head_spec(config).bare_pooler;
  return before_last(config, head) == HeadSpec::Before::kPooler;
}

std::vector<HeadOutput> head_outputs(const ModelConfig& config, Head head) {
  const HeadRow& row = row_of(head);
  const std::string width = std::to_string(config.output_width()), columns = std::to_string(columns_of(config, head));
  const std::string rows = row.reads == HeadRow::Reads::kChoice ? "rows" : "batch";
  std::vector<HeadOutput> outputs = {{"hidden", {rows, "tokens", width}}};
  if (has_pooler(config, head)) outputs.push_back({"pooled", {rows, width}});
  if (row.columns == 0) return outputs;
  if (row.are_ends) {
    for (const char* name : {"start_logits", "end_logits"}) outputs.push_back({name, {"batch", "tokens"}});
    return outputs;
  }
  std::vector<std::string> extents = {"batch", columns};
  if (row.reads == HeadRow::Reads::kTokens) extents.insert(extents.begin() + 1, "tokens");
  if (row.reads == HeadRow::Reads::kChoice) extents[1] = "choices";
  outputs.push_back({"logits", std::move(extents)});
  return outputs;
}

bool has_learned_positions(const ModelConfig& config) {
  return config.positions.learned || model_type(config) == "bert";
}

bool has_position_table(const ModelConfig& config) {
  const std::string type = model_type(config);
  return type == "roformer" || type == "roformer_v2";
}

InitialValues initial_values(const ModelConfig& config, const WeightSpec& spec) {
  if (config.family != Family::kRoFormerV2) {
    // The sum of the results of 2 L parts has the deviation of one, as in GPT-2 and ModernBERT.
    const bool is_summed = config.block.pre_norm && spec.name.ends_with("output.dense.weight");
    const double parts = is_summed ? 2 * static_cast<double>(config.num_hidden_layers) : 1;
    return {.deviation = config.initializer_range / std::sqrt(parts)};
  }
  const bool table_is_wide = spec.shape[0] > 10000 || spec.shape[0] < 10;
  const bool by_rows = spec.role == WeightRole::kEmbedding && !table_is_wide;
  const auto size = static_cast<double>(by_rows ? spec.shape[0] : spec.shape[1]);
  const auto layers = static_cast<double>(config.num_hidden_layers);
  return {.deviation = kTruncation / std::sqrt(size * layers), .truncated = true};
}

bool decays(WeightRole role, size_t dimensions) {
  switch (role) {
    case WeightRole::kMatrix:
    case WeightRole::kEmbedding: return true;
    case WeightRole::kEncoding: return dimensions > 1;
    default: return false;
  }
}

WeightRole encoding_role(const std::string& name) {
  const bool is_bias = name.ends_with("bias") || name == "gate" || name.ends_with(".gate");
  return is_bias ? WeightRole::kEncodingBias : WeightRole::kEncoding;
}

bool is_added_name(const std::string& name) {
  return name.starts_with(kEncodingPrefix) || name.starts_with(kLinearAttentionPrefix);
}

std::string body_prefix(const ModelConfig& config) {
  if (config.family == Family::kDecoder) return "";
  return config.family == Family::kBert ? "bert." : "roformer.";
}

std::string encoder_prefix(const ModelConfig& config, Head head) {
  return head == Head::kNone ? "" : body_prefix(config);
}

std::string tied_source(const ModelConfig& config, const std::string& name) {
  if (name == "cls.predictions.decoder.weight" || name == "lm_head.weight")
    return body_prefix(config) + "embeddings.word_embeddings.weight";
  const bool shares = head_spec(config).vocabulary_bias == HeadSpec::VocabularyBias::kShared;
  if (shares && name == "cls.predictions.decoder.bias") return "cls.predictions.bias";
  return "";
}

std::vector<float> position_table(int64_t rows, int64_t dim) {
  constexpr int64_t kMaxElements = int64_t{1} << 32;
  if (dim < 2 || dim % 2 != 0) fail("position_table", "dim must be even and at least 2, got {}", dim);
  if (rows < 0 || rows > kMaxElements / dim)
    fail("position_table", "rows times dim must be at most 2^32, got {} rows of {}", rows, dim);
  const int64_t half = dim / 2;
  std::vector<double> divisors(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i)
    divisors[i] = std::pow(10000.0, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
  std::vector<float> table(static_cast<size_t>(rows * dim));
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(m) / divisors[i];
      table[m * dim + i] = static_cast<float>(std::sin(angle));
      table[m * dim + half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

double position_table_error(std::span<const double> stored, int64_t dim) {
  const std::vector<float> computed = position_table(std::ssize(stored) / dim, dim);
  double worst = 0;
  for (size_t i = 0; i < computed.size(); ++i) {
    const double error = std::abs(stored[i] - static_cast<double>(computed[i]));
    worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
  }
  return worst;
}

std::optional<std::string> stored_table_warning(const std::string& model_dir, std::span<const double> stored,
                                                int64_t dim) {
  constexpr double kTolerance = 1e-6;
  const double difference = position_table_error(stored, dim);
  if (difference <= kTolerance) return std::nullopt;
  return fmt::format(
      "[load_model] encoder.embed_positions.weight in {} differs from the computed table by {:.3g} (more than {:.0e}); "
      "the stored one is used, and limits sequences to its {} rows",
      model_dir, difference, kTolerance, std::ssize(stored) / dim);
}

}  // namespace rf
