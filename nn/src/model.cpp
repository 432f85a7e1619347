// Parameters, heads and the public face of a model (model.h). Parameters are made from the list of model/weights.h, so
// names and shapes have one description; the structs below only hold handles to them. The encoder is in body.cpp.
#include "rf/nn/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>

#include "body.h"
#include "layer_parameters.h"
#include "layers.h"
#include "position.h"
#include "rf/io/error.h"
#include "rf/model/foreign_models.h"
#include "rf/nn/devices.h"
#include "rf/nn/seed_scope.h"
#include "tokens.h"

namespace rf::nn {

namespace {

std::mutex one_seed_at_a_time;

// N(0, deviation^2); truncated at two deviations, by the inverse of its distribution function.
at::Tensor& draw_values(at::Tensor& value, const InitialValues& initial) {
  if (!initial.truncated) return value.normal_(0, initial.deviation);
  constexpr double kCut = 2;
  const double share = std::erf(kCut / std::numbers::sqrt2);
  return value.uniform_(-share, share).erfinv_().mul_(initial.deviation * std::numbers::sqrt2);
}

at::Tensor initial_value(const WeightSpec& spec, const ModelConfig& config) {
  at::Tensor value = at::empty(spec.shape, at::kFloat);
  if (EmptyParameters::wanted()) return value;
  switch (spec.role) {
    case WeightRole::kMatrix: return draw_values(value, initial_values(config, spec));
    case WeightRole::kEmbedding:
      draw_values(value, initial_values(config, spec));
      if (spec.name.ends_with("word_embeddings.weight")) value[config.pad_token_id].zero_();
      return value;
    case WeightRole::kNormGain: return value.fill_(1);
    case WeightRole::kBias:
    case WeightRole::kNormBias: return value.zero_();
    case WeightRole::kEncoding:
    case WeightRole::kEncodingBias:
    case WeightRole::kTable:
    case WeightRole::kBuffer: break;
  }
  fail("model", "a weight must have a role that defines its initial value, got none for {}", spec.name);
}

// One for each forward pass, so that concurrent passes share nothing.
DropoutKey dropout_key_of(const Input& input, bool training) {
  if (input.dropout_key) return *input.dropout_key;
  if (!training) return {};
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return {.seed = at::check_generator<at::CPUGeneratorImpl>(generator)->random64()};
}

}  // namespace

SeedScope::SeedScope(uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
  one_seed_at_a_time.lock();
  const std::lock_guard lock(generator_.mutex());
  before_ = generator_.get_state();
  generator_.set_current_seed(seed);
}

SeedScope::~SeedScope() {
  {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  one_seed_at_a_time.unlock();
}

struct Model::Impl {
  ModelConfig config;
  Head head;
  std::vector<WeightSpec> specs;
  Body body;
  std::shared_ptr<Encoding> encoding;
  at::Tensor table_MD;  // a checkpoint's own, or undefined

  struct Stage {
    HeadStage spec;
    Linear product;
    Norm norm;
  };
  Linear pooler, pair_classifier;   // pair_classifier: of pretraining with pairs
  bool starts_with_pooler = false;  // the head's first stage, which is not of `stages`
  std::vector<Stage> stages;

  void bind_head(const Parameters& parameters, const std::string& prefix);
  // The mean over the tokens that may be attended to.
  static at::Tensor mean(const at::Tensor& x_BTC, const Input& input);
  // The input of heads of sequences, [B,C].
  at::Tensor read_vector(const at::Tensor& hidden_BTC, const Input& input) const;
  at::Tensor pooled(const at::Tensor& read_BC) const;
  at::Tensor logits(at::Tensor x, const Dropout& drop) const;
  // The input of a forward pass, with drawn positions in training.
  Input drawn(const Input& input, bool training, DropoutKey& key) const {
    if (!training || config.training_positions == TrainingPositions{}) return input;
    return with_training_positions(input, config.training_positions, key);
  }
};

void Model::Impl::bind_head(const Parameters& parameters, const std::string& prefix) {
  if (has_pooler(config, head)) pooler = parameters.linear(prefix + "pooler.dense");
  if (head == Head::kPreTraining) pair_classifier = parameters.linear(kPairLayer);
  for (HeadStage& stage : head_stages(config, head)) {
    if (stage.linear == pooler_name(config, head)) {
      starts_with_pooler = true;
      continue;
    }
    const bool is_tied = !parameters.has(stage.linear + ".weight");
    Linear product = parameters.linear(is_tied ? prefix + "embeddings.word_embeddings" : stage.linear);
    const bool own_bias = parameters.has(stage.linear + ".bias");
    if (is_tied && stage.bias) product.bias = parameters.at(own_bias ? stage.linear + ".bias" : "cls.predictions.bias");
    Norm norm = stage.norm.empty() ? Norm() : parameters.norm(stage.norm);
    stages.push_back({std::move(stage), std::move(product), std::move(norm)});
  }
}

at::Tensor Model::Impl::logits(at::Tensor x, const Dropout& drop) const {
  const double p = config.classifier_dropout.value_or(config.hidden_dropout_prob);
  for (const auto& [stage, product, norm] : stages) {
    if (stage.dropout) x = drop(x, p);
    x = stage.activation ? product(x, *stage.activation) : product(x);
    if (!stage.norm.empty()) x = norm(x);
  }
  return x;
}

at::Tensor Model::Impl::read_vector(const at::Tensor& hidden_BTC, const Input& input) const {
  const HeadReads reads = head_reads(config, head);
  if (reads == HeadReads::kMean) return mean(hidden_BTC, input);
  return hidden_BTC.select(1, reads == HeadReads::kLastToken ? -1 : 0);
}

at::Tensor Model::Impl::mean(const at::Tensor& x_BTC, const Input& input) {
  const at::Tensor read_BT = input.sequence_ids_BT.defined() ? input.sequence_ids_BT.ge(0)
                             : input.mask_BT.defined()       ? input.mask_BT.ne(0)
                                                             : at::Tensor();
  if (!read_BT.defined()) return x_BTC.mean(1);
  const at::Tensor read_BT1 = on_device(read_BT, x_BTC.device()).unsqueeze(2).to(x_BTC.scalar_type());
  return (x_BTC * read_BT1).sum(1) / read_BT1.sum(1).clamp_min(1);
}

at::Tensor Model::Impl::pooled(const at::Tensor& read_BC) const {
  const at::Tensor dense_BC = pooler(read_BC);
  return config.prefix_lm && !starts_with_pooler ? dense_BC : at::tanh(dense_BC);
}

Model::Model(const ModelConfig& config, Head head) : Model(config, head, nullptr, {}) {}

Model::Model(const ModelConfig& given, Head head, std::shared_ptr<Encoding> encoding,
             std::vector<std::shared_ptr<LinearAttention>> linear)
    : impl_(std::make_shared<Impl>()) {
  check_has_module(given);
  ModelConfig config = given;
  config.block = apart(config.block);
  impl_->config = config;
  impl_->head = head;
  for (const WeightSpec& spec : rf::weight_specs(config, head)) {
    if (spec.role == WeightRole::kTable || is_of_encoding(spec.role)) continue;
    register_dotted(*this, spec.name, initial_value(spec, config));
  }
  impl_->encoding = encoding ? encoding : make_position_encoding(config);
  const std::string prefix = encoder_prefix(config, head);
  if (has_berts_positions(config)) {
    register_dotted(*this, prefix + kLearnedPositions, impl_->encoding->parameters().at(0));
  } else {
    register_module("position_encoding", impl_->encoding);
  }
  if (!encoding) linear = make_linear_attention(config);
  impl_->specs = model_weight_specs(config, head, *impl_->encoding, linear);
  if (!linear.empty()) {
    const auto parent = register_module("linear_attention", std::make_shared<torch::nn::Module>("linear_attention"));
    for (size_t i = 0; i < linear.size(); ++i) parent->register_module(std::to_string(i), linear[i]);
  }
  std::map<std::string, at::Tensor> by_name;
  for (const auto& item : named_parameters()) by_name.emplace(item.key(), item.value());
  const Parameters parameters(std::move(by_name), config);
  impl_->body = Body(config, parameters, prefix);
  impl_->body.set_encoding(impl_->encoding);
  const InitialValues square = initial_values(config, {"", {config.hidden_size, config.hidden_size}, {}});
  impl_->body.fit_scores(square.deviation / (square.truncated ? kTruncation : 1));
  impl_->body.set_linear_attention(linear);
  impl_->bind_head(parameters, prefix);
}

const ModelConfig& Model::config() const { return impl_->config; }
Head Model::head() const { return impl_->head; }
const std::vector<WeightSpec>& Model::weight_specs() const { return impl_->specs; }
at::Tensor Model::position_table() const { return impl_->table_MD; }

void Model::set_position_table(const at::Tensor& table_MD) {
  const at::IntArrayRef shape = table_MD.sizes();
  if (table_MD.dim() != 2 || shape[1] != impl_->config.head_dim()) {
    fail("model", "a position table must be [rows, {}], got [{}]", impl_->config.head_dim(), fmt::join(shape, ", "));
  }
  impl_->table_MD = table_MD;
  impl_->body.set_encoding(make_stored_rotation(table_MD));
}

void Model::check_length(int64_t tokens) const { impl_->body.encoding().check_length(tokens); }

std::vector<ops::Terms> Model::position_terms(int64_t tokens) const { return impl_->body.position_terms(tokens); }

const Encoding& Model::position_encoding() const { return impl_->body.encoding(); }

at::Tensor Model::encode(const Input& given) {
  const Input input = with_layout_on_cpu(given);
  check_input(input, impl_->config, impl_->body.dtype());
  DropoutKey key = dropout_key_of(input, is_training());
  return impl_->body.encode(impl_->drawn(input, is_training(), key), {&key, is_training()});
}

at::Tensor Model::pooled(const at::Tensor& hidden_BTC) {
  if (!impl_->pooler.weight->defined()) {
    fail("model", "pooled vectors need a model with a pooler, got {}", architecture_of(impl_->config, impl_->head));
  }
  return impl_->pooled(hidden_BTC.select(1, 0));
}

at::Tensor Model::pair_logits(const at::Tensor& first_NC) {
  if (!impl_->pair_classifier.weight->defined()) {
    fail("model", "logits of pairs need a model of pretraining with pairs, got {}",
         architecture_of(impl_->config, impl_->head));
  }
  return impl_->pair_classifier(at::tanh(impl_->pooler(first_NC)));
}

at::Tensor Model::masked_lm_logits(const at::Tensor& hidden_NC) {
  if (!is_language_model(impl_->head)) {
    fail("model", "logits over the vocabulary need a language model, got {}",
         architecture_of(impl_->config, impl_->head));
  }
  if (hidden_NC.dim() == 0 || hidden_NC.size(-1) != impl_->config.hidden_size) {
    fail("input", "hidden states must be [.., {}], got [{}]", impl_->config.hidden_size,
         fmt::join(hidden_NC.sizes(), ", "));
  }
  return impl_->logits(hidden_NC, {});
}

Output Model::forward(const Input& given, int64_t num_choices) {
  const Input input = with_layout_on_cpu(given);
  const ModelConfig& config = impl_->config;
  const HeadRow& row = row_of(impl_->head);
  check_call(input, config, impl_->head, impl_->body.dtype(), num_choices);
  DropoutKey key = dropout_key_of(input, is_training());
  const Dropout drop{&key, is_training()};
  Output out;
  out.hidden_BTC = impl_->body.encode(impl_->drawn(input, is_training(), key), drop);
  const at::Tensor read_BC = impl_->read_vector(out.hidden_BTC, input);
  if (impl_->pooler.weight->defined()) out.pooled_BC = impl_->pooled(read_BC);
  if (row.columns == 0) return out;
  const bool averages = head_reads(config, impl_->head) == HeadReads::kMeanLogits;
  const bool by_token = averages || reads_tokens(impl_->head);
  at::Tensor logits = impl_->logits(impl_->starts_with_pooler ? out.pooled_BC
                                    : by_token                ? out.hidden_BTC
                                                              : read_BC,
                                    drop);
  if (averages) logits = Impl::mean(logits, input);
  if (row.are_ends) {
    out.start_logits_BT = logits.select(-1, 0);
    out.end_logits_BT = logits.select(-1, 1);
  } else {
    const bool chooses = row.reads == HeadRow::Reads::kChoice;
    out.logits = chooses ? logits.view({input.ids_BT.size(0) / num_choices, num_choices}) : logits;
  }
  return out;
}

}  // namespace rf::nn
