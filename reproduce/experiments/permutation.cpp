// C-01 (spec R-ATT-03): if the tokens of an encoder without position encoding are permuted, its outputs are permuted
// and nothing else changes; with an encoding this is not so.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "experiment.h"
#include "rf/nn/model.h"
#include "rf/train/compare.h"
#include "statistics.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

constexpr double kSame = 1e-12, kDifferent = 1e-3;  // of the largest output

struct PermutationSettings {
  std::vector<std::string> encodings = {
      "none",  "learned",        "sinusoidal", "shaw",   "nezha",  "huang-m2", "huang-m3", "huang-m4",
      "alibi", "transformer-xl", "t5",         "tupe-a", "tupe-r", "deberta",  "rope",     "axial:grid_width=5",
      "xpos"};
  int64_t tokens = 24, hidden_size = 32, heads = 4, layers = 2;
  double weights_std = 0.3;  // added to the initialisation, with which attention is nearly uniform
  Seeds seeds = {1, 2, 3};
  RF_MEMBERS(PermutationSettings, encodings, tokens, hidden_size, heads, layers, weights_std, seeds)
};

// Largest difference between the outputs for permuted tokens and the permuted outputs, divided by the largest output.
double order_seen(const std::string& encoding, const PermutationSettings& settings, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const int64_t tokens = settings.tokens;
  ModelConfig config;
  config.position_encodings = {train::parse_arm(encoding)};
  config.vocab_size = tokens + 1;
  config.hidden_size = config.embedding_size = config.intermediate_size = settings.hidden_size;
  config.num_attention_heads = settings.heads;
  config.num_hidden_layers = settings.layers;
  config.max_position_embeddings = tokens;
  at::manual_seed(seed);
  nn::Model model(config, Head::kNone);
  for (at::Tensor& parameter : model.parameters()) {
    parameter.add_(at::randn_like(parameter), settings.weights_std);
  }
  model.to(at::kDouble);
  model.eval();
  const auto outputs = [&model](const at::Tensor& ids_BT) {
    nn::Input input;
    input.ids_BT = ids_BT;
    return model.encode(input);
  };
  const at::Tensor ids_BT = integers(1, tokens + 1).unsqueeze(0), order = at::randperm(tokens);
  const at::Tensor outputs_BTC = outputs(ids_BT);
  const at::Tensor permuted_BTC = outputs(ids_BT.index_select(1, order));
  return largest(permuted_BTC - outputs_BTC.index_select(1, order)) / largest(outputs_BTC);
}

Result run_permutation(const PermutationSettings& settings, const Context&) {
  Result result{.columns = {"encoding", "largest difference", "lowest", "highest"}, .rows = {}};
  double without = 0, least_with = HUGE_VAL;
  std::string least_name;
  for (const std::string& encoding : settings.encodings) {
    std::vector<double> differences;
    for (const uint64_t seed : settings.seeds) differences.push_back(order_seen(encoding, settings, seed));
    const Spread found = spread(differences);
    result.rows.push_back({encoding, found.mean, found.low, found.high});
    if (encoding == "none") {
      without = found.high;
    } else if (found.low < least_with) {
      least_with = found.low;
      least_name = encoding;
    }
  }
  result.findings = {{"C-01", without <= kSame && least_with >= kDifferent,
                      fmt::format("without encoding outputs differ by at most {:.1e} of the largest, with each of {} "
                                  "encodings by at least {:.1e} ({})",
                                  without, settings.encodings.size() - 1, least_with, least_name)}};
  return result;
}

}  // namespace

Experiment permutation() {
  return {.name = "permutation",
          .spec = "R-ATT-03",
          .title = "Does attention see the order of its tokens?",
          .claims = {"C-01"},
          .expected =
              "Without an encoding, permuted tokens give permuted outputs to 1e-12 of the largest (float64); "
              "with each encoding of a list some output differs by more than 1e-3 of it.",
          .budget = "seconds",
          .method = run_permutation,
          .kind = Kind::kMathematics};
}

}  // namespace rf::reproduce
