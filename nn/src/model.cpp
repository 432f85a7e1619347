// The RoFormer encoder and its heads (spec R-HF-04 to R-HF-14). Parameters are made from the list of model/weights.h,
// so names and shapes have one description; the structs below only hold handles to them. No position is added to the
// embeddings: order enters through the rotation of queries and keys alone.
#include "rf/nn/model.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "input.h"
#include "rf/io/error.h"
#include "rf/ops/ops.h"
#include "self_attention.h"

namespace rf::nn {

namespace {

struct Linear {
  at::Tensor weight, bias;
  at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

struct Norm {
  at::Tensor gain, bias;
  double eps = 0;
  at::Tensor operator()(const at::Tensor& x) const { return at::layer_norm(x, gain.sizes(), gain, bias, eps); }
};

struct Layer {
  Linear query, key, value, attention_output, intermediate, output;
  Norm attention_norm, output_norm;
};

// Queries, keys and values in one tensor [B,T,3C]. Joined is what is smaller: the weights, for one large product, or
// the results of three.
at::Tensor project(const Layer& layer, const at::Tensor& hidden_BTC) {
  const Linear &q = layer.query, &k = layer.key, &v = layer.value;
  const int64_t rows = hidden_BTC.size(0) * hidden_BTC.size(1);
  if (rows < q.weight.size(0)) return at::cat({q(hidden_BTC), k(hidden_BTC), v(hidden_BTC)}, -1);
  return at::linear(hidden_BTC, at::cat({q.weight, k.weight, v.weight}), at::cat({q.bias, k.bias, v.bias}));
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kTanh:
      return at::tanh(x);
  }
  fail("model", "unknown activation, got {}", static_cast<int>(activation));
}

at::Tensor initial_value(const WeightSpec& spec, const ModelConfig& config) {
  at::Tensor value = at::empty(spec.shape, at::kFloat);
  switch (spec.role) {
    case WeightRole::kMatrix:
      return value.normal_(0, config.initializer_range);
    case WeightRole::kEmbedding:
      value.normal_(0, config.initializer_range);
      if (spec.name.ends_with("word_embeddings.weight")) value[config.pad_token_id].zero_();
      return value;
    case WeightRole::kNormGain:
      return value.fill_(1);
    case WeightRole::kBias:
    case WeightRole::kNormBias:
    case WeightRole::kTable:
      return value.zero_();
  }
  fail("model", "unknown role of {}", spec.name);
}

// Registers `value` under a dotted name, making plain modules on the way.
void register_dotted(torch::nn::Module& root, const std::string& name, at::Tensor value) {
  torch::nn::Module* module = &root;
  size_t begin = 0;
  for (size_t dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string child = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    const auto* found = children.find(child);
    module = found ? found->get() : module->register_module(child, std::make_shared<torch::nn::Module>(child)).get();
  }
  module->register_parameter(name.substr(begin), std::move(value));
}

}  // namespace

struct Model::Impl {
  ModelConfig config;
  Head head;
  std::map<std::string, at::Tensor> parameters;  // by full name
  std::string prefix;                            // of the encoder's names
  at::Tensor table_MD;                           // a checkpoint's own, or undefined
  DropoutKey dropout_key;

  at::Tensor word_embeddings, type_embeddings;
  Norm embeddings_norm;
  Linear embeddings_project;  // undefined when embedding_size == hidden_size
  std::vector<Layer> layers;
  Linear transform, decoder;  // language models
  Norm transform_norm;
  Linear classifier_dense, classifier;  // the other heads; classifier_dense only for sequence classification

  at::Tensor parameter(const std::string& name) const {
    const auto found = parameters.find(name);
    if (found == parameters.end()) fail("model", "weights.h must list {}, got no such name", name);
    return found->second;
  }
  Linear linear(const std::string& name) const { return {parameter(name + ".weight"), parameter(name + ".bias")}; }
  Norm norm(const std::string& name) const {
    return {parameter(name + ".weight"), parameter(name + ".bias"), config.layer_norm_eps};
  }

