// What a model asks of linear attention beyond what Python reaches: the check of a configuration against an encoding,
// and the layer as a module of C++ (spec R-LIN-10, R-REL-10). The mathematics is tested in test_linear_attention.py.
#include "rf/nn/linear_attention.h"
#include "error_of.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <functional>

#include "rf/io/error.h"

namespace rf::nn {
namespace {

LinearAttentionConfig config_of(const std::string& options) { return parse_linear_attention({"linear", options}); }

TEST(LinearAttentionConfig, HasTheDefaultsOfThePapers) {
  const LinearAttentionConfig elu = config_of("{}");
  EXPECT_EQ(elu.feature_map, FeatureMap::kElu);
  EXPECT_EQ(elu.rope_site, RopeSite::kAfterMap);
  EXPECT_FALSE(elu.rotate_denominator);
  EXPECT_EQ(config_of(R"({"feature_map":"cosine"})").rope_site, RopeSite::kBeforeMap);
  const LinearAttentionConfig favor = config_of(R"({"feature_map":"favor"})");
  EXPECT_EQ(num_features(favor, 64), 266);
  EXPECT_EQ(favor.redraw_every, 1000);
  EXPECT_TRUE(favor.orthogonal);
  EXPECT_DOUBLE_EQ(favor.feature_eps, 1e-4);
  EXPECT_DOUBLE_EQ(config_of(R"({"feature_map":"relu"})").feature_eps, 1e-3);
}

TEST(LinearAttentionCheck, RefusesEncodingsWithPairwiseTerms) {
  EncodingInfo encoding;
  encoding.name = "shaw";
  encoding.terms = "K, V";
  EXPECT_EQ(error_of([&] { check_linear_attention({}, encoding, Direction::kCausal); }), "no error");
  encoding.pairwise = EncodingInfo::Pairwise::kYes;
  EXPECT_EQ(error_of([&] { check_linear_attention({}, encoding, Direction::kBidirectional); }),
            "[linear_attention] position_encoding must not have pairwise terms, got shaw (K, V)");
}

TEST(LinearAttentionCheck, RefusesShenOriginalInCausalModels) {
  const LinearAttentionConfig config = config_of(R"({"feature_map":"shen_original"})");
  EXPECT_EQ(error_of([&] { check_linear_attention(config, {}, Direction::kBidirectional); }), "no error");
  EXPECT_NE(error_of([&] { check_linear_attention(config, {}, Direction::kCausal); }).find("must not be shen_original"),
            std::string::npos);
}

TEST(LinearAttention, KeepsCountingWhenConvertedToFloat64) {
  LinearAttention layer(config_of(R"({"feature_map":"favor","num_features":6,"redraw_every":2})"), 4, 3);
  layer.to(at::kDouble);
  const at::Tensor x = at::randn({1, 3, 1, 4}, at::kDouble);
  for (int call = 0; call < 3; ++call) layer.forward(x, x, x, {}, {});
  const auto buffers = layer.named_buffers();
  EXPECT_EQ(buffers["calls"].item<int64_t>(), 3);
  EXPECT_EQ(buffers["redraws"].item<int64_t>(), 1);
  EXPECT_TRUE(at::equal(buffers["projection"], draw_features(6, 4, {.layer = 3, .redraw = 1})));
}

TEST(LinearAttention, HasNoBuffersWhereNothingIsDrawn) {
  EXPECT_EQ(LinearAttention({}, 4, 0).named_buffers().size(), 0u);
}

}  // namespace
}  // namespace rf::nn
