// RoFormer by itself: what Python does not reach of initialisation, packing, dropout and errors
// (tests/nn/test_inputs.py).
#include "rf/nn/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "rf/io/error.h"
#include "rf/nn/linear_attention.h"
#include "small_model.h"
#include "temporary_files.h"
#include "tolerances.h"

namespace rf::nn {
namespace {

using namespace rf::tests;

#define EXPECT_ERROR(call, text) expect_has(error_of([&] { (void)(call); }), text)

double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

// R-HF-14.
TEST(RoFormerInit, HasTheStatisticsOfTheRoles) {
  at::manual_seed(1);
  const ModelConfig config = small_config();
  const Model model(config, Head::kMaskedLm);
  const auto parameters = model.named_parameters();
  int normal = 0;
  for (const WeightSpec& spec : weight_specs(config, Head::kMaskedLm)) {
    if (spec.role == WeightRole::kTable) continue;
    ASSERT_TRUE(parameters.contains(spec.name)) << spec.name;
    at::Tensor value = parameters[spec.name].detach().to(at::kDouble);
    EXPECT_EQ(value.sizes(), at::IntArrayRef(spec.shape));
    if (value.dim() == 1) {
      EXPECT_TRUE(value.eq(spec.role == WeightRole::kNormGain ? 1 : 0).all().item<bool>()) << spec.name;
      continue;
    }
    if (spec.name == "roformer.embeddings.word_embeddings.weight") {
      EXPECT_EQ(largest(value[config.pad_token_id]), 0);
      value = value.narrow(0, 1, value.size(0) - 1);
    }
    const double n = static_cast<double>(value.numel()), s = config.initializer_range;
    EXPECT_LE(std::abs(value.mean().item<double>()), kSigmas * s / std::sqrt(n)) << spec.name;
    EXPECT_LE(std::abs(value.std().item<double>() - s), kSigmas * s / std::sqrt(2 * n)) << spec.name;
    ++normal;
  }
  EXPECT_EQ(normal, 2 + 1 + 2 * 6 + 1);
}

TEST(RoFormerInput, ErrorsOfWhatPythonDoesNotGive) {
  const auto model = small_model(small_config());
  EXPECT_ERROR(model->forward(Input{}), "must be [batch, tokens]");
  EXPECT_ERROR(model->set_position_table(at::zeros({4, 10})), "must be [rows, 12], got [4, 10]");
}

// Of its authors' program from state 1234567: draws are the same on every machine.
TEST(Splitmix, PublishedNumbers) {
  uint64_t state = 1234567;
  for (const uint64_t number : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u}) {
    EXPECT_EQ(splitmix(state), number);
    state += kSplitmixStep;
  }
}

TEST(LinearAttention, KeepsCountingWhenConvertedToFloat64) {
  const std::string options = R"({"feature_map":"favor","num_features":6,"redraw_every":2})";
  LinearAttention layer(parse_linear_attention({"linear", options}), 4, 3);
  layer.to(at::kDouble);
  const at::Tensor x = at::randn({1, 3, 1, 4}, at::kDouble);
  for (int call = 0; call < 3; ++call) layer.forward(x, x, x, {}, {});
  const auto buffers = layer.named_buffers();
  EXPECT_EQ(buffers["calls"].item<int64_t>(), 3);
  EXPECT_EQ(buffers["redraws"].item<int64_t>(), 1);
  EXPECT_TRUE(at::equal(buffers["projection"], draw_features(6, 4, {.layer = 3, .redraw = 1})));
  EXPECT_EQ(LinearAttention({}, 4, 0).named_buffers().size(), 0u) << "where nothing is drawn";
}

}  // namespace
}  // namespace rf::nn
