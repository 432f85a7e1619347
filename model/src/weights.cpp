// Names, shapes and roles of the tensors that transformers' RoFormer and BERT classes save (spec R-HF-03), in the order
// of their modules, and the tensors of RoFormerV2's port. Letters: V vocabulary, E embedding_size, C hidden_size, F
// intermediate_size, D head size.
#include "rf/model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "names.h"
#include "rf/io/error.h"

namespace rf {
namespace {

class Builder {
 public:
  explicit Builder(const BlockSpec& block) : block_(block) {}
  void add(std::string name, std::vector<int64_t> shape, WeightRole role) {
    specs_.push_back({std::move(name), std::move(shape), role});
  }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias = true) {
    add(name + ".weight", {out, in}, WeightRole::kMatrix);
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

void add_attention(Builder& to, const std::string& name, const ModelConfig& c, bool has_norm = true) {
  const BlockSpec& block = c.block;
  const int64_t queries = c.query_width(), keys = c.key_width();
  if (block.fused_qkv != BlockSpec::Fused::kNone) {
    to.linear(name + ".self.query_key_value", queries + 2 * keys, c.hidden_size, block.qkv_bias);
  } else {
    to.linear(name + ".self.query", queries, c.hidden_size, block.qkv_bias);
    to.linear(name + ".self.key", keys, c.hidden_size, block.qkv_bias);
    to.linear(name + ".self.value", keys, c.hidden_size, block.qkv_bias);
  }
  if (block.query_value_bias) {
    to.add(name + ".self.q_bias", {queries}, WeightRole::kBias);
    to.add(name + ".self.v_bias", {keys}, WeightRole::kBias);
  }
  if (block.whole_query_key_norm) {
    to.norm(name + ".self.query_norm", queries);
    to.norm(name + ".self.key_norm", keys);
  }
  if (block.query_key_norm) {
    to.add(name + ".self.query_norm.weight", {c.head_dim()}, WeightRole::kNormGain);
    to.add(name + ".self.key_norm.weight", {c.head_dim()}, WeightRole::kNormGain);
  }
  to.linear(name + ".output.dense", c.hidden_size, queries, block.output_bias);
  if (has_norm) to.norm(name + ".output.LayerNorm", c.hidden_size);
  if (block.post_norm || block.attention_twice) to.norm(name + ".output.post_norm", c.hidden_size);
}

void add_experts(Builder& to, const std::string& layer, const ModelConfig& c) {
  const std::vector<int64_t> shape = {c.block.experts * c.intermediate_size, c.hidden_size};
  to.linear(layer + "intermediate.router", c.block.experts, c.hidden_size, false);
  for (const char* name : {"w1", "w2"}) to.add(layer + "intermediate.experts." + name, shape, WeightRole::kMatrix);
  to.add(layer + "output.experts.bias", {c.hidden_size}, WeightRole::kBias);
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
  to.norm(layer + "output.LayerNorm", c.hidden_size);
  if (c.block.post_norm) to.norm(layer + "output.post_norm", c.hidden_size);
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
  if (c.embedding_norm) to.norm(embeddings + "LayerNorm", c.embedding_size);
  if (c.projects_embeddings())
    to.linear(prefix + "embeddings_project", c.hidden_size, c.embedding_size, c.block.output_bias);
  if (has_position_table(c))
    to.add(prefix + "encoder.embed_positions.weight", {c.max_position_embeddings, c.head_dim()}, WeightRole::kTable);
  using Relative = PositionSpec::Relative;
  const PositionSpec& positions = c.positions;
  if (positions.relative == Relative::kBuckets)
    to.add(prefix + kRelativeBias, {positions.rows, c.num_attention_heads}, WeightRole::kEncodingBias);
  if (positions.relative == Relative::kDisentangled) {
    to.add(prefix + kRelativeRows, {positions.rows, c.hidden_size}, WeightRole::kEncoding);
    if (positions.relative_norm) to.norm(prefix + kRelativeNorm, c.hidden_size);
  }
  const bool projects = positions.relative == Relative::kDisentangled && !positions.shared_projections;
  for (int64_t l = 0; l < (c.block.shared ? 1 : c.num_hidden_layers); ++l) {
    const std::string layer = fmt::format("{}encoder.layer.{}.", prefix, l), self = layer + "attention.self.";
    add_attention(to, layer + "attention", c, l > 0 || c.block.first_attention_norm);
    if (projects && positions.content_to_position)
      to.linear(self + "pos_key_proj", c.hidden_size, c.hidden_size, c.block.qkv_bias);
    if (projects && positions.position_to_content) to.linear(self + "pos_query_proj", c.hidden_size, c.hidden_size);
    if (c.add_cross_attention) add_attention(to, layer + "crossattention", c);
    add_feed_forward(to, layer, c, c.block.has_experts(l));
  }
  if (c.final_norm) to.norm(prefix + "encoder.final_norm", c.hidden_size);
}

void add_language_model_head(Builder& to, const ModelConfig& c) {
  const HeadSpec spec = head_spec(c);
  using Bias = HeadSpec::VocabularyBias;
  if (spec.vocabulary_bias == Bias::kShared) to.add("cls.predictions.bias", {c.vocab_size}, WeightRole::kBias);
  const int64_t width = spec.transform_width > 0 ? spec.transform_width : c.embedding_size;
  if (spec.transform != HeadSpec::Transform::kNone)
    to.linear("cls.predictions.transform.dense", width, c.hidden_size, spec.transform_bias);
  if (spec.transform == HeadSpec::Transform::kTwoDense)
    to.linear("cls.predictions.transform.second", c.embedding_size, width, spec.transform_bias);
  if (spec.transform == HeadSpec::Transform::kFull) to.norm("cls.predictions.transform.LayerNorm", c.embedding_size);
  const std::string decoder = c.family == Family::kDecoder ? "lm_head" : "cls.predictions.decoder";
  if (!c.tie_word_embeddings) {
    to.linear(decoder, c.vocab_size, c.embedding_size, spec.vocabulary_bias != Bias::kNone);
  } else if (spec.vocabulary_bias == Bias::kOfDecoder) {
    to.add(decoder + ".bias", {c.vocab_size}, WeightRole::kBias);
  }
}

// Classification, choices and answers.
void add_classifier(Builder& to, const ModelConfig& c, Head head) {
  const HeadSpec spec = head_spec(c);
  if (before_last(c, head) == HeadSpec::Before::kDense) {
    to.linear("classifier.dense", c.hidden_size, c.hidden_size, spec.dense_bias);
    if (spec.dense_norm) to.norm("classifier.norm", c.hidden_size);
  }
  // Answers have a start and an end, for any num_labels.
  const int64_t logits = head == Head::kMultipleChoice ? 1 : head == Head::kQuestionAnswering ? 2 : c.num_labels;
  to.linear(last_layer(c, head), logits, c.hidden_size, spec.last_bias);
}

void add_pooler(Builder& to, const ModelConfig& c, Head head) {
  if (!has_pooler(c, head)) return;
  to.linear((head == Head::kNone ? "" : body_prefix(c)) + "pooler.dense", c.hidden_size, c.hidden_size);
}

}  // namespace

std::vector<WeightSpec> weight_specs(const ModelConfig& config, Head head) {
  Builder to(config.block);
  add_encoder(to, config, head == Head::kNone ? "" : body_prefix(config));
  add_pooler(to, config, head);
  switch (head) {
    case Head::kNone: break;
    case Head::kMaskedLm:
    case Head::kCausalLm: add_language_model_head(to, config); break;
    case Head::kPreTraining:
      add_language_model_head(to, config);
      to.linear(kPairLayer, 2, config.hidden_size);
      break;
    case Head::kSequenceClassification:
    case Head::kMultipleChoice:
    case Head::kTokenClassification:
    case Head::kQuestionAnswering: add_classifier(to, config, head); break;
  }
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

HeadSpec::Before before_last(const ModelConfig& config, Head head) {
  const HeadSpec spec = head_spec(config);
  switch (head) {
    case Head::kSequenceClassification: return spec.sequence;
    case Head::kMultipleChoice: return spec.choice;
    case Head::kTokenClassification: return spec.token;
    case Head::kQuestionAnswering: return spec.answer;
    default: return HeadSpec::Before::kNothing;
  }
}

std::string last_layer(const ModelConfig& config, Head head) {
  const bool classifies =
      head == Head::kSequenceClassification || head == Head::kMultipleChoice || head == Head::kTokenClassification;
  if (head == Head::kQuestionAnswering) return "qa_outputs";
  if (!classifies) return "";
  return before_last(config, head) == HeadSpec::Before::kDense ? "classifier.out_proj" : "classifier";
}

bool has_pooler(const ModelConfig& config, Head head) {
  if (head == Head::kPreTraining) return true;
  if (config.prefix_lm && (head == Head::kNone || head == Head::kCausalLm)) return true;
  if (head == Head::kNone) return head_spec(config).bare_pooler;
  return before_last(config, head) == HeadSpec::Before::kPooler;
}

bool has_learned_positions(const ModelConfig& config) {
  return config.positions.learned || model_type(config) == "bert";
}

bool has_position_table(const ModelConfig& config) {
  const std::string type = model_type(config);
  return type == "roformer" || type == "roformer_v2";
}

InitialValues initial_values(const ModelConfig& config, const WeightSpec& spec) {
  if (config.family != Family::kRoFormerV2) return {.deviation = config.initializer_range};
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
