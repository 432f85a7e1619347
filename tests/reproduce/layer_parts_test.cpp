// The parts of a layer add up to the layer, for models whose weights are moved by N(0, 0.3).
#include "layer_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace rf::reproduce {
namespace {

std::shared_ptr<nn::Model> moved_model(const char* encoding) {
  const at::NoGradGuard no_grad;
  ModelConfig config;
  config.position_encodings = {{encoding, "{}"}};
  config.vocab_size = 40;
  config.hidden_size = config.embedding_size = 24;
  config.intermediate_size = 20;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 2;
  config.max_position_embeddings = 12;
  at::manual_seed(3);
  auto model = std::make_shared<nn::Model>(config, Head::kMaskedLm);
  for (at::Tensor& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.3);
  model->to(at::kDouble);
  model->eval();
  return model;
}

at::Tensor some_ids() {
  return at::arange(24, at::kLong).mul(7).remainder(39).add(1).view({2, 12});
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(LayerParts, FourTermsAddUpToTheScores) {
  const at::NoGradGuard no_grad;
  const auto model = moved_model("learned");
  const ScoreTerms terms = first_layer_terms(*model, some_ids());
  const at::Tensor sum =
      terms.content_content + terms.content_position + terms.position_content + terms.position_position;
  // The first layer's input by torch's own layer norm.
  const auto weights = model->named_parameters();
  const auto parameter = [&](const char* name) { return body_parameter(*model, name); };
  const at::Tensor input =
      at::layer_norm(at::embedding(parameter("embeddings.word_embeddings.weight"), some_ids()) +
                         parameter("embeddings.token_type_embeddings.weight")[0] + weights["position_encoding.weight"],
                     {24}, parameter("embeddings.LayerNorm.weight"), parameter("embeddings.LayerNorm.bias"),
                     model->config().layer_norm_eps);
  const QueryKey found = projected(*model, 0, input, Bias::kAdded);
  EXPECT_LT(difference(sum, at::matmul(found.query_BHTD, found.key_BHTD.transpose(2, 3))), 1e-10);
  EXPECT_GT(terms.content_position.abs().max().item<double>(), 0.1);
}

// One input for each layer, beginning with the embeddings; each but the first is the output of the layer before, which
// is a layer norm's: without gain and bias it would have mean 0 and variance 1.
TEST(LayerParts, InputsOfLayers) {
  const at::NoGradGuard no_grad;
  const auto model = moved_model("rope");
  const std::vector<at::Tensor> inputs = layer_inputs(*model, some_ids());
  ASSERT_EQ(inputs.size(), 3U);
  const char* norms[] = {"embeddings.LayerNorm.", "encoder.layer.0.output.LayerNorm.",
                         "encoder.layer.1.output.LayerNorm."};
  for (size_t layer = 0; layer < inputs.size(); ++layer) {
    const std::string norm = norms[layer];
    const at::Tensor plain =
        (inputs[layer] - body_parameter(*model, norm + "bias")) / body_parameter(*model, norm + "weight");
    EXPECT_LT(plain.mean(-1).abs().max().item<double>(), 1e-10) << layer;
    EXPECT_LT((plain.var(-1, false) - 1).abs().max().item<double>(), 1e-6) << layer;
  }
  EXPECT_GT(difference(inputs[2], inputs[1]), 0.1);
}

TEST(LayerParts, AttentionByOffset) {
  const at::Tensor even = attention_by_offset(at::zeros({2, 3, 8, 8}, at::kDouble), 4);
  EXPECT_EQ(even.sizes(), (std::vector<int64_t>{3, 9}));
  EXPECT_LT(difference(even, at::full_like(even, 1.0 / 8)), 1e-15);
  // A head that looks at the token after: all of its weight is at +1, but for the last token, which has none there.
  at::Tensor scores = at::zeros({1, 1, 8, 8}, at::kDouble);
  scores.diagonal(1, 2, 3).fill_(100);
  const at::Tensor next = attention_by_offset(scores, 4)[0];
  EXPECT_NEAR(next[5].item<double>(), 1, 1e-15);
  EXPECT_LT(next[6].item<double>(), 1e-15);
  EXPECT_NEAR(next[3].item<double>(), 1.0 / 8 / 7, 1e-15);  // only the last token's eighth
}

}  // namespace
}  // namespace rf::reproduce
