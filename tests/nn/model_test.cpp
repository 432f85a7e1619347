// What Python does not reach of models: initial values, errors (tests/nn/test_inputs.py), dropout of probabilities in
// the loops.
#include "rf/nn/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rf/io/error.h"
#include "rf/nn/attention.h"
#include "rf/nn/linear_attention.h"
#include "temporary_files.h"
#include "tolerances.h"

namespace rf::nn {
namespace {

using namespace rf::tests;

#define EXPECT_ERROR(call, text) expect_has(error_of([&] { (void)(call); }), text)

ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 37, config.hidden_size = 24, config.embedding_size = 16, config.intermediate_size = 20;
  config.num_hidden_layers = config.num_attention_heads = 2, config.max_position_embeddings = 16;
  config.type_vocab_size = 3, config.num_labels = 4;
  return config;
}

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
      EXPECT_FALSE(value[config.pad_token_id].any().item<bool>());
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
  Model model(small_config(), Head::kMaskedLm);
  EXPECT_ERROR(model.forward(Input{}), "must be [batch, tokens]");
  EXPECT_ERROR(model.set_position_table(at::zeros({4, 10})), "must be [rows, 12], got [4, 10]");
}

TEST(Attention, TheLoopsKnowNoDropout) {
  DropoutKey key;
  const at::Tensor q = at::randn({1, 3, 1, 8}, at::kDouble);
  const AttentionContext context{make_positions(at::arange(3)), at::Tensor(), {}, Kernel::kRef};
  EXPECT_ERROR(attention(q, q, q, {}, context, 0.5, &key), "[attention] dropout must be 0 with kernel ref, got 0.5");
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
