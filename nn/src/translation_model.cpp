// An encoder-decoder built from two bodies (rf/nn/translation_model.h).
#include "rf/nn/translation_model.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <map>
#include <utility>

#include "body.h"
#include "layer_parameters.h"
#include "layers.h"
#include "position.h"
#include "rf/io/error.h"

namespace rf::nn {

namespace {

double xavier_bound(int64_t rows, int64_t columns) { return std::sqrt(6.0 / static_cast<double>(rows + columns)); }

at::Tensor initial_translation_value(const WeightSpec& spec, const ModelConfig& config) {
  at::Tensor value = at::empty(spec.shape, at::kFloat);
  if (EmptyParameters::wanted()) return value;
  switch (spec.role) {
    case WeightRole::kEmbedding:
      value.normal_(0, 1 / std::sqrt(static_cast<double>(config.hidden_size)));
      value[config.pad_token_id].zero_();
      return value;
    case WeightRole::kMatrix: {
      const double bound = xavier_bound(spec.shape[0], spec.shape[1]);
      return value.uniform_(-bound, bound);
    }
    case WeightRole::kNormGain: return value.fill_(1);
    default: return value.zero_();
  }
}

Input body_input(const at::Tensor& ids_BT, const at::Tensor& mask_BT) {
  Input input;
  input.ids_BT = ids_BT;
  input.mask_BT = mask_BT;
  return input;
}

}  // namespace

struct TranslationModel::Impl {
  struct Side {
    ModelConfig config;
    std::shared_ptr<Encoding> encoding;
    Body body;
    at::Tensor run(const Input& given, const Dropout& drop) const {
      const Input input = with_layout_on_cpu(given);
      check_input(input, config, body.dtype());
      return body.encode(input, drop);
    }
  };

  ModelConfig config;
  std::vector<WeightSpec> specs;
  Side encoder, decoder;
  const Side& side(TranslationSide which) const { return which == TranslationSide::kDecoder ? decoder : encoder; }
  Parameter embedding, output_bias;

  Side make_side(torch::nn::Module& parent, TranslationSide side, const std::map<std::string, at::Tensor>& by_name);
};

TranslationModel::Impl::Side TranslationModel::Impl::make_side(torch::nn::Module& parent, TranslationSide which,
                                                               const std::map<std::string, at::Tensor>& by_name) {
  const bool is_decoder = which == TranslationSide::kDecoder;
  Side side{.config = side_of(config, which), .encoding = {}, .body = {}};
  side.encoding = make_position_encoding(side.config);
  const std::string name = is_decoder ? "decoder" : "encoder";
  parent.register_module(name, side.encoding);
  for (const auto& item : side.encoding->named_parameters()) {
    specs.push_back({fmt::format("{}{}.{}", kEncodingPrefix, name, item.key()), item.value().sizes().vec(),
                     encoding_role(item.key())});
  }
  std::map<std::string, at::Tensor> of_body;
  for (const BodyName& each : body_names(config, which)) of_body.emplace(each.in_body, by_name.at(each.in_file));
  side.body = Body(side.config, Parameters(std::move(of_body), side.config), "");
  side.body.set_encoding(side.encoding);
  side.body.fit_scores(xavier_bound(config.hidden_size, config.hidden_size) / std::sqrt(3.0));
  return side;
}

TranslationModel::TranslationModel(const ModelConfig& config) : impl_(std::make_shared<Impl>()) {
  impl_->config = config;
  impl_->specs = translation_weight_specs(config);
  for (const WeightSpec& spec : impl_->specs) {
    const at::Tensor value = initial_translation_value(spec, config);
    if (spec.role == WeightRole::kBuffer) {
      register_buffer(spec.name, value);
    } else {
      register_dotted(*this, spec.name, value);
    }
  }
  std::map<std::string, at::Tensor> by_name;
  for (const auto& item : named_parameters()) by_name.emplace(item.key(), item.value());
  impl_->embedding = by_name.at(kSharedEmbedding);
  impl_->output_bias = named_buffers()[kOutputBias];
  const auto encodings = register_module("position_encoding", std::make_shared<torch::nn::Module>("position_encoding"));
  impl_->encoder = impl_->make_side(*encodings, TranslationSide::kEncoder, by_name);
  impl_->decoder = impl_->make_side(*encodings, TranslationSide::kDecoder, by_name);
}

const ModelConfig& TranslationModel::config() const { return impl_->config; }
const std::vector<WeightSpec>& TranslationModel::weight_specs() const { return impl_->specs; }

void TranslationModel::check_length(int64_t tokens) const {
  impl_->encoder.encoding->check_length(tokens);
  impl_->decoder.encoding->check_length(tokens);
}

const ModelConfig& TranslationModel::config_of(TranslationSide side) const { return impl_->side(side).config; }

const Encoding& TranslationModel::position_encoding(TranslationSide side) const { return *impl_->side(side).encoding; }

std::vector<ops::Terms> TranslationModel::position_terms(TranslationSide side, int64_t tokens) const {
  return impl_->side(side).body.position_terms(tokens);
}

at::Tensor TranslationModel::forward(const TranslationInput& input) {
  if (is_training() && !input.dropout_key) fail("input", "a pass in training mode must have a dropout_key, got none");
  DropoutKey key = input.dropout_key.value_or(DropoutKey{});
  const Dropout drop{&key, is_training()};
  Input target = body_input(input.target_BT, {});
  target.encoder_hidden_BSC = impl_->encoder.run(body_input(input.source_BS, input.source_mask_BS), drop);
  target.encoder_mask_BS = input.source_mask_BS;
  return impl_->decoder.run(target, drop);
}

at::Tensor TranslationModel::logits(const at::Tensor& hidden_NC) {
  return Linear{impl_->embedding, Parameter(impl_->output_bias->view({-1}))}(hidden_NC);
}

}  // namespace rf::nn
