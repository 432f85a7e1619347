// Initial values, decay and RoFormerV2; tests/oracles/test_encoder_parity.py compares names and shapes with
// transformers' own files (spec R-HF-03).
#include "rf/model/weights.h"

#include <algorithm>

#include "io/support.h"

namespace rf {
namespace {

using Shape = std::vector<int64_t>;

// By the ends of names, the first that fits.
TEST(Weights, Roles) {
  const std::pair<const char*, WeightRole> ends[] = {{"LayerNorm.weight", WeightRole::kNormGain},
                                                     {"LayerNorm.bias", WeightRole::kNormBias},
                                                     {"embed_positions.weight", WeightRole::kTable},
                                                     {"position_embeddings.weight", WeightRole::kEncoding},
                                                     {"_embeddings.weight", WeightRole::kEmbedding},
                                                     {".weight", WeightRole::kMatrix},
                                                     {"bias", WeightRole::kBias}};
  ModelConfig projected, bert;
  projected.embedding_size = 6;
  bert.family = Family::kBert;
  bert.position_encodings = {{"learned", "{}"}};
  for (const ModelConfig& c : {projected, bert}) {
    for (const WeightSpec& spec : weight_specs(c, Head::kPreTraining)) {
      const auto* const end = std::ranges::find_if(ends, [&](const auto& x) { return spec.name.ends_with(x.first); });
      EXPECT_EQ(spec.role, end->second) << spec.name;
    }
  }
}

ModelConfig roformer_v2(int64_t layers) {
  ModelConfig c;
  c.family = Family::kRoFormerV2, c.block = block_of(c.family), c.num_hidden_layers = layers;
  return c;
}

// tests/oracles/test_roformer_v2.py reads the others.
TEST(Weights, BiasesOfRoFormerV2) {
  ModelConfig c = roformer_v2(1);
  c.embedding_size = 6;
  EXPECT_EQ(tied_source(c, "cls.predictions.decoder.bias"), "");
  // A bias of the projection that the model would not add is no harmless extra.
  std::vector<NamedShape> file;
  for (const WeightSpec& spec : weight_specs(c, Head::kNone)) file.push_back({spec.name, spec.shape});
  EXPECT_NO_THROW(match_weights(c, Head::kNone, file, FreshHead::kForbidden));
  file.push_back({"embeddings_project.bias", {8}});
  expect_error([&] { match_weights(c, Head::kNone, file, FreshHead::kForbidden); }, {"embeddings_project.bias"});
}

TEST(Weights, RoFormerV2StartsAsBert4kerasDoes) {
  ModelConfig c = roformer_v2(4);
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
  for (const WeightRole role : {WeightRole::kMatrix, WeightRole::kEmbedding, WeightRole::kEncoding}) {
    EXPECT_TRUE(decays(role, 2));
  }
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
