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

TEST(LinearAttentionCheck, RefusesEncodingsWithPairwiseTerms) {
  EncodingInfo encoding;
  encoding.name = "shaw";
  encoding.terms = "K, V";
  EXPECT_EQ(error_of([&] { check_linear_attention({}, encoding, Direction::kBidirectional); }),
            "[linear_attention] position_encoding must not have pairwise terms, got shaw (K, V)");
  encoding.pairwise = EncodingInfo::Pairwise::kNo;
  EXPECT_EQ(error_of([&] { check_linear_attention({}, encoding, Direction::kCausal); }), "no error");
}

TEST(LinearAttentionCheck, RefusesShenOriginalInCausalModels) {
  const LinearAttentionConfig config = config_of(R"({"feature_map":"shen_original"})");
  EncodingInfo encoding;
  encoding.pairwise = EncodingInfo::Pairwise::kNo;
  EXPECT_EQ(error_of([&] { check_linear_attention(config, encoding, Direction::kBidirectional); }), "no error");
  EXPECT_NE(
      error_of([&] { check_linear_attention(config, encoding, Direction::kCausal); }).find("must not be shen_original"),
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