  void bind_encoder();
  void bind_head();
  at::Tensor drop(const at::Tensor& x, double p, bool training);
  at::Tensor embed(const Input& input, bool training);
  at::Tensor layer_forward(const Layer& layer, const at::Tensor& hidden_BTC, const InputRotation& rotation,
                           AttentionMask& mask, bool training);
  at::Tensor pooled(const at::Tensor& hidden_BTC) const;
};

void Model::Impl::bind_encoder() {
  word_embeddings = parameter(prefix + "embeddings.word_embeddings.weight");
  type_embeddings = parameter(prefix + "embeddings.token_type_embeddings.weight");
  embeddings_norm = norm(prefix + "embeddings.LayerNorm");
  if (config.embedding_size != config.hidden_size) embeddings_project = linear(prefix + "embeddings_project");
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = fmt::format("{}encoder.layer.{}.", prefix, i);
    layers.push_back({.query = linear(name + "attention.self.query"),
                      .key = linear(name + "attention.self.key"),
                      .value = linear(name + "attention.self.value"),
                      .attention_output = linear(name + "attention.output.dense"),
                      .intermediate = linear(name + "intermediate.dense"),
                      .output = linear(name + "output.dense"),
                      .attention_norm = norm(name + "attention.output.LayerNorm"),
                      .output_norm = norm(name + "output.LayerNorm")});
  }
}

void Model::Impl::bind_head() {
  switch (head) {
    case Head::kNone:
      return;
    case Head::kMaskedLm:
    case Head::kCausalLm:
      transform = linear("cls.predictions.transform.dense");
      transform_norm = norm("cls.predictions.transform.LayerNorm");
      decoder = config.tie_word_embeddings ? Linear{word_embeddings, parameter("cls.predictions.bias")}
                                           : linear("cls.predictions.decoder");
      return;
    case Head::kSequenceClassification:
      classifier_dense = linear("classifier.dense");
      classifier = linear("classifier.out_proj");
      return;
    case Head::kMultipleChoice:
    case Head::kTokenClassification:
      classifier = linear("classifier");
      return;
    case Head::kQuestionAnswering:
      classifier = linear("qa_outputs");
      return;
  }
}

at::Tensor Model::Impl::drop(const at::Tensor& x, double p, bool training) {
  if (!training || p == 0) return x;
  return ops::dropout(x, p, static_cast<int64_t>(dropout_key.seed), dropout_key.next_stream());
}

at::Tensor Model::Impl::embed(const Input& input, bool training) {
  const at::Tensor words_BTE = at::embedding(word_embeddings, input.ids_BT, config.pad_token_id);
  const at::Tensor types =
      input.types_BT.defined() ? at::embedding(type_embeddings, input.types_BT) : type_embeddings[0];
  at::Tensor embedded = drop(embeddings_norm(words_BTE + types), config.hidden_dropout_prob, training);
  return embeddings_project.weight.defined() ? embeddings_project(embedded) : embedded;
}

at::Tensor Model::Impl::layer_forward(const Layer& layer, const at::Tensor& hidden_BTC, const InputRotation& rotation,
                                      AttentionMask& mask, bool training) {
  const AttentionOptions options{.heads = config.num_attention_heads,
                                 .rotary_value = config.rotary_value,
                                 .dropout = training ? config.attention_probs_dropout_prob : 0,
                                 .key = &dropout_key};
  const at::Tensor context_BTC = attend(project(layer, hidden_BTC), rotation, mask, options);
  const double p = config.hidden_dropout_prob;
  const at::Tensor attended_BTC =
      layer.attention_norm(drop(layer.attention_output(context_BTC), p, training) + hidden_BTC);
  const at::Tensor inner_BTF = activate(config.hidden_act, layer.intermediate(attended_BTC));
  return layer.output_norm(drop(layer.output(inner_BTF), p, training) + attended_BTC);
}

// The token that multiple choice looks at: the last one, padding or not, as transformers does (INC-23), or the first.
at::Tensor Model::Impl::pooled(const at::Tensor& hidden_BTC) const {
  if (config.summary_type == "last") return hidden_BTC.select(1, -1);
  if (config.summary_type == "first") return hidden_BTC.select(1, 0);
  fail("model", "summary_type must be last or first, got {}", config.summary_type);
}

