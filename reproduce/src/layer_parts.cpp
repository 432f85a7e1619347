// Intermediate results of encoders (layer_parts.h).
#include "layer_parts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "rf/data/split.h"
#include "rf/io/error.h"
#include "rf/nn/linear_attention.h"

namespace rf::reproduce {

at::Tensor body_parameter(const nn::Model& model, const std::string& name) {
  return model.named_parameters()[body_prefix(model.config()) + name];
}

QueryKey projected(const nn::Model& model, int64_t layer, const at::Tensor& x_BTC, Bias bias) {
  const auto heads = [&](const char* which) {
    const std::string name = fmt::format("encoder.layer.{}.attention.self.{}.", layer, which);
    const at::Tensor added = bias == Bias::kAdded ? body_parameter(model, name + "bias") : at::Tensor();
    const at::Tensor y_BTC = at::linear(x_BTC, body_parameter(model, name + "weight"), added);
    return y_BTC.unflatten(2, {model.config().num_attention_heads, -1}).transpose(1, 2);
  };
  return {heads("query"), heads("key")};
}

InputParts input_parts(const nn::Model& model, const at::Tensor& ids_BT) {
  const auto parameter = [&](const char* name) { return body_parameter(model, name); };
  const at::Tensor words_BTC = at::embedding(parameter("embeddings.word_embeddings.weight"), ids_BT) +
                               parameter("embeddings.token_type_embeddings.weight")[0];
  const auto all = model.named_parameters();
  const at::Tensor* table = all.find("position_encoding.weight");
  if (table == nullptr) table = all.find(body_prefix(model.config()) + kLearnedPositions);  // a bert's
  const at::Tensor positions_TC = table == nullptr ? at::zeros_like(words_BTC[0]) : table->slice(0, 0, ids_BT.size(1));
  const at::Tensor sum_BTC = words_BTC + positions_TC;
  const at::Tensor deviation_BT1 = (sum_BTC.var(2, /*unbiased=*/false, true) + model.config().layer_norm_eps).sqrt();
  const at::Tensor gain = parameter("embeddings.LayerNorm.weight");
  const auto part = [&](const at::Tensor& x) { return (x - x.mean(-1, true)) / deviation_BT1 * gain; };
  return {part(words_BTC) + parameter("embeddings.LayerNorm.bias"), part(positions_TC.expand_as(words_BTC))};
}

ScoreTerms first_layer_terms(const nn::Model& model, const at::Tensor& ids_BT) {
  const InputParts parts = input_parts(model, ids_BT);
  const QueryKey content = projected(model, 0, parts.content_BTC, Bias::kAdded);
  const QueryKey position = projected(model, 0, parts.position_BTC, Bias::kNone);
  const auto scores = [](const at::Tensor& query, const at::Tensor& key) {
    return at::matmul(query, key.transpose(2, 3));
  };
  return {scores(content.query_BHTD, content.key_BHTD), scores(content.query_BHTD, position.key_BHTD),
          scores(position.query_BHTD, content.key_BHTD), scores(position.query_BHTD, position.key_BHTD)};
}

std::vector<at::Tensor> layer_inputs(const nn::Model& model, const at::Tensor& ids_BT) {
  const InputParts parts = input_parts(model, ids_BT);
  std::vector<at::Tensor> inputs = {parts.content_BTC + parts.position_BTC};
  const auto weights = model.named_parameters(), buffers = model.named_buffers();
  for (int64_t layers = 1; layers < model.config().num_hidden_layers; ++layers) {
    ModelConfig config = model.config();  // the model's first layers
    config.num_hidden_layers = layers;
    nn::Model part(config, model.head());
    part.to(weights.begin()->value().scalar_type());
    part.eval();
    for (auto& parameter : part.named_parameters()) parameter.value().copy_(weights[parameter.key()]);
    for (auto& buffer : part.named_buffers()) buffer.value().copy_(buffers[buffer.key()]);
    nn::Input input;
    input.ids_BT = ids_BT;
    inputs.push_back(part.encode(input));
  }
  return inputs;
}

at::Tensor mean_weights(const nn::Model& model, int64_t layer, const at::Tensor& x_BTC) {
  const bool elu = parse_linear_attention(model.config().attention).feature_map == FeatureMap::kElu;
  const QueryKey found = projected(model, layer, x_BTC, Bias::kAdded);
  const double root_scale = std::pow(static_cast<double>(model.config().head_dim()), -0.25);
  const auto features = [&](const at::Tensor& x_BHTD) {
    if (elu) return at::elu(x_BHTD) + 1;
    const at::Tensor random_FD = model.named_buffers()[fmt::format("linear_attention.{}.projection", layer)];
    const at::Tensor w_FD = random_FD.to(x_BHTD.scalar_type()), x = x_BHTD * root_scale;
    return (at::matmul(x, w_FD.t()) - x.square().sum(-1, true) / 2).exp() / std::sqrt(double(w_FD.size(0)));
  };
  const at::Tensor sums_BHT = (features(found.query_BHTD) * features(found.key_BHTD).cumsum(2)).sum(-1);
  return sums_BHT / at::arange(1, x_BTC.size(1) + 1, x_BTC.scalar_type());
}

at::Tensor attention_by_offset(const at::Tensor& scores_BHTT, int64_t reach) {
  const at::Tensor weights_HTT = at::softmax(scores_BHTT, -1).mean(0);
  std::vector<at::Tensor> by_offset;
  for (int64_t offset = -reach; offset <= reach; ++offset) {
    by_offset.push_back(weights_HTT.diagonal(offset, 1, 2).mean(-1));
  }
  return at::stack(by_offset, 1);
}

at::Tensor held_out_rows(const std::string& data_dir, int64_t rows, int64_t tokens) {
  const data::Split split(data_dir, "valid", "");
  std::vector<int32_t> ids;
  std::vector<int32_t> piece(static_cast<size_t>(tokens));
  std::vector<uint8_t> starts(piece.size());
  for (int64_t document = 0; document < split.documents(); ++document) {
    for (int64_t begin = 0; begin + tokens <= split.document_tokens(document); begin += tokens) {
      if (static_cast<int64_t>(ids.size()) == rows * tokens) break;
      split.copy(document, begin, tokens, piece.data(), starts.data());
      ids.insert(ids.end(), piece.begin(), piece.end());
    }
  }
  if (ids.empty())
    fail("reproduce", "held-out documents must have {} tokens, got none so long in {}", tokens, data_dir);
  return at::tensor(ids, at::kLong).view({-1, tokens});
}

}  // namespace rf::reproduce
