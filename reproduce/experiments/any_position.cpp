// C-03 (spec R-ROPE-10): rotations at any position, and a model without a longest input. The reference is cos and sin
// of position * 10000^(-2i/D) in long double, whose error is below 1e-9 up to position 2^31.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "experiment.h"
#include "rf/io/error.h"
#include "rf/nn/model.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

constexpr double kHalfUlp = 6e-8;  // of 1 in float32, and a little

struct AnyPositionSettings {
  int64_t head_dim = 64;
  std::vector<int64_t> positions = {1, 511, 1535, 131071, 1048575, 100000000, 2147483647};
  int64_t model_positions = 64;
  std::vector<int64_t> model_tokens = {64, 65, 256, 1024};
  Seeds seeds = {1};
  RF_MEMBERS(AnyPositionSettings, head_dim, positions, model_positions, model_tokens, seeds)
};

// Largest error of cos and sin rows [I].
double error_of(const at::Tensor& cos_I, const at::Tensor& sin_I, int64_t position) {
  const std::vector<double> cosines = values(cos_I), sines = values(sin_I);
  double worst = 0;
  for (size_t i = 0; i < cosines.size(); ++i) {
    const long double exponent = -2.0L * static_cast<long double>(i) / static_cast<long double>(2 * cosines.size());
    const long double angle = static_cast<long double>(position) * powl(10000.0L, exponent);
    worst = std::max({worst, std::abs(static_cast<double>(cosines[i] - cosl(angle))),
                      std::abs(static_cast<double>(sines[i] - sinl(angle)))});
  }
  return worst;
}

// The longest of the inputs that a model made for `model_positions` tokens reads; 0 if it reads none.
int64_t longest_read(const char* encoding, const AnyPositionSettings& settings) {
  const at::NoGradGuard no_grad;
  ModelConfig config;
  config.position_encodings = {{encoding, "{}"}};
  config.vocab_size = 10;
  config.hidden_size = config.embedding_size = config.intermediate_size = 32;
  config.num_attention_heads = config.num_hidden_layers = 2;
  config.max_position_embeddings = settings.model_positions;
  at::manual_seed(settings.seeds[0]);
  nn::Model model(config, Head::kNone);
  model.eval();
  int64_t longest = 0;
  for (const int64_t tokens : settings.model_tokens) {
    nn::Input input;
    input.ids_BT = integers(0, tokens).remainder(10).unsqueeze(0);
    try {
      if (at::isfinite(model.encode(input)).all().item<bool>()) longest = std::max(longest, tokens);
    } catch (const Error&) {  // the encoding has fewer positions
    }
  }
  return longest;
}

Result run_any_position(const AnyPositionSettings& settings, const Context&) {
  const int64_t head_dim = settings.head_dim;
  Result result{.columns = {"quantity", "exact angles", "angles as float32 products"}, .rows = {}};
  double worst = 0, worst_product = 0;
  for (const int64_t position : settings.positions) {
    const ops::Rotation rows = rotation(at::tensor({position}, at::kLong), head_dim, at::kFloat);
    const double exact = error_of(rows.cos.flatten(), rows.sin.flatten(), position);
    const at::Tensor angle = frequencies(head_dim).to(at::kFloat) * static_cast<float>(position);
    const double product = error_of(angle.cos(), angle.sin(), position);
    result.rows.push_back({fmt::format("largest error of cos and sin at position {}", position), exact, product});
    worst = std::max(worst, exact);
    worst_product = std::max(worst_product, product);
  }
  const int64_t longest = settings.model_tokens.back(), limit = settings.model_positions;
  const int64_t rope = longest_read("rope", settings), learned = longest_read("learned", settings);
  result.rows.push_back({fmt::format("longest input read by a model for {} tokens, rope", limit), rope, nullptr});
  result.rows.push_back({fmt::format("longest input read by a model for {} tokens, learned", limit), learned, nullptr});
  result.findings = {
      {"C-03", worst <= kHalfUlp && rope == longest && learned == limit,
       fmt::format("errors of at most {:.1e} at the {} positions tried (float32 products: up to {:.1e}); a model "
                   "for {} tokens reads {} with rope, {} with a learned table",
                   worst, settings.positions.size(), worst_product, limit, rope, learned)}};
  return result;
}

}  // namespace

Experiment any_position() {
  return {.name = "any-position",
          .spec = "R-ROPE-10",
          .title = "Is RoPE defined at every position?",
          .claims = {"C-03"},
          .expected =
              "float32 tables are off by at most 6e-8 at positions to 2^31 - 1, and a model with rope "
              "reads 16 times its max_position_embeddings where a learned table refuses one token more.",
          .budget = "seconds",
          .method = run_any_position,
          .kind = Kind::kMathematics};
}

}  // namespace rf::reproduce
