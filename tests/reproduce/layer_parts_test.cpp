// The parts of a layer add up to the layer, for models whose weights are moved by N(0, 0.3).
#include "layer_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tolerances.h"

namespace rf::reproduce {
namespace {

ModelConfig small_config(const char* encoding) {
  ModelConfig config;
  config.position_encodings = {{encoding, "{}"}};
  config.vocab_size = 40;
  config.hidden_size = config.embedding_size = 24;
  config.intermediate_size = 20;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 2;
  config.max_position_embeddings = 12;
  return config;
}

std::shared_ptr<nn::Model> moved_model(const ModelConfig& config, Head head) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  auto model = std::make_shared<nn::Model>(config, head);
  for (at::Tensor& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.3);
  model->to(at::kDouble);
  model->eval();
  return model;
}

std::shared_ptr<nn::Model> moved_model(const char* encoding) {
  return moved_model(small_config(encoding), Head::kMaskedLm);
}

std::shared_ptr<nn::Model> linear_model(const std::string& options) {
  ModelConfig config = small_config("rope");
  config.is_decoder = true;
  config.attention = {"linear", options};
  return moved_model(config, Head::kCausalLm);
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
  EXPECT_LT(difference(sum, at::matmul(found.query_BHTD, found.key_BHTD.transpose(2, 3))), tests::kFloat64Model);
  EXPECT_GT(terms.content_position.abs().max().item<double>(), tests::kPlain);
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
    EXPECT_LT(plain.mean(-1).abs().max().item<double>(), tests::kFloat64Model) << layer;
    EXPECT_LT((plain.var(-1, false) - 1).abs().max().item<double>(), tests::kNormEpsilonShare) << layer;
  }
  EXPECT_GT(difference(inputs[2], inputs[1]), tests::kPlain);
}

// Without a projection of queries and keys every feature is that of 0: 1 for elu, 1/sqrt(m) for favor.
TEST(LayerParts, MeanWeightsOfNothing) {
  const at::NoGradGuard no_grad;
  for (const auto& [options, weight] : {std::pair{R"({"feature_map": "elu"})", 12.0},
                                        std::pair{R"({"feature_map": "favor", "num_features": 8})", 1.0}}) {
    const auto model = linear_model(options);
    const std::vector<at::Tensor> inputs = layer_inputs(*model, some_ids());
    for (const char* which : {"query.weight", "query.bias", "key.weight", "key.bias"}) {
      body_parameter(*model, std::string("encoder.layer.1.attention.self.") + which).zero_();
    }
    const at::Tensor weights = mean_weights(*model, 1, inputs[1]);
    EXPECT_EQ(weights.sizes(), (std::vector<int64_t>{2, 2, 12}));
    EXPECT_LT(difference(weights, at::full_like(weights, weight)), tests::kExactWeights) << options;
  }
}

// Key by key, for favor with the layer's random vectors.
TEST(LayerParts, MeanWeights) {
  const at::NoGradGuard no_grad;
  const auto model = linear_model(R"({"feature_map": "favor", "num_features": 8, "rope_site": "after_map"})");
  const std::vector<at::Tensor> inputs = layer_inputs(*model, some_ids());
  ASSERT_EQ(inputs.size(), 3U);
  const at::Tensor w_FD = model->named_buffers()["linear_attention.2.projection"];
  ASSERT_EQ(w_FD.scalar_type(), at::kDouble);
  const QueryKey found = projected(*model, 2, inputs[2], Bias::kAdded);
  const at::Tensor weights = mean_weights(*model, 2, inputs[2]);
  const double scale = 1 / std::sqrt(12.0);  // of q.k: sqrt(scale) of each
  const auto exponents = [&](const at::Tensor& x_D) {
    return at::mv(w_FD, x_D) * std::sqrt(scale) - x_D.dot(x_D) * scale / 2;
  };
  for (const int64_t query : {0, 5, 11}) {
    double sum = 0;
    for (int64_t key = 0; key <= query; ++key) {
      const at::Tensor q_F = exponents(found.query_BHTD[1][0][query]), k_F = exponents(found.key_BHTD[1][0][key]);
      sum += (q_F + k_F).exp().sum().item<double>() / 8;
    }
    EXPECT_NEAR(weights[1][0][query].item<double>() / (sum / double(query + 1)), 1, tests::kFloat64Model) << query;
  }
}

TEST(LayerParts, AttentionByOffset) {
  const at::Tensor even = attention_by_offset(at::zeros({2, 3, 8, 8}, at::kDouble), 4);
  EXPECT_EQ(even.sizes(), (std::vector<int64_t>{3, 9}));
  EXPECT_LT(difference(even, at::full_like(even, 1.0 / 8)), tests::kSoftmaxF64);
  // A head that looks at the token after: all of its weight is at +1, but for the last token, which has none there.
  at::Tensor scores = at::zeros({1, 1, 8, 8}, at::kDouble);
  scores.diagonal(1, 2, 3).fill_(100);
  const at::Tensor next = attention_by_offset(scores, 4)[0];
  EXPECT_NEAR(next[5].item<double>(), 1, tests::kSoftmaxF64);
  EXPECT_LT(next[6].item<double>(), tests::kSoftmaxF64);
  EXPECT_NEAR(next[3].item<double>(), 1.0 / 8 / 7, tests::kSoftmaxF64);  // only the last token's eighth
}

}  // namespace
}  // namespace rf::reproduce
