// C-05, C-08 (spec R-LIN-06): linear attention with rotations (arXiv 2104.09864 Eq. 17-19). The program's sums over
// keys are compared with the sums over all pairs, written out here in float64: Eq. 19 works, and its denominator and
// weights are what they are said to be.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "experiment.h"
#include "rf/nn/linear_attention.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

struct Tokens {
  at::Tensor query_TD, key_TD, value_TD;
};

// A worked example of R-LIN-06: three tokens, one frequency.
Tokens example() {
  const auto rows = [](std::vector<double> elements) { return at::tensor(elements, at::kDouble).view({3, 2}); };
  return {rows({0.5, -1, 2, 0.25, -2, 1}), rows({1, -2, -0.5, 0.5, 0, 3}), rows({1, 0, 0, 1, 2, -1})};
}

Tokens random_tokens(int64_t tokens, int64_t head_dim, uint64_t seed) {
  at::manual_seed(seed);
  const auto draw = [&] { return at::randn({tokens, head_dim}, at::kDouble); };
  const at::Tensor query_TD = draw(), key_TD = draw();
  return {query_TD, key_TD, draw()};
}

// Eq. 18; Eq. 19, which rotates the numerator; and both sums rotated.
enum class Form { kPlain, kNumerator, kBoth };
constexpr Form kForms[] = {Form::kPlain, Form::kNumerator, Form::kBoth};

at::Tensor by_product(const Tokens& tokens, Form form) {
  const auto heads = [](const at::Tensor& x_TD) { return x_TD.unsqueeze(0).unsqueeze(2); };
  LinearAttentionConfig config;
  config.rotate_denominator = form == Form::kBoth;
  ops::Terms terms;
  if (form != Form::kPlain) {
    terms.query = rotation(integers(0, tokens.query_TD.size(0)), tokens.query_TD.size(1), at::kDouble);
    terms.key = terms.query;
  }
  return nn::linear_attention(heads(tokens.query_TD), heads(tokens.key_TD), heads(tokens.value_TD), terms, config,
                              /*projection=*/{}, {})[0]
      .squeeze(1);
}

struct Pairwise {
  at::Tensor output_TD, weights_TT, denominator_T;
};
// The same, pair by pair: features elu(x) + 1, rotated by a complex product.
Pairwise by_pairs(const Tokens& tokens, Form form) {
  const auto features = [](const at::Tensor& x) { return at::elu(x) + 1; };
  const auto turned = [](const at::Tensor& x_TD) {
    const at::Tensor angle = at::arange(x_TD.size(0), at::kDouble).unsqueeze(1) * frequencies(x_TD.size(1));
    const at::Tensor z = at::view_as_complex(x_TD.unflatten(1, {-1, 2}).contiguous());
    return at::view_as_real(z * at::polar(at::ones_like(angle), angle)).flatten(1);
  };
  const at::Tensor q = features(tokens.query_TD), k = features(tokens.key_TD);
  const at::Tensor plain_TT = at::matmul(q, k.t());
  const at::Tensor turned_TT = form == Form::kPlain ? plain_TT : at::matmul(turned(q), turned(k).t());
  const at::Tensor denominator_T = (form == Form::kBoth ? turned_TT : plain_TT).sum(1);
  const at::Tensor weights_TT = turned_TT / denominator_T.unsqueeze(1);
  return {at::matmul(weights_TT, tokens.value_TD), weights_TT, denominator_T};
}

struct LinearAttentionSettings {
  int64_t tokens = 1024, head_dim = 64;
  Seeds seeds = {1};
  RF_MEMBERS(LinearAttentionSettings, tokens, head_dim, seeds)
};

// A row of the table: a quantity, by form.
nlohmann::json row(const std::string& quantity, const std::function<double(Form)>& of) {
  nlohmann::json row = nlohmann::json::array({quantity});
  for (const Form form : kForms) row.push_back(of(form));
  return row;
}

Result run_linear_attention(const LinearAttentionSettings& settings, const Context&) {
  const Tokens tokens = random_tokens(settings.tokens, settings.head_dim, settings.seeds[0]);
  Result result{.columns = {"quantity", "Eq. 18", "Eq. 19", "both sums rotated"}, .rows = {}};
  for (int64_t i = 0; i < 6; ++i) {
    result.rows.push_back(row(fmt::format("worked example, output {} of token {}", i % 2, i / 2),
                              [&](Form form) { return by_product(example(), form).flatten()[i].item<double>(); }));
  }
  const auto example_weight = [&](Form form) { return by_pairs(example(), form).weights_TT.min().item<double>(); };
  result.rows.push_back(row("worked example, smallest weight", example_weight));
  const auto pairs = [&](Form form) { return by_pairs(tokens, form); };
  const auto error = [&](Form form) {
    return std::max(largest(by_product(tokens, form) - pairs(form).output_TD) / largest(pairs(form).output_TD),
                    largest(by_product(example(), form) - by_pairs(example(), form).output_TD));
  };
  const auto smallest_denominator = [&](Form form) { return pairs(form).denominator_T.min().item<double>(); };
  const auto lowest_sum = [&](Form form) { return pairs(form).weights_TT.sum(1).min().item<double>(); };
  const auto highest_sum = [&](Form form) { return pairs(form).weights_TT.sum(1).max().item<double>(); };
  result.rows.push_back(row("largest difference from the sums over all pairs", error));
  result.rows.push_back(row("smallest denominator", smallest_denominator));
  result.rows.push_back(row("lowest sum of a query's weights", lowest_sum));
  result.rows.push_back(row("highest sum of a query's weights", highest_sum));
  const double worst = std::max(error(Form::kPlain), error(Form::kNumerator));
  const double denominator = smallest_denominator(Form::kNumerator), smallest = example_weight(Form::kNumerator);
  result.findings = {
      {"C-05", worst <= 1e-11,
       fmt::format("Eq. 19 by sums over keys, in time linear in the tokens, equals the sums over all pairs to {:.1e}",
                   worst)},
      {"C-08", denominator > 0 && smallest < 0 && std::abs(lowest_sum(Form::kNumerator) - 1) > 1e-3,
       fmt::format("smallest denominator {:.3g} of {} tokens; their weights add up to {:.3f} to {:.3f}, and the worked "
                   "example has one of {:.2f}; whether such weights are useful is for a trained model to say",
                   denominator, tokens.query_TD.size(0), lowest_sum(Form::kNumerator), highest_sum(Form::kNumerator),
                   smallest)}};
  return result;
}

}  // namespace

Experiment linear_attention() {
  return {.name = "linear-attention",
          .spec = "R-LIN-06",
          .title = "RoPE in linear attention (Eq. 19)",
          .claims = {"C-05", "C-08"},
          .expected =
              "Sums over keys equal the sums over all pairs to 1e-11 (float64); with the numerator alone "
              "rotated every denominator is positive, a query's weights do not add up to 1, and in the worked "
              "example some are negative.",
          .budget = "seconds",
          .method = run_linear_attention,
          .kind = Kind::kMathematics};
}

}  // namespace rf::reproduce
