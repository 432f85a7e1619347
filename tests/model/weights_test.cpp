// Roles, initial values and RoFormerV2; tests/oracles/test_encoder_parity.py compares names and shapes with
// transformers' own files (spec R-HF-03).
#include "rf/model/weights.h"

#include <map>

#include "io/support.h"

namespace rf {
namespace {

using rf::testing::expect_error;
using Shape = std::vector<int64_t>;

ModelConfig two_layers() {
  ModelConfig c;
  c.vocab_size = 20;
  c.embedding_size = 6;
  c.hidden_size = 8;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 2;
  c.intermediate_size = 10;
  c.type_vocab_size = 3;
  c.max_position_embeddings = 5;
  c.num_labels = 4;
  return c;
}

std::map<std::string, WeightSpec> by_name(const ModelConfig& config, Head head) {
  std::map<std::string, WeightSpec> specs;
  for (const WeightSpec& spec : weight_specs(config, head))
    EXPECT_TRUE(specs.emplace(spec.name, spec).second) << spec.name << " twice";
  return specs;
}

TEST(Weights, Roles) {
  const auto specs = by_name(two_layers(), Head::kNone);
  const std::map<std::string, WeightRole> expected = {
      {"embeddings.word_embeddings.weight", WeightRole::kEmbedding},
      {"embeddings.token_type_embeddings.weight", WeightRole::kEmbedding},
      {"embeddings.LayerNorm.weight", WeightRole::kNormGain},
      {"embeddings.LayerNorm.bias", WeightRole::kNormBias},
      {"embeddings_project.weight", WeightRole::kMatrix},
      {"embeddings_project.bias", WeightRole::kBias},
      {"encoder.embed_positions.weight", WeightRole::kTable},
      {"encoder.layer.1.attention.self.query.weight", WeightRole::kMatrix},
      {"encoder.layer.1.attention.self.value.bias", WeightRole::kBias},
      {"encoder.layer.0.attention.output.LayerNorm.weight", WeightRole::kNormGain},
  };
  for (const auto& [name, role] : expected) EXPECT_EQ(specs.at(name).role, role) << name;
}

TEST(Weights, RoFormerV2HasNoBiasesAndNoNorms) {
  ModelConfig c = two_layers();
  c.family = Family::kRoFormerV2;
  for (const WeightSpec& spec : weight_specs(c, Head::kMaskedLm)) {
    EXPECT_TRUE(spec.role == WeightRole::kMatrix || spec.role == WeightRole::kEmbedding ||
                spec.role == WeightRole::kTable)
        << spec.name;
  }
  // word, type, projection, table, 6 matrices in each layer, and what turns C into E before the vocabulary.
  EXPECT_EQ(weight_specs(c, Head::kMaskedLm).size(), 4u + 2u * 6u + 1u);
  EXPECT_TRUE(by_name(c, Head::kMaskedLm).contains("cls.predictions.transform.dense.weight"));
  EXPECT_EQ(by_name(c, Head::kSequenceClassification).at("classifier.out_proj.bias").shape, (Shape{4}));
  EXPECT_EQ(tied_source(c, "cls.predictions.decoder.weight"), "roformer.embeddings.word_embeddings.weight");
  EXPECT_EQ(tied_source(c, "cls.predictions.decoder.bias"), "");
  c.embedding_size = c.hidden_size;
  for (const WeightSpec& spec : weight_specs(c, Head::kMaskedLm))
    EXPECT_FALSE(spec.name.starts_with("cls.")) << spec.name;
  // A bias of the projection that the model would not add is no harmless extra.
  c.embedding_size = 6;
  std::vector<NamedShape> file;
  for (const WeightSpec& spec : weight_specs(c, Head::kNone)) file.push_back({spec.name, spec.shape});
  EXPECT_NO_THROW(match_weights(c, Head::kNone, file, FreshHead::kForbidden));
  file.push_back({"embeddings_project.bias", {8}});
  expect_error([&] { match_weights(c, Head::kNone, file, FreshHead::kForbidden); }, {"embeddings_project.bias"});
}

TEST(Weights, RoFormerV2StartsAsBert4kerasDoes) {
  ModelConfig c;
  c.family = Family::kRoFormerV2;
  c.num_hidden_layers = 4;
  const auto deviation = [&](Shape shape, WeightRole role) {
    const InitialValues initial = initial_values(c, {"x", shape, role});
    EXPECT_TRUE(initial.truncated);
    return initial.deviation;
  };
  EXPECT_DOUBLE_EQ(deviation({64, 16}, WeightRole::kMatrix), 1.13684723 / 4 / 2);
  EXPECT_DOUBLE_EQ(deviation({20000, 16}, WeightRole::kEmbedding), 1.13684723 / 4 / 2);
  EXPECT_DOUBLE_EQ(deviation({2, 16}, WeightRole::kEmbedding), 1.13684723 / 4 / 2);
  EXPECT_DOUBLE_EQ(deviation({64, 16}, WeightRole::kEmbedding), 1.13684723 / 8 / 2);
  c.family = Family::kRoFormer;
  EXPECT_EQ(initial_values(c, {"x", {64, 16}, WeightRole::kMatrix}).deviation, 0.02);
}

// A position encoding's tables decay as embeddings do, its vectors as biases.
TEST(Weights, Decay) {
  EXPECT_TRUE(decays(WeightRole::kMatrix, 2));
  EXPECT_TRUE(decays(WeightRole::kEmbedding, 2));
  EXPECT_TRUE(decays(WeightRole::kEncoding, 2));
  EXPECT_FALSE(decays(WeightRole::kEncoding, 1));
  for (const WeightRole role :
       {WeightRole::kBias, WeightRole::kNormGain, WeightRole::kNormBias, WeightRole::kTable, WeightRole::kBuffer}) {
    EXPECT_FALSE(decays(role, 1));
  }
  EXPECT_FALSE(decays(WeightRole::kEncodingBias, 3));
}

TEST(PositionTable, RefusesOddAndHugeSizes) {
  expect_error([] { position_table(4, 3); }, {"dim", "even", "3"});
  expect_error([] { position_table(4, 0); }, {"dim", "0"});
  expect_error([] { position_table(-1, 4); }, {"rows", "-1"});
  expect_error([] { position_table(int64_t{1} << 62, 4); }, {"rows", "2^32"});
  EXPECT_TRUE(position_table(0, 4).empty());
}

}  // namespace
}  // namespace rf