Model::Model(const ModelConfig& config, Head head) : impl_(std::make_shared<Impl>()) {
  impl_->config = config;
  impl_->head = head;
  impl_->prefix = head == Head::kNone ? "" : "roformer.";
  for (const WeightSpec& spec : weight_specs(config, head)) {
    if (spec.role == WeightRole::kTable) continue;
    register_dotted(*this, spec.name, initial_value(spec, config));
  }
  for (const auto& item : named_parameters()) impl_->parameters.emplace(item.key(), item.value());
  impl_->bind_encoder();
  impl_->bind_head();
}

const ModelConfig& Model::config() const {
  return impl_->config;
}
Head Model::head() const {
  return impl_->head;
}
void Model::set_dropout_key(DropoutKey key) {
  impl_->dropout_key = key;
}
at::Tensor Model::position_table() const {
  return impl_->table_MD;
}

void Model::set_position_table(const at::Tensor& table_MD) {
  const at::IntArrayRef shape = table_MD.sizes();
  if (table_MD.dim() != 2 || shape[1] != impl_->config.head_dim()) {
    fail("model", "a position table must be [rows, {}], got [{}]", impl_->config.head_dim(), fmt::join(shape, ", "));
  }
  impl_->table_MD = table_MD.to(impl_->word_embeddings.scalar_type());
}

at::Tensor Model::encode(const Input& input) {
  check_input(input, impl_->config);
  impl_->dropout_key.calls = 0;
  const InputRotation rotation(input, impl_->table_MD);
  AttentionMask mask = make_attention_mask(input, impl_->config.is_decoder);
  at::Tensor hidden_BTC = impl_->embed(input, is_training());
  for (const Layer& layer : impl_->layers) {
    hidden_BTC = impl_->layer_forward(layer, hidden_BTC, rotation, mask, is_training());
  }
  return hidden_BTC;
}

at::Tensor Model::masked_lm_logits(const at::Tensor& hidden_NC) {
  if (!impl_->decoder.weight.defined()) {
    fail("model", "logits over the vocabulary need a language model, got {}", architecture_of_head(impl_->head));
  }
  if (hidden_NC.dim() == 0 || hidden_NC.size(-1) != impl_->config.hidden_size) {
    fail("input", "hidden states must be [.., {}], got [{}]", impl_->config.hidden_size,
         fmt::join(hidden_NC.sizes(), ", "));
  }
  const at::Tensor transformed = activate(impl_->config.hidden_act, impl_->transform(hidden_NC));
  return impl_->decoder(impl_->transform_norm(transformed));
}

Output Model::forward(const Input& input, int64_t num_choices) {
  const ModelConfig& config = impl_->config;
  if (num_choices < 1 || (num_choices != 1 && impl_->head != Head::kMultipleChoice)) {
    fail("input", "num_choices must be 1 except for multiple choice, got {}", num_choices);
  }
  if (input.ids_BT.defined() && input.ids_BT.dim() == 2 && input.ids_BT.size(0) % num_choices != 0) {
    fail("input", "the batch must be a multiple of the {} choices, got {}", num_choices, input.ids_BT.size(0));
  }
  Output out;
  out.hidden_BTC = encode(input);
  const auto drop = [&](const at::Tensor& x, double p) { return impl_->drop(x, p, is_training()); };
  const double p = config.classifier_dropout.value_or(config.hidden_dropout_prob);
  switch (impl_->head) {
    case Head::kNone:
      break;
    case Head::kMaskedLm:
    case Head::kCausalLm:
      out.logits = masked_lm_logits(out.hidden_BTC);
      break;
    case Head::kSequenceClassification: {
      const at::Tensor first_BC = drop(out.hidden_BTC.select(1, 0), p);
      const at::Tensor dense_BC = activate(config.hidden_act, impl_->classifier_dense(first_BC));
      out.logits = impl_->classifier(drop(dense_BC, p));
      break;
    }
    case Head::kMultipleChoice:
      out.logits =
          impl_->classifier(impl_->pooled(out.hidden_BTC)).view({input.ids_BT.size(0) / num_choices, num_choices});
      break;
    case Head::kTokenClassification:
      out.logits = impl_->classifier(drop(out.hidden_BTC, p));
      break;
    case Head::kQuestionAnswering: {
      const at::Tensor both = impl_->classifier(out.hidden_BTC);
      out.start_logits_BT = both.select(-1, 0);
      out.end_logits_BT = both.select(-1, 1);
      break;
    }
  }
  return out;
}

}  // namespace rf::nn
