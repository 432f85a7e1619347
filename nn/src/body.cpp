// The encoder's forward pass (body.h).
#include "body.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <map>
#include <utility>

#include "attention_state.h"
#include "layer_parameters.h"
#include "rf/nn/devices.h"

namespace rf::nn {

namespace {

// Queries, keys and values in one tensor [B,T,3C]. Joins whichever is smaller: the weights, for one large product, or
// the results of three.
at::Tensor project(const Linear& q, const Linear& k, const Linear& v, const at::Tensor& hidden_BTC) {
  const int64_t rows = hidden_BTC.size(0) * hidden_BTC.size(1);
  if (rows < q.weight->size(0)) return at::cat({q(hidden_BTC), k(hidden_BTC), v(hidden_BTC)}, -1);
  Linear joined{Parameter(at::cat({q.weight, k.weight, v.weight})), Parameter()};
  if (q.bias->defined()) {
    at::Tensor of_keys = k.bias;
    if (!of_keys.defined()) of_keys = at::zeros({k.weight->size(0)}, q.bias->options());
    joined.bias = Parameter(at::cat({q.bias, of_keys, v.bias}));
  }
  return joined(hidden_BTC);
}

struct Heads {
  at::Tensor q_BTHD, k_BTHD, v_BTHD;
};
Heads split_heads(const at::Tensor& qkv_BTC, int64_t heads, int64_t key_heads) {
  const at::Tensor all = qkv_BTC.unflatten(-1, {heads + 2 * key_heads, -1});
  const auto parts = all.split_with_sizes({heads, key_heads, key_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

// Number of tokens in each row before the first token whose type is not 0, including padding on the left: int64 [B].
at::Tensor prefix_of(const Input& input) {
  const int64_t batch = input.ids_BT.size(0), tokens = input.ids_BT.size(1);
  if (!input.types_BT.defined()) return at::full({batch}, tokens, input.ids_BT.options());
  return input.types_BT.ne(0).cumsum(1).eq(0).sum(1);
}

// While it exists, the module is in evaluation mode.
class EvaluationScope {
 public:
  explicit EvaluationScope(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationScope() { module_.train(was_training_); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

}  // namespace

struct Body::Pass {
  const Dropout& drop;
  const Tokens& tokens;
  Shared shared;
  std::map<int64_t, AttentionContext> contexts;  // by the layers' windows
  std::optional<AttentionContext> cross_context;
  at::Tensor encoder_hidden_BSC;
};

void Body::fit_scores(double deviation) {
  if (encoding_->scales_scores() || EmptyParameters::wanted()) return;
  const at::NoGradGuard no_grad;
  const auto hidden = static_cast<double>(config_.hidden_size), head_dim = static_cast<double>(config_.head_dim());
  for (const Layer& layer : layers_) {
    at::Tensor query = layer.self.query.weight, key = layer.self.key.weight;
    query.mul_(1 / (std::sqrt(hidden * head_dim) * deviation));
    key.mul_(1 / (std::sqrt(hidden) * deviation));
  }
}

double Body::probabilities_dropout(const Pass& pass) const {
  return pass.drop.training ? config_.attention_probs_dropout_prob : 0;
}

Body::AttentionLayer Body::attention_layer(const Parameters& parameters, const std::string& name) {
  return {.query = parameters.linear(name + ".self.query"),
          .key = parameters.linear(name + ".self.key"),
          .value = parameters.linear(name + ".self.value"),
          .output = parameters.linear(name + ".output.dense"),
          .norm = parameters.norm(name + ".output.LayerNorm")};
}

Body::Body(const ModelConfig& config, const Parameters& parameters, const std::string& prefix)
    : config_(config), word_embeddings_(parameters.at(prefix + "embeddings.word_embeddings.weight")) {
  if (config.type_vocab_size > 0) type_embeddings_ = parameters.at(prefix + "embeddings.token_type_embeddings.weight");
  if (config.task_vocab_size > 0) task_embeddings_ = parameters.at(prefix + kTaskTypes);
  if (config.embedding_norm) embeddings_norm_ = parameters.norm(prefix + "embeddings.LayerNorm");
  if (config.projects_embeddings()) {
    embeddings_project_ = parameters.linear(prefix + "embeddings_project");
  }
  if (config.final_norm) final_norm_ = parameters.norm(prefix + "encoder.final_norm");
  for (int64_t i = 0; i < (config.block.shared ? 1 : config.num_hidden_layers); ++i) {
    const std::string name = fmt::format("{}encoder.layer.{}.", prefix, i);
    layers_.push_back({.self = attention_layer(parameters, name + "attention"),
                       .cross = {},
                       .gate = {},
                       .intermediate = parameters.linear(name + "intermediate.dense"),
                       .output = parameters.linear(name + "output.dense"),
                       .output_norm = parameters.norm(name + "output.LayerNorm")});
    if (config.block.gated) layers_.back().gate = parameters.linear(name + "intermediate.gate");
    if (config.add_cross_attention) layers_.back().cross = attention_layer(parameters, name + "crossattention");
  }
}

at::ScalarType Body::dtype() const {
  const at::ScalarType of_weights = word_embeddings_->scalar_type();
  return of_weights == at::kFloat ? autocast_dtype(word_embeddings_->device()).value_or(of_weights) : of_weights;
}

std::vector<Terms> Body::position_terms(int64_t tokens) const {
  const c10::NoGradGuard no_grad;
  const EvaluationScope evaluation(*encoding_);
  const NoAutocast no_autocast;
  const at::Device device = word_embeddings_->device();
  Positions positions = make_positions(at::arange(tokens, at::kLong));
  const Shared shared = encoding_->shared(positions.for_device(device), at::kFloat);
  at::Tensor token_numbers_BSN;  // of tokens that are 0
  if (const int64_t numbers = encoding_->numbers_per_token(); numbers > 0) {
    token_numbers_BSN = at::zeros({1, shared.positions.key.ids.size(1), numbers}, at::dtype(at::kFloat).device(device));
  }
  at::Tensor query_BTHD, key_BSHD;  // that are 0
  if (encoding_->reads_vectors()) {
    const auto zeros = [&](const at::Tensor& ids) {
      return at::zeros({1, ids.size(1), config_.num_attention_heads, config_.head_dim()},
                       at::dtype(at::kFloat).device(device));
    };
    query_BTHD = zeros(shared.positions.query.ids);
    key_BSHD = zeros(shared.positions.key.ids);
  }
  std::vector<Terms> layers;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    layers.push_back(terms_on(this->terms(i, shared, token_numbers_BSN, query_BTHD, key_BSHD), at::kCPU));
  }
  return layers;
}

at::Tensor Body::encode(const Input& input, const Dropout& drop) const {
  // Distances count the tokens of padding that a table of positions leaves out.
  const PositionSpec& spec = config_.positions;
  const bool counts_twice = spec.padding_id >= 0 && spec.relative != PositionSpec::Relative::kNone;
  const Tokens tokens = make_tokens(input, counts_twice ? -1 : spec.padding_id);
  std::map<int64_t, AttentionContext> contexts;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const int64_t reach = this->window(i);
    if (contexts.contains(reach)) continue;
    TokenWindow window;
    if (reach > 0) window.left = window.right = reach;
    if (config_.is_decoder) window.right = 0;
    if (config_.is_decoder && reach > 0) window.left = reach - 1;
    if (config_.prefix_lm) window.prefix = prefix_of(input);
    contexts.emplace(reach, self_attention_context(tokens, window));
  }
  Pass pass{.drop = drop,
            .tokens = tokens,
            .shared = encoding_->shared(tokens.positions, dtype()),
            .contexts = std::move(contexts),
            .cross_context = {},
            .encoder_hidden_BSC = input.encoder_hidden_BSC};
  if (config_.add_cross_attention) {
    const at::Tensor mask = input.encoder_mask_BS.defined() ? input.encoder_mask_BS.ne(0) : at::Tensor();
    pass.cross_context = cross_attention_context(input.ids_BT, input.encoder_hidden_BSC.size(1), mask);
  }
  const Tokens counted = counts_twice ? make_tokens(input, spec.padding_id) : tokens;
  at::Tensor hidden_BTC = embed(input, counted.positions.query, drop);
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) hidden_BTC = layer_forward(i, hidden_BTC, pass);
  return config_.final_norm ? final_norm_(hidden_BTC) : hidden_BTC;
}

at::Tensor Body::embed(const Input& input, const TokenPositions& positions, const Dropout& drop) const {
  at::Tensor sum_BTE =
      encoding_->words(at::embedding(word_embeddings_, input.ids_BT, config_.pad_token_id), input.ids_BT, positions);
  if (config_.embedding_scale != 1) sum_BTE = sum_BTE * config_.embedding_scale;
  if (config_.dropped_id >= 0) sum_BTE = with_dropped(sum_BTE, input, config_.dropped_id);
  if (type_embeddings_->defined()) {
    sum_BTE = sum_BTE + (input.types_BT.defined() ? at::embedding(type_embeddings_, input.types_BT)
                                                  : type_embeddings_->select(0, 0));
  }
  if (task_embeddings_->defined()) sum_BTE = sum_BTE + task_embeddings_->select(0, 0);
  if (const at::Tensor added = encoding_->input(positions, word_embeddings_->scalar_type()); added.defined())
    sum_BTE = sum_BTE + on_device(added, sum_BTE.device());
  const double p = config_.hidden_dropout_prob;
  const bool drops_first = config_.family == Family::kRoFormerV2;
  at::Tensor embedded_BTE = sum_BTE;
  if (drops_first) embedded_BTE = drop(embedded_BTE, p);
  if (config_.embedding_norm) embedded_BTE = embeddings_norm_(embedded_BTE);
  if (!drops_first) embedded_BTE = drop(embedded_BTE, p);
  return embeddings_project_.weight->defined() ? embeddings_project_(embedded_BTE) : embedded_BTE;
}

at::Tensor Body::layer_forward(int64_t index, const at::Tensor& hidden_BTC, const Pass& pass) const {
  const Layer& layer = this->layer(index);
  const double p = config_.hidden_dropout_prob;
  if (config_.block.pre_norm) {
    const AttentionLayer& self = layer.self;
    const at::Tensor read_BTC = config_.block.has_attention_norm(index) ? self.norm(hidden_BTC) : hidden_BTC;
    const at::Tensor attended_BTC = hidden_BTC + pass.drop(self.output(self_attention(index, read_BTC, pass)), p);
    return attended_BTC + pass.drop(layer.output(feed_forward(layer, layer.output_norm(attended_BTC))), p);
  }
  const auto joined = [&](const Linear& output, const Norm& norm, const at::Tensor& x, const at::Tensor& residual) {
    return norm(output(x), residual, pass.drop, p);
  };
  at::Tensor attended_BTC =
      joined(layer.self.output, layer.self.norm, self_attention(index, hidden_BTC, pass), hidden_BTC);
  if (pass.cross_context) {
    attended_BTC =
        joined(layer.cross.output, layer.cross.norm, cross_attention(index, attended_BTC, pass), attended_BTC);
  }
  return joined(layer.output, layer.output_norm, feed_forward(layer, attended_BTC), attended_BTC);
}

at::Tensor Body::feed_forward(const Layer& layer, const at::Tensor& hidden_BTC) const {
  if (!layer.gate.weight->defined()) return layer.intermediate(hidden_BTC, config_.hidden_act);
  return layer.gate(hidden_BTC, config_.hidden_act) * layer.intermediate(hidden_BTC);
}

Terms Body::terms(int64_t index, const Shared& shared, const at::Tensor& token_numbers_BSN,
                  const at::Tensor& query_BTHD, const at::Tensor& key_BSHD) const {
  const AttentionLayer& layer = this->layer(index).self;
  Terms terms = encoding_->terms(index, shared,
                                 {.query_weight = layer.query.weight,
                                  .key_weight = layer.key.weight,
                                  .value_weight = layer.value.weight,
                                  .query_bias = layer.query.bias,
                                  .key_bias = layer.key.bias,
                                  .value_bias = layer.value.bias,
                                  .token_numbers_BSN = token_numbers_BSN,
                                  .query_BTHD = query_BTHD,
                                  .key_BSHD = key_BSHD});
  if (config_.rotary_value) terms.value = terms.key;
  return terms;
}

at::Tensor Body::self_attention(int64_t index, const at::Tensor& hidden_BTC, const Pass& pass) const {
  const AttentionLayer& layer = this->layer(index).self;
  const at::Tensor numbers_BSN = encoding_->token_numbers(index, hidden_BTC);
  const at::Tensor added = encoding_->layer_input(index, pass.shared);
  const at::Tensor qkv_BTC = project(layer.query, layer.key, layer.value,
                                     added.defined() ? hidden_BTC + added.to(hidden_BTC.scalar_type()) : hidden_BTC);
  const Heads x = split_heads(qkv_BTC, config_.num_attention_heads, config_.key_heads());
  const Terms terms = encoding_->reads_vectors() ? this->terms(index, pass.shared, numbers_BSN, x.q_BTHD, x.k_BTHD)
                                                 : this->terms(index, pass.shared, numbers_BSN);
  if (linear_.empty()) {
    const AttentionContext& context = pass.contexts.at(window(index));
    return attention(x.q_BTHD, x.k_BTHD, x.v_BTHD, terms, context, probabilities_dropout(pass), pass.drop.key)
        .flatten(-2);
  }
  const LinearAttentionCall call{.direction = config_.is_decoder ? Direction::kCausal : Direction::kBidirectional,
                                 .key_mask_BS = pass.tokens.key_mask_BS,
                                 .sequence_ids_BS = pass.tokens.sequence_ids_BS};
  return linear_[static_cast<size_t>(index)]->forward(x.q_BTHD, x.k_BTHD, x.v_BTHD, terms, call).flatten(-2);
}

at::Tensor Body::cross_attention(int64_t index, const at::Tensor& hidden_BTC, const Pass& pass) const {
  const AttentionLayer& layer = this->layer(index).cross;
  const auto split = [&](const at::Tensor& x_BTC) {
    return x_BTC.unflatten(-1, {config_.num_attention_heads, config_.head_dim()});
  };
  const at::Tensor k_BSHD = split(layer.key(pass.encoder_hidden_BSC)),
                   v_BSHD = split(layer.value(pass.encoder_hidden_BSC));
  return attention(split(layer.query(hidden_BTC)), k_BSHD, v_BSHD, {}, *pass.cross_context, probabilities_dropout(pass),
                   pass.drop.key)
      .flatten(-2);
}

}  // namespace rf::nn
